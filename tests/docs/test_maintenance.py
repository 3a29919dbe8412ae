"""The examples of docs/maintenance.md, run in their order, print what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "maintenance.md").read_text()
# Times, and sizes, which depend on the version of Arrow.
CHANGING = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d UTC|\b\d+(\.\d+)? (s|B|KiB)\b")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def comparable(text: str) -> str:
    """Return text in one line, since the page wraps long ones, without what changes."""
    return CHANGING.sub("#", " ".join(text.split()))


@pytest.mark.spark
@pytest.mark.slow
def test_the_page_shows_what_its_examples_print(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "\n".join(blocks("python"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = comparable(done.stdout)
    shown = blocks("text")
    assert len(shown) == 3
    for text in shown:
        pattern = re.escape(comparable(text)).replace(re.escape("..."), ".*?")
        assert re.search(pattern, printed), done.stdout
