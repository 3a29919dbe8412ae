"""The examples of the pages, run in their order, print what the pages show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from delvec.cli import main
from tests.docs.pages import blocks, missing_output, printed_by
from tests.repository import ROOT

DOCS: Final = ROOT / "docs"
# What the stream of docs/resolving.md reads: a file becomes a batch, in the order of their times.
INCOMING: Final[tuple[list[tuple[int, str | None, str, int]], ...]] = (
    [(30_001, "paid", "U", 1), (30_001, "sent", "U", 2)],
    [(30_001, "done", "U", 3), (30_002, None, "D", 4)],
)


def write_incoming(folder: Path) -> None:
    (folder / "incoming").mkdir()
    for number, rows in enumerate(INCOMING):
        lines = [
            {"order_id": key, "day": "2026-02-01", "status": status, "op": op, "changed_at": at}
            for key, status, op, at in rows
        ]
        path = folder / "incoming" / f"{number}.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_demo(folder: Path) -> None:
    demo = ["demo", "--folder", str(folder / "demo"), "--no-spark"]
    assert CliRunner().invoke(main, demo).exit_code == 0


# What a page needs beforehand, and what of it is not run: it needs a stream that goes on.
PREPARED: Final[dict[str, Callable[[Path], None]]] = {
    "quick-start": write_demo,
    "resolving": write_incoming,
}
NOT_RUN: Final = {"iceberg-deletes": "stream.writeStream"}
NOT_PRINTED: Final = {"iceberg-deletes": "this transaction was committed before"}
LEFT_OUT: Final = "\0"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        *(("quick-start", 4), ("deleting-for-good", 3), ("migrating", 1), ("maintenance", 3)),
        ("sql", 3),
        *(("inspecting", 2), ("iceberg-deletes", 6), ("resolving", 6), ("streaming", 2)),
    ],
)
def test_a_page_shows_what_its_examples_print(name: str, outputs: int, tmp_path: Path) -> None:
    page = DOCS / f"{name}.md"
    if name in PREPARED:
        PREPARED[name](tmp_path)
    code = [each for each in blocks(page, "python") if NOT_RUN.get(name, LEFT_OUT) not in each]
    shown = [each for each in blocks(page, "text") if NOT_PRINTED.get(name, LEFT_OUT) not in each]
    assert len(shown) >= outputs
    printed = printed_by(code, tmp_path)
    assert not missing_output(shown, printed), printed
