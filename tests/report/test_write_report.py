from __future__ import annotations

import io
import json
from types import MappingProxyType

from rich.console import Console

from delvec.delta.write.report import WriteReport
from delvec.storage import RequestCounts

FULL = WriteReport(
    *("MERGE", "/lake/orders", 12),
    rows_deleted=1204,
    rows_updated=1,
    rows_inserted=20,
    rows_copied=7,
    files_scanned=3,
    files_pruned=1009,
    files_added=2,
    files_removed=1,
    vectors_added=3,
    vectors_updated=2,
    vectors_removed=1,
    vector_files=1,
    bytes_added=3 << 20,
    bytes_removed=512,
    vector_bytes=2150,
    change_files=1,
    attempts=2,
    reconciled=1,
    scans=2,
    requests=RequestCounts(gets=4, puts=3, lists=1, bytes_read=2048, bytes_written=100),
    phases=MappingProxyType({"plan": 0.25, "find": 1.5, "checkpoint": 0.25}),
    notes=("the [red]table[/] has no statistics", "a\x1b[2Jb"),
)


def test_a_report_tells_every_fact_that_is_not_zero() -> None:
    assert str(FULL).splitlines() == [
        "MERGE on /lake/orders: version 12, 1,204 rows deleted, 1 row updated, 20 rows inserted",
        "  files       3 scanned, 1,009 pruned, 2 added, 1 removed",
        "  data        3.0 MiB added, 512 B removed",
        "  rows        7 copied",
        "  vectors     3 added, 2 updated, 1 removed (2.1 KiB in 1 file)",
        "  changes     1 file",
        "  scans       2",
        "  commit      2 attempts, vectors of 1 file united with newer ones",
        "  requests    4 GET, 3 PUT, 1 LIST",
        "  traffic     2.0 KiB read, 100 B written",
        "  plan           0.25 s   12 %",
        "  find           1.50 s   75 %",
        "  checkpoint     0.25 s   12 %",
        "  total          2.00 s",
        "Note: the [red]table[/] has no statistics",
        r"Note: a\x1b[2Jb",
    ]


def test_a_report_without_facts_is_short() -> None:
    planned = WriteReport("DELETE", "t", dry_run=True, rows_deleted=2, vectors_added=1)
    dry = "DELETE on t: dry run: nothing was written"
    for report, text in (
        (WriteReport("SET TBLPROPERTIES", "t", 3), "SET TBLPROPERTIES on t: version 3"),
        (WriteReport("DELETE", "t"), "DELETE on t: nothing to do, nothing was written"),
        (WriteReport("DELETE", "t", dry_run=True), f"{dry}, no row would change"),
        (planned, f"{dry}, 2 rows would be deleted\n  vectors  1 added"),
        (
            WriteReport("DELETE", "t", 1, phases={"plan": 0.0}),
            "DELETE on t: version 1\n  plan     0.00 s",
        ),
    ):
        assert str(report) == text


def test_a_report_goes_to_json_and_back() -> None:
    document = json.loads(json.dumps(FULL.to_json()))
    assert document["requests"]["puts"] == 3
    assert document["phases"] == {"plan": 0.25, "find": 1.5, "checkpoint": 0.25}
    document["requests"] = RequestCounts(**document["requests"])
    document["notes"] = tuple(document["notes"])
    assert WriteReport(**document) == FULL


def test_notebooks_and_rich_show_the_same_text_and_take_nothing_for_markup() -> None:
    html = WriteReport("DELETE", "<b>&</b>", 1)._repr_html_()
    assert html == "<pre>DELETE on &lt;b&gt;&amp;&lt;/b&gt;: version 1</pre>"
    for markup in (False, True):
        sink = io.StringIO()
        Console(file=sink, width=200, markup=markup).print(FULL)
        assert [line.rstrip() for line in sink.getvalue().splitlines()] == str(FULL).splitlines()
    sink = io.StringIO()
    Console(file=sink, width=200, force_terminal=True, color_system="standard").print(FULL)
    assert sink.getvalue().startswith("\x1b[1mMERGE on")
