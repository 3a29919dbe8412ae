"""The pages of the docs: their blocks, and whether examples print what pages show."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from delvec.cli import main
from tests.repository import ROOT

PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
# Snapshot ids, times, and sizes, which depend on the version of Arrow.
_CHANGING: Final = re.compile(
    r"(?<=snapshot )\d+|\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC|\b\d+(\.\d+)? (s|B|KiB)\b"
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def check_without_spark(page: Path) -> dict[str, int]:
    """Run the examples that need no Spark, in their order; return how many there are of a kind."""
    names: dict[str, object] = {}
    seen = {"pycon": 0, "console": 0}
    found = re.finditer(
        r"^```(pycon|console)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE
    )
    for language, text in (match.groups() for match in found):
        seen[language] += 1
        if language == "console":
            _run_console(text)
        else:
            _run_python(text, names)
    return seen


def _run_python(text: str, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, "page", "page", 0)
    problems: list[str] = []
    doctest.DocTestRunner().run(test, out=problems.append, clear_globs=False)
    assert not problems, "".join(problems)
    names |= test.globs


def _run_console(text: str) -> None:
    line, _sign, shown = text.partition("\n")
    prompt, *words = shlex.split(line)
    assert prompt == "$"
    assert words.pop(0) == "delvec"
    result = CliRunner().invoke(main, words, env={"COLUMNS": "110", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    # How large a file of Parquet is depends on the version of Arrow.
    shown = re.sub(r"\d+\.\d KiB(?=,|$)", "... KiB", shown, flags=re.MULTILINE)
    got, want = ("\n".join([*_tidy(part), ""]) for part in (result.output, shown))
    assert doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS), got


def _tidy(text: str) -> list[str]:
    """Lines without the blanks that rich puts after them."""
    return [line.rstrip() for line in text.strip().splitlines()]


def printed_by(code: Sequence[str], folder: Path) -> str:
    """Run blocks of Python as one script in a folder, and return what it prints."""
    command = [sys.executable, "-c", "\n".join(code)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}/", "")


def missing_output(shown: Sequence[str], printed: str) -> list[str]:
    """Return the blocks of output that a script did not print; `...` stands for anything."""
    text = _comparable(printed)
    patterns = {
        each: re.escape(_comparable(each)).replace(re.escape("..."), ".*?") for each in shown
    }
    return [each for each, pattern in patterns.items() if not re.search(pattern, text)]


def _comparable(text: str) -> str:
    """Return text in one line, since pages wrap long ones, without what changes."""
    return _CHANGING.sub("#", " ".join(text.split()))
