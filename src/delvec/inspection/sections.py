"""The sections of the page: bars of files and partitions, sizes, ages, the past, facts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.inspection.charts import (
    Series,
    bar,
    bar_table,
    columns,
    ranking_table,
    shown,
    table,
)
from delvec.inspection.facts import facts
from delvec.inspection.moments import moment
from delvec.report.figures import counted, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.inspection.report import InspectReport

__all__ = ["sections"]


def sections(report: InspectReport) -> Iterator[str]:
    """Yield the sections of the page, from the files to the facts in words."""
    yield from _files(report)
    yield from _partitions(report)
    pair = [*_sizes(report), *_ages(report), *_equality(report)]
    if pair:
        yield f'<div class="pair">{"".join(pair)}</div>'
    yield from _history(report)
    yield from _facts(report)


def _section(key: str, title: str, about: str, inner: str) -> str:
    return f'<section id="{key}"><h2>{title}</h2><p class="sub">{about}</p>{inner}</section>'


def _has_deleted(report: InspectReport) -> bool:
    """Return whether there is a bar with a length."""
    return any(each.deleted for each in report.most_deleted.shown)


def _files(report: InspectReport) -> Iterator[str]:
    if not report.files:
        return
    if not _has_deleted(report):
        yield _section(
            "files", "Deleted share by file", "No file is known to have deleted rows.", ""
        )
        return
    about = "Those with the most deleted rows first."
    if report.most_deleted.others:
        about += " The last bar is all others together."
    drawn = ranking_table(report.most_deleted, "file")
    yield _section("files", "Deleted share by file", about, drawn)


def _partitions(report: InspectReport) -> Iterator[str]:
    if report.partitions.shown and _has_deleted(report):
        about = "Partitioned by " + shown(", ".join(report.partition_by)) + "."
        drawn = ranking_table(report.partitions, "partition")
        yield _section("partitions", "Deleted share by partition", about, drawn)


def _sizes(report: InspectReport) -> Iterator[str]:
    if not report.sizes:
        return
    most = max(each.files for each in report.sizes)
    rows = [
        (
            "",
            shown(each.label),
            bar(each.files, most, "live"),
            f"{each.files:,}<small>{size(each.bytes)}</small>",
        )
        for each in report.sizes
    ]
    about = f"{counted(report.files, 'data file')}, {size(report.bytes)} in all."
    drawn = bar_table(("size", "share of files", "files"), rows)
    yield _section("sizes", "File sizes", about, drawn)


def _ages(report: InspectReport) -> Iterator[str]:
    if not report.vectors.ages:
        return
    rows = [
        (
            "",
            shown(each.label),
            bar(each.vectors, report.vectors.count),
            f"{each.vectors:,}",
        )
        for each in report.vectors.ages
    ]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.vectors.kinds.items())
    held = counted(report.vectors.stored_in, "file")
    about = f"By kind: {shown(kinds)}; {size(report.vectors.bytes)} in {held}."
    drawn = bar_table(("age", "share of vectors", "vectors"), rows)
    yield _section("ages", "Age of deletion vectors", about, drawn)


def _equality(report: InspectReport) -> Iterator[str]:
    text = facts(report).get("equality")
    if report.format == "iceberg" and text and report.equality.keys:
        yield _section("equality", "Equality deletes", "Until they are resolved.", _said(text))


def _said(text: str) -> str:
    return f"<p>{shown(text)}.</p>"


def _history(report: InspectReport) -> Iterator[str]:
    moments = report.moments
    if not moments:
        return
    is_delta = report.format == "delta"
    noun = "version" if is_delta else "snapshot"
    series = [
        Series(
            "Deletion vectors" if is_delta else "Delete files", "live", lambda each: each.vectors
        ),
        Series("Deleted rows", "dead", lambda each: each.deleted),
        Series("Keys of equality deletes", "dead", lambda each: each.keys),
        Series("Data files", "live", lambda each: each.files),
    ]
    # What is 0 at all times says nothing, nor does a single moment.
    series = [one for one in series if any(one.value(each) for each in moments)]
    drawn = "".join(columns(each, moments, noun) for each in series) if len(moments) > 1 else ""
    heads = [noun, "committed", "operation", *(each.title.lower() for each in series)]
    rows = [
        [
            str(each.at),
            moment(each.time_ms),
            each.operation,
            *(one.value(each) for one in series),
        ]
        for each in reversed(moments)
    ]
    numbers = f"<details><summary>The numbers</summary>{table(heads, rows)}</details>"
    about = f"The newest {counted(len(moments), noun)}."
    inner = f'<div class="plots">{drawn}</div>{numbers}' if drawn else numbers
    yield _section("history", f"Over {noun}s", about, inner)


def _facts(report: InspectReport) -> Iterator[str]:
    rows = [(name, text) for name, text in facts(report).items() if text]
    yield _section("facts", "In words", "The same as the text of the report.", _pairs(rows))


def _pairs(rows: list[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><th scope="row">{shown(name)}</th><td>{shown(text)}</td></tr>' for name, text in rows
    )
    return f'<table class="words"><tbody>{body}</tbody></table>'
