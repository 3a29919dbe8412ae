"""The page of a report: complete in itself, and safe whatever names a table has."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from delvec import DeltaTable
from delvec.inspection.advice import advice_for
from delvec.inspection.figures import (
    Advice,
    AgeClass,
    EqualityFigures,
    Moment,
    Ranking,
    Share,
    SizeClass,
    StagingBranch,
    VectorFigures,
)
from delvec.inspection.report import InspectReport
from tests.delta.builder import TableBuilder
from tests.inspection.tables import partitioned_table

HOSTILE = (
    '</style></title><script>alert(1)</script><img src=x onerror="a()">\'"&\u202e\x1b[2J\n\x00é'
)
VOID = {"meta", "link", "br", "rect"}


def hostile_report() -> InspectReport:
    """A report with a hostile string wherever a table supplies one."""
    share = Share(HOSTILE, 1, 10, 9, 100)
    texts: dict[str, Any] = dict.fromkeys(("table", "location", "protocol", "branch"), HOSTILE)
    report = InspectReport(
        **texts,
        format="iceberg",
        snapshot_id=7,
        committed_ms=10**18,  # beyond all years
        partition_by=(HOSTILE,),
        files=1,
        bytes=100,
        rows=10,
        live_rows=None,
        vectors=VectorFigures(
            1, 9, 44, {HOSTILE: 1}, 1, oldest_ms=0, newest_ms=0, ages=(AgeClass(HOSTILE, 1),)
        ),
        equality=EqualityFigures(1, 0, 5, 100, 0, ((HOSTILE,),), (StagingBranch(HOSTILE, 2, 3),)),
        most_deleted=Ranking((share,)),
        partitions=Ranking((share,)),
        sizes=(SizeClass(HOSTILE, 1, 100),),
        moments=(Moment(1, 2, HOSTILE, 1, 2, 3, 4), Moment(2, 2, HOSTILE, 1, None, 3, 4)),
        advice=(Advice(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, HOSTILE),),
        notes=(HOSTILE,),
    )
    assert advice_for(report)
    return report


class Tags(HTMLParser):
    """The tags of a page, which must be balanced."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_hostile_names_cannot_leave_their_place() -> None:
    report = hostile_report()
    for page in (report.to_html(), report._repr_html_()):
        found = Tags(page)
        assert not set(found.tags) & {"script", "img", "iframe", "object", "base", "form"}
        assert not {name for name in found.attributes if name.startswith("on") or name == "style"}
        shown = page.replace("\n", "")
        assert all(each.isprintable() for each in shown)
        assert "\\u202e\\x1b[2J\\n\\x00é" in shown
    text = str(report)
    assert all(each.isprintable() for each in text.replace("\n", ""))
    assert "\\x1b[2J" in text


def test_all_forms_say_the_same_and_the_page_names_no_other_resource(tmp_path: Path) -> None:
    partitioned_table(tmp_path)
    report = DeltaTable.for_path(None, tmp_path).inspect()
    page = report.to_html()
    for text in (str(report), page, report._repr_html_()):
        for fact in ("1,080", "120", "10.0 %", "part-0-3.parquet", ".purge()"):
            assert fact in text
    assert not re.search(r"https?:|url\(|@import|src=", page)
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page


def test_a_table_without_deleted_rows_has_no_bars_without_a_length(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path)
    table.create()
    page = DeltaTable.for_path(None, tmp_path).inspect().to_html()
    assert "<svg" not in page
    assert "Nothing to run" in page
    for place in range(3):
        table.commit({"add": table.write_file(f"{place}.parquet", {"id": [1]})})
    page = DeltaTable.for_path(None, tmp_path).inspect().to_html()
    assert "No file is known to have deleted rows." in page
    assert 'id="files"' in page
    assert "data-files" not in page
    drawn = re.findall(r"<h3>(.*?)<span", page)
    assert drawn == ["Data files"]


def test_what_grows_with_the_table_is_not_on_the_page() -> None:
    many = tuple(Moment(at, 0, "WRITE", at, at, at) for at in range(100))
    shares = tuple(Share(f"part-{at}", 1, 10, 1, 10) for at in range(20))
    rest = Share("", 10**6, 10**7, 10**6, 10**7)
    counts = {"version": 99, "files": 10**6 + 20, "rows": 10**7 + 200, "live_rows": 9 * 10**6}
    given: dict[str, Any] = {**counts, "moments": many}
    given |= dict.fromkeys(("most_deleted", "partitions"), Ranking(shares, rest, 10**6))
    report = InspectReport(table="/lake/orders", format="delta", location="/lake/orders", **given)
    page = report.to_html()
    assert len(page) < 100_000
    assert "all 1,000,000 other files" in page
    assert "all 1,000,000 other partitions" in page
