"""The site has all pages, a reference of all calls, and no link that leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from website.api import api_pages
from website.commands import commands_page
from website.docstrings import markdown
from website.links import broken_links
from website.pages import navigation

import delvec
from delvec.cli import main
from tests.repository import ROOT


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    return api_pages()


def test_every_page_is_in_the_navigation(reference: dict[str, str]) -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | {"changelog.md"}
    pages |= {f"api/{name}.md" for name in [*reference, "commands"]}
    assert {place for _, place in navigation(ROOT)} == pages


def test_the_reference_has_all_that_is_public(reference: dict[str, str]) -> None:
    for table, page in (("DeltaTable", "delta-table"), ("IcebergTable", "iceberg-table")):
        headings = set(re.findall(r"^### (\w+)$", reference[page], re.MULTILINE))
        public = {
            name
            for name in dir(getattr(delvec, table))
            if name[0] != "_" and callable(getattr(getattr(delvec, table), name, None))
        }
        assert public <= headings
    for module in ("vector", "storage", "errors"):
        headings = set(re.findall(r"^## (\w+)$", reference[module], re.MULTILINE))
        assert set(getattr(delvec, module).__all__) <= headings
    for report in ("WriteReport", "ConversionReport", "ResolveReport", "MergeBuilder"):
        assert f"\n## {report}\n" in reference["reports"]


def test_a_call_leads_to_its_own_report_where_two_have_the_same_name(
    reference: dict[str, str],
) -> None:
    for kind in ("Delta", "Iceberg"):
        assert f"\n## CheckReport of {kind} tables\n" in reference["reports"]
        _, _, check = reference[f"{kind.lower()}-table"].partition("\n### check\n")
        link = f"(reports.md#checkreport-of-{kind.lower()}-tables)"
        assert link in check.partition("\n### ")[0]


def test_commands_have_their_help_and_are_all_in_the_overview() -> None:
    page = commands_page()
    assert "\n## convert\n" in page
    assert "--dry-run" in page
    named = set(re.findall(r"`([a-z-]+)[` ]", (ROOT / "docs" / "command.md").read_text()))
    assert set(main.list_commands(click.Context(main))) <= named | {"completion"}


def test_docstrings_become_markdown() -> None:
    def example() -> None:
        """Do a thing.

            example()

        >>> 1 + 1
        2

        Args:
            where: A condition
                in two lines.

        Raises:
            ValueError: It is wrong.
        """

    assert markdown(example) == (
        "Do a thing.\n\n```python\nexample()\n```\n\n```pycon\n>>> 1 + 1\n2\n```\n\n"
        "**Arguments**\n\n- `where`: A condition in two lines.\n\n"
        "**Raises**\n\n- `ValueError`: It is wrong."
    )


def test_broken_links_and_anchors_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">a</h1><a href="b.html#there"></a><a href="b.html#gone"></a>'
        '<a href="c.html"></a><a href="https://example.org/x"></a><a href="#top"></a>'
        '<img src="no.svg"><a href="../outside.html"></a>'
    )
    (tmp_path / "b.html").write_text('<h2 id="there">b</h2>')
    assert broken_links(tmp_path) == [
        "a.html: b.html#gone (no such anchor)",
        "a.html: c.html (no such page)",
        "a.html: no.svg (no such page)",
        "a.html: ../outside.html (outside of the site)",
    ]
