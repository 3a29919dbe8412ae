"""The report of an inspection as one HTML page: no script, no request, everything escaped.

The page's own policy forbids whatever a browser would load, and any style but its own. It is as
large as what it shows: 20 files, 20 partitions and the commits that were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec._version import __version__
from delvec.inspection.charts import bar, ranking_table, shown
from delvec.inspection.facts import headline, place
from delvec.inspection.moments import elapsed, moment
from delvec.inspection.sections import sections
from delvec.inspection.styles import style, style_hash
from delvec.report.figures import counted, percent, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.inspection.report import InspectReport

__all__ = ["fragment", "page"]

_IN_NOTEBOOKS: Final = 5  # files with bars
_LONG: Final = {"is-long": 9, "is-longer": 14}  # characters of a number that fit a card


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
    if any(each.deleted for each in report.most_deleted.shown):
        files = ranking_table(report.most_deleted, "file", _IN_NOTEBOOKS)
        parts.append(f"<section>{files}</section>")
    inner = "".join(parts)
    return (
        f'<style>{style()}</style><div class="delvec-report"><div class="inner">{inner}</div></div>'
    )


def _parts(report: InspectReport) -> Iterator[str]:
    yield from _overview(report)
    yield from sections(report)
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
    if report.positions.files:
        what = counted(report.positions.files, "position delete file")
        yield "Positions", f"{report.positions.positions:,}", f"in {what}", "is-dead"
    if not is_delta:
        waiting = report.equality
        what = counted(waiting.files + waiting.vectors, "equality delete")
        yield "Keys that wait", f"{waiting.keys:,}", what, "is-dead" if waiting.keys else ""
    yield "Data files", f"{report.files:,}", size(report.bytes), ""
    rewrite = freed.rewrite
    if rewrite.files:
        more = "once vacuumed" if is_delta else "once expired"
        label = "A purge frees" if is_delta else "A rewrite frees"
        yield label, size(rewrite.freed), f"about, {more}", ""
    if freed.vacuum is not None:
        label = "A vacuum frees" if is_delta else "Old snapshots keep"
        files = counted(freed.vacuum_files, "file")
        yield label, size(freed.vacuum), f"now, in {files}" if is_delta else f"in {files}", ""


def _card(label: str, number: str, more: str, style: str) -> str:
    kinds = [style] + [name for name, length in _LONG.items() if len(number) > length]
    return (
        f'<div class="card {" ".join(kinds)}"><span class="label">{shown(label)}</span>'
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
