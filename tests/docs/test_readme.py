"""The README is short, its examples do what it says they do, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click
import pytest

from delvec.cli import main
from tests.docs.pages import PAGES, blocks, check_without_spark, missing_output, printed_by
from tests.repository import ROOT

README: Final = ROOT / "README.md"


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.read_text().splitlines()) < 200


@pytest.mark.parametrize(
    ("page", "pycon", "console"),
    [
        ("README.md", 1, 2),
        ("docs/quick-start.md", 1, 2),
        ("docs/vector-formats.md", 5, 1),
        ("docs/migrating.md", 1, 0),
    ],
)
def test_the_examples_print_what_the_page_shows(
    page: str, pycon: int, console: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_without_spark(ROOT / page) == {"pycon": pycon, "console": console}


@pytest.mark.slow
@pytest.mark.spark
def test_the_spark_example_prints_what_the_readme_shows(tmp_path: Path) -> None:
    shown = blocks(README, "text")
    assert len(shown) == 1
    printed = printed_by(blocks(README, "python"), tmp_path)
    assert not missing_output(shown, printed), printed


def slugs(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        file, _sign, anchor = target.partition("#")
        linked = page if not file else page.parent / file
        assert linked.exists(), target
        assert not anchor or anchor in slugs(linked), target


# In code, inline or as a line: `delvec convert SOURCE TARGET --dry-run`.
SHOWN: Final = re.compile(r"(?:^\$? ?|`)delvec ([a-z-]+)([^`\n]*)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_options_that_a_page_shows(page: Path) -> None:
    for name, rest in SHOWN.findall(page.read_text()):
        command = main.get_command(click.Context(main), name)
        params = [] if command is None else command.params
        known = {text for each in params for text in (*each.opts, *each.secondary_opts)}
        shown = set(re.findall(r"(?<=\s)--[a-z-]+", rest))
        assert shown <= known | {"--help"}, f"delvec {name}{rest}"


def test_the_targets_that_the_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, re.MULTILINE))
    assert {"demo", "test", "bench", "lint", "docs"} <= named
    assert named <= set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
