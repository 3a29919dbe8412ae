"""The examples of docs/iceberg-deletes.md, run in their order, print what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "iceberg-deletes.md").read_text()
STREAM = "writeStream"
REPEATED = "this transaction was committed before"
# Snapshot ids, times, and sizes, which depend on the version of Arrow.
CHANGING = re.compile(r"(?<=snapshot )\d+|\b\d+(\.\d+)? (s|B|KiB)\b")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def comparable(text: str) -> str:
    """Return text in one line, since the page wraps long ones, without what changes."""
    return CHANGING.sub("#", " ".join(text.split()))


@pytest.mark.spark
@pytest.mark.slow
def test_the_page_shows_what_its_examples_print(tmp_path: Path) -> None:
    code = "\n".join(each for each in blocks("python") if STREAM not in each)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = comparable(done.stdout)
    shown = [each for each in blocks("text") if REPEATED not in each]
    assert len(shown) > 5
    for text in shown:
        pattern = re.escape(comparable(text)).replace(re.escape("..."), ".*?")
        assert re.search(pattern, printed), done.stdout
