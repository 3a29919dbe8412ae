"""The page of text: all of it, for a Delta and an Iceberg table of given figures."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace

import pytest
from rich.console import Console

from delvec.inspection.advice import advice_for
from delvec.inspection.figures import (
    AgeClass,
    EqualityFigures,
    Freed,
    LogFigures,
    PositionFigures,
    Ranking,
    Rewritten,
    Share,
    SmallFiles,
    StagingBranch,
    VectorFigures,
)
from delvec.inspection.report import InspectReport

NOW = 1_700_000_000_000
DAY = 86_400_000
DELTA = InspectReport(
    table="/lake/orders",
    format="delta",
    location="/lake/orders",
    protocol="reader 3, writer 7",
    version=1234,
    committed_ms=NOW - 120_000,
    inspected_ms=NOW,
    files=300,
    bytes=30 << 30,
    rows=3_000_000,
    live_rows=2_700_000,
    vectors=VectorFigures(
        41, 300_000, 91_000, {"u": 40, "i": 1}, 7, None, NOW - 120_000, (AgeClass("older", 41),)
    ),
    most_deleted=Ranking(
        (Share("day=1/part-00000-1a.parquet", 1, 10_000, 9_000, 1), Share("b", 1, 10_000, 0, 1)),
        Share("", 298, 2_980_000, 291_000, 1),
        298,
    ),
    partitions=Ranking((Share("day=1", 300, 3_000_000, 300_000, 1),)),
    small_files=SmallFiles(280, 128 << 20, 280, 20, with_deleted=Rewritten(300, 9 << 30, 6 << 30)),
    log=LogFigures(400, 835, 1200, 34, 10),
    freed=Freed(Rewritten(41, 4 << 30, 1 << 30), 12 << 30, 900, 1 << 30, 168.0, 900, NOW - 7 * DAY),
)
DELTA_TEXT = """\
/lake/orders: Delta, version 1,234
  committed  2023-11-14 22:11 UTC, 2 minutes ago
  protocol   reader 3, writer 7
  rows       2,700,000 live, 300,000 deleted (10.0 %)
  files      300 data files, 30.0 GiB; 280 smaller than 128.0 MiB
  vectors    40 by relative path (u), 1 inline (i) in 7 files, 88.9 KiB; newest
             2 minutes old
  log        400 commits from version 835 on, 34 since the checkpoint of
             version 1,200
  purge      would write about 1.0 GiB; the 4.0 GiB of 41 files that it
             replaces go by a vacuum after 168 hours, which frees about 3.0 GiB
             in all
  vacuum     would free 12.0 GiB in 900 files now, 1.0 GiB more when the
             retention of 168 hours is over

Files with the most deleted rows
  part-00000-1a.parquet  █████████████▌   90.0 %  9,000
  … and 299 files more, with 291,000 deleted rows in all

Partitions with the most deleted rows
  day=1  █▍              10.0 %  300,000

