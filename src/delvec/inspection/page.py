"""The report of an inspection as one HTML page: no script, no request, everything escaped.

The page's own policy forbids whatever a browser would load, and any style but its own. It is as
large as what it shows: 20 files, 20 partitions and the commits that were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec._version import __version__
from delvec.inspection.charts import (
    Series,
    bar,
    bar_table,
    columns,
    ranking_table,
    shown,
    table,
)
from delvec.inspection.facts import facts, headline, place
from delvec.inspection.moments import elapsed, moment
from delvec.inspection.styles import style, style_hash
from delvec.report.figures import counted, percent, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.inspection.report import InspectReport

__all__ = ["fragment", "page"]

_IN_NOTEBOOKS: Final = 5  # files with bars


def page(report: InspectReport) -> str:
    """Return the whole page."""
    title = shown(headline(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{style()}</style>\n'
        f'</head>\n<body class="delvec-report">\n<main>\n{"".join(_parts(report))}</main>\n'
        "</body>\n</html>\n"
    )


def _policy() -> str:
    """Return a policy that allows no request, and no style but that of the page."""
    own = f"style-src '{style_hash()}'; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def fragment(report: InspectReport) -> str:
    """Return what a notebook shows: the figures, what to run next, and the first files."""
    parts = [*_overview(report)]
    if report.vectors.rows:
        files = ranking_table(report.most_deleted, "file", _IN_NOTEBOOKS)
        parts.append(f"<section>{files}</section>")
    inner = "".join(parts)
    return (
        f'<style>{style()}</style><div class="delvec-report"><div class="inner">{inner}</div></div>'
    )


def _parts(report: InspectReport) -> Iterator[str]:
    yield from _overview(report)
    yield from _files(report)
    yield from _pair([*_partitions(report), *_equality(report)], [*_sizes(report), *_ages(report)])
    yield from _history(report)
    yield from _facts(report)
    yield from (f'<p class="note">{shown(note)}</p>' for note in report.notes)
    yield (
        f"<footer>Inspected {moment(report.inspected_ms)} by delvec {shown(__version__)}. Bytes"
        " that a rewrite frees are estimated by the share of deleted rows.</footer>"
    )


def _overview(report: InspectReport) -> Iterator[str]:
    kind = "Delta table" if report.format == "delta" else "Iceberg table"
    when = ""
    if report.committed_ms is not None:
        age = elapsed(report.committed_ms, report.inspected_ms)
        when = f", committed {moment(report.committed_ms)} ({age} ago)"
    where = "" if report.location == report.table else f"<br><bdi>{shown(report.location)}</bdi>"
    yield (
        f'<header><p class="kicker">{kind}</p><h1><bdi>{shown(report.table)}</bdi></h1>'
        f'<p class="where">{shown(place(report))}{when}{where}</p></header>'
    )
    yield from _whole(report)
    cards = "".join(_card(*each) for each in _cards(report))
    yield f'<div class="cards">{cards}</div>'
    yield from _next(report)


def _whole(report: InspectReport) -> Iterator[str]:
    """Yield one bar of all rows."""
    if not report.rows:
        return
    deleted = report.vectors.rows
    drawn = bar(deleted, report.rows).replace('class="track"', 'class="live"')
    live = percent(report.rows - deleted, report.rows)
    word = "live" if report.live_rows is not None else "not deleted by vectors"
    yield (
        f'<div class="whole">{drawn}<div class="legend"><span class="is-dead">'
        f"{percent(deleted, report.rows)} deleted</span><span>{live} {word}</span></div></div>"
    )


def _cards(report: InspectReport) -> Iterator[tuple[str, str, str, str]]:
    """Yield label, number, what belongs to it, and style."""
    is_delta, vectors, freed = report.format == "delta", report.vectors, report.freed
    rows = report.live_rows
    yield (
        ("Live rows", f"{rows:,}", f"of {report.rows:,} in files", "")
        if rows is not None
        else ("Live rows", "unknown", "only reading tells", "")
    )
    style = "is-dead" if vectors.rows else ""
    part = "" if report.rows is None else f"{percent(vectors.rows, report.rows)} of all"
    yield "Deleted rows", f"{vectors.rows:,}", part, style
    yield "Deletion vectors", f"{vectors.count:,}", size(vectors.bytes), ""
    if not is_delta:
        waiting = report.equality
        what = counted(waiting.files + waiting.vectors, "equality delete")
        yield "Keys that wait", f"{waiting.keys:,}", what, "is-dead" if waiting.keys else ""
    yield "Data files", f"{report.files:,}", size(report.bytes), ""
    yield ("A purge frees" if is_delta else "A rewrite frees"), size(freed.purge), "estimated", ""
    if freed.vacuum is not None:
        label = "A vacuum frees" if is_delta else "Old snapshots keep"
        yield label, size(freed.vacuum), counted(freed.vacuum_files, "file"), ""


def _card(label: str, number: str, more: str, style: str) -> str:
    return (
        f'<div class="card {style}"><span class="label">{shown(label)}</span>'
        f'<b>{shown(number)}</b><span class="sub">{shown(more)}</span></div>'
    )


def _next(report: InspectReport) -> Iterator[str]:
    if not report.is_newest:
        return
    if not report.advice:
        yield '<div class="next"><h2>Nothing to run</h2><p>No limit is passed.</p></div>'
        return
    items = "".join(
        f"<li><strong>{shown(each.action)}</strong>: {shown(each.why)}"
        f"<code>{shown(each.command or each.call)}</code></li>"
        for each in report.advice
    )
    yield f'<div class="next"><h2>What to run next</h2><ol>{items}</ol></div>'


def _pair(left: list[str], right: list[str]) -> Iterator[str]:
    """Yield sections in two columns; those of an empty one are shared out."""
    if not left:
        left, right = right[:1], right[1:]
    yield f'<div class="pair"><div>{"".join(left)}</div><div>{"".join(right)}</div></div>'


def _section(key: str, title: str, about: str, inner: str) -> str:
    return f'<section id="{key}"><h2>{title}</h2><p class="sub">{about}</p>{inner}</section>'


def _files(report: InspectReport) -> Iterator[str]:
    if report.files:
        about = "Those with the most deleted rows first."
        if report.most_deleted.others:
            about += " The last bar is all others together."
        yield _section(
            "files", "Deleted share by file", about, ranking_table(report.most_deleted, "file")
        )


def _partitions(report: InspectReport) -> Iterator[str]:
    if report.partitions.shown:
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
    ]
    if not is_delta:
        series.append(Series("Keys of equality deletes", "dead", lambda each: each.keys))
        series.append(Series("Data files", "live", lambda each: each.files))
    drawn = "".join(columns(each, moments, noun) for each in series)
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
    inner = f'<div class="plots">{drawn}</div>{numbers}'
    yield _section("history", f"Over {noun}s", about, inner)


def _facts(report: InspectReport) -> Iterator[str]:
    rows = [(name, text) for name, text in facts(report).items() if text]
    yield _section("facts", "In words", "The same as the text of the report.", _pairs(rows))


def _pairs(rows: list[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><th scope="row">{shown(name)}</th><td>{shown(text)}</td></tr>' for name, text in rows
    )
    return f'<table class="words"><tbody>{body}</tbody></table>'
