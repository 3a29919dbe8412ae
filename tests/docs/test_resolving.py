"""The examples of docs/resolving.md, run in their order, print what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.test_iceberg_deletes import comparable
from tests.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE: Final = (ROOT / "docs" / "resolving.md").read_text()
# What the stream of the page reads: a file becomes a batch, in the order of their times.
INCOMING: Final[tuple[list[tuple[int, str | None, str, int]], ...]] = (
    [(30_001, "paid", "U", 1), (30_001, "sent", "U", 2)],
    [(30_001, "done", "U", 3), (30_002, None, "D", 4)],
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def write_incoming(folder: Path) -> None:
    folder.mkdir()
    for number, rows in enumerate(INCOMING):
        lines = [
            {"order_id": key, "day": "2026-02-01", "status": status, "op": op, "changed_at": at}
            for key, status, op, at in rows
        ]
        path = folder / f"{number}.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.spark
@pytest.mark.slow
def test_the_page_shows_what_its_examples_print(tmp_path: Path) -> None:
    write_incoming(tmp_path / "incoming")
    command = [sys.executable, "-c", "\n".join(blocks("python"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = comparable(done.stdout)
    shown = blocks("text")
    assert len(shown) > 5
    for text in shown:
        pattern = re.escape(comparable(text)).replace(re.escape("..."), ".*?")
        assert re.search(pattern, printed), f"{text}\n\nis not in\n\n{done.stdout}"