What to run next, for the table t
  1. optimize: 10.0 % of the rows are deleted, more than 5 %, and 280 small
     files would become about 20: one rewrite does both; it writes about
     6.0 GiB, and after 168 hours a vacuum frees the 9.0 GiB that it replaces
     t.optimize(max_deleted_ratio=0)
  2. checkpoint: the last checkpoint is old: 34 commits are read to open the
     table, and the table wants a checkpoint after 10
     t.checkpoint()
  3. vacuum: no version within the retention of 168 hours needs 900 files
     (12.0 GiB, 40.0 % of the live data); it ends time travel to versions
     before 900, which is of 2023-11-07 22:13 UTC
     t.vacuum()"""
ICEBERG = InspectReport(
    table="lake.db.orders",
    format="iceberg",
    location="/lake/db/orders",
    protocol="format version 3",
    snapshot_id=7,
    branch="main",
    committed_ms=NOW,
    inspected_ms=NOW,
    files=1,
    bytes=1 << 20,
    rows=100,
    live_rows=None,
    positions=PositionFigures(2, 40, 4096, NOW - DAY),
    equality=EqualityFigures(
        1, 1, 30, 2048, NOW - DAY, (("id",), ("a", "b")), (StagingBranch("changes", 2, 9),)
    ),
    log=LogFigures(versions=3, oldest_ms=NOW - DAY, max_age_ms=5 * DAY),
    freed=Freed(why_unknown="over 100 snapshots"),
    notes=("something is to be known",),
)
ICEBERG_TEXT = """\
lake.db.orders: Iceberg, snapshot 7 of main
  committed  2023-11-14 22:13 UTC, less than a second ago
  protocol   format version 3
  rows       100 in data files, 0 deleted (0.0 %) by vectors, up to 40 by
             position deletes, more by equality deletes
  files      1 data file, 1.0 MiB
  vectors    none
  positions  2 position delete files, 4.0 KiB, with 40 positions, 1 day old at
             most
  equality   1 file and 1 equality delete vector with 30 keys wait, 2.0 KiB, by
             id; a, b, 1 day old at most
  staging    changes: 2 snapshots that main has not taken over, 9 keys of
             equality deletes
  snapshots  3 retained, the oldest of 2023-11-13 22:13 UTC
  expire     not looked for: over 100 snapshots

What to run next, for the table t
  1. resolve: 2 equality deletes with 30 keys wait: readers join every row with
     them
     t.resolve()
  2. resolve: the staging branch changes has 2 snapshots that main has not
     taken over
     t.resolve(staging='changes')
Note: something is to be known"""


@pytest.mark.parametrize(("report", "text"), [(DELTA, DELTA_TEXT), (ICEBERG, ICEBERG_TEXT)])
def test_a_table_fits_a_page_of_80_columns(report: InspectReport, text: str) -> None:
    assert str(replace(report, advice=advice_for(report))) == text


@pytest.mark.parametrize("width", [60, 80, 120, 300])
@pytest.mark.parametrize("report", [DELTA, ICEBERG], ids=["delta", "iceberg"])
def test_text_is_as_wide_as_the_terminal_and_figures_stay_whole(
    report: InspectReport, width: int
) -> None:
    found = [text for text, _ in replace(report, advice=advice_for(report)).lines(width)]
    assert max(map(len, found)) < min(width, 120)
    assert max(map(len, found)) > min(width, 120) - 20
    assert not [line for line in found if re.search(r"^ *(%|B|[KMG]iB|UTC)\b", line)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_command_is_the_same_to_a_shell_and_no_word_is_broken(width: int) -> None:
    words = [
        *("delvec", "optimize", "/lake/it's my orders/" + "x" * 100),
        *("--max-deleted-ratio", "0", "--storage-option", "region=eu west"),
        *("--conf", "spark.sql.catalog.prod.uri=https://catalog.example.com/api/v1"),
    ]
    command = shlex.join(words)
    advice = replace(advice_for(DELTA)[0], command=command)
    found = [text for text, style in replace(DELTA, advice=(advice,)).lines(width) if style]
    shown = "\n".join(text[5:] for text in found if text.startswith("     "))
    assert shlex.split(shown.replace("\\\n", "")) == words
    assert "--max-deleted-ratio 0" in shown
    assert "'region=eu west'" in shown


def test_long_names_leave_room_for_bars() -> None:
    share = Share("day=" + "long value " * 30, 1, 100, 30, 10)
    report = replace(DELTA, partitions=Ranking((share,)))
    for width in (40, 60, 120):
        [line] = [text for text, _ in report.lines(width) if "day=" in text]
        assert len(line) < width
        assert "30.0 %  30" in line
        assert "…" in line


def test_a_console_of_rich_gets_text_of_its_width_and_a_repr_is_whole() -> None:
    console = Console(width=60, file=io.StringIO(), record=True)
    console.print(DELTA)
    shown = console.export_text().splitlines()
    assert [line.rstrip() for line in shown] == [text for text, _ in DELTA.lines(60)]
    deep = replace(DELTA, table="/lake/" + "x" * 100)
    assert repr(deep) == f"InspectReport({deep.table}: Delta, version 1,234)"
