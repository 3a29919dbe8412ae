from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from delvec.report.rendered import Summary, document
from delvec.storage import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_all_parts_of_a_summary_have_their_lines_and_styles() -> None:
    summary = Summary(
        "plan of t",
        {"add": "3", "keep": "", "remove": "12"},
        {"stage": 1.0, "publish": 0.5},
        details=("2 vectors",),
        notes=("a\x1bb",),
    )
    assert list(summary.lines()) == [
        ("plan of t", "bold"),
        ("  add      3", ""),
        ("  remove   12", ""),
        ("  stage       1.00 s", "dim"),
        ("  publish     0.50 s", "dim"),
        ("  2 vectors", "dim"),
        (r"Note: a\x1bb", "yellow"),
    ]


def test_a_summary_may_be_its_headline_alone() -> None:
    assert list(Summary("done").lines()) == [("done", "bold")]


def test_a_document_holds_plain_data() -> None:
    @dataclass(frozen=True)
    class Report:
        table: str
        requests: RequestCounts
        phases: Mapping[str, float] = field(default_factory=dict)
        notes: tuple[str, ...] = ()

    found = document(Report("t", RequestCounts(gets=1), MappingProxyType({"plan": 1.0}), ("x",)))
    assert found["requests"]["gets"] == 1
    assert (found["table"], found["phases"], found["notes"]) == ("t", {"plan": 1.0}, ["x"])
    assert type(found["phases"]) is dict
