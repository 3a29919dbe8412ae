"""The README's examples do what it says they do."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from delvec.cli import main
from tests.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(language: str) -> Iterator[str]:
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE):
        yield match[1]


def tidy(text: str) -> list[str]:
    """Lines without the blanks that rich puts after them."""
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_examples_print_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    seen = {"pycon": 0, "console": 0}
    found = re.finditer(r"^```(pycon|console)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    for language, text in (match.groups() for match in found):
        seen[language] += 1
        (run_console if language == "console" else run_python)(text, names)
    assert seen["pycon"] > 5
    assert seen["console"] > 2


def run_python(text: str, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, "README.md", "README.md", 0)
    problems: list[str] = []
    doctest.DocTestRunner().run(test, out=problems.append, clear_globs=False)
    assert not problems, "".join(problems)
    names |= test.globs


def run_console(text: str, _: dict[str, object]) -> None:
    line, _sign, shown = text.partition("\n")
    prompt, *words = shlex.split(line)
    assert prompt == "$"
    assert words.pop(0) == "delvec"
    result = CliRunner().invoke(main, words, env={"COLUMNS": "110", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    # How large a file of Parquet is depends on the version of Arrow.
    shown = re.sub(r"\d+\.\d KiB(?=,|$)", "... KiB", shown, flags=re.MULTILINE)
    got, want = ("\n".join([*tidy(part), ""]) for part in (result.output, shown))
    assert doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS), got


@pytest.mark.spark
def test_the_spark_example_runs(tmp_path: Path) -> None:
    code = "\n".join(blocks("python"))
    demo = ["demo", "--folder", str(tmp_path / "demo"), "--no-spark"]
    assert CliRunner().invoke(main, demo).exit_code == 0
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for shown in ("closed", "4285", "10008"):
        assert shown in done.stdout
    plain = done.stdout.replace(f"{tmp_path}/", "")
    for report in blocks("text"):
        pattern = re.escape(report.strip()).replace(re.escape("..."), ".*")
        assert re.search(pattern, plain, re.DOTALL), plain


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    headings = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_targets_that_the_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {
        target for page in PAGES for target in re.findall(r"make ([a-z0-9-]+)", page.read_text())
    }
    assert {"demo", "test", "bench", "lint"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
