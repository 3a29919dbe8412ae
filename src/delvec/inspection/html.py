"""The report of an inspection as one HTML page with charts: no script, no request.

Every name comes from a table and may hold anything: `shown` makes it visible and escapes it. The
page's own policy forbids whatever a browser would load, and any style but its own: widths and
heights are attributes of SVG. It is as large as what it shows: 20 files, 20 partitions and the
commits that were read.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from delvec._version import __version__
from delvec.inspection.facts import facts, headline, place
from delvec.inspection.figures import Moment, Ranking, Share, elapsed, moment
from delvec.report.format import escape_controls, format_count, format_size, percent, shortened

if TYPE_CHECKING:
    from delvec.inspection.report import InspectReport

_IN_NOTEBOOKS: Final = 5  # files with bars
_LONG: Final = {"is-long": 9, "is-longer": 14}  # characters of a number that fit a card
_NAME: Final = 46
_FEW: Final = 8  # columns of a chart with fewer are narrow
_LEAST: Final = 0.6  # percent of a bar's width: what is there is seen


def page(report: InspectReport) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{shown(headline(report))}</title>\n<style>{_style()}</style>\n"
        f'</head>\n<body class="delvec-report">\n<main>\n{"".join(_parts(report))}</main>\n'
        "</body>\n</html>\n"
    )


def fragment(report: InspectReport) -> str:
    """Return what a notebook shows: the figures, what to run next, and the first files."""
    inner = "".join(_overview(report))
    if report.most_deleted.has_deleted:
        first = _ranking(Ranking(report.most_deleted.shown[:_IN_NOTEBOOKS]), "file")
        inner += f"<section>{first}</section>"
    content = f'<div class="delvec-report"><div class="inner">{inner}</div></div>'
    return f"<style>{_style()}</style>{content}"


def shown(value: object) -> str:
    r"""Return a value as HTML: control characters visible, everything escaped.

    >>> print(shown('<b>\u202e"'))
    &lt;b&gt;\u202e&quot;
    """
    return escape(escape_controls(value), quote=True)


@cache
def _style() -> str:
    """Return the style sheet; from a zip archive as well."""
    return files("delvec.inspection").joinpath("page.css").read_text(encoding="utf-8")


def _policy() -> str:
    """Return a policy that allows no request, and no style but that of the page, by its hash."""
    own = b64encode(sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{own}'; img-src data:; base-uri 'none';"
        " form-action 'none'"
    )


def _parts(report: InspectReport) -> Iterator[str]:
    yield from _overview(report)
    yield from _rankings(report)
    pair = "".join((*_sizes(report), *_ages(report)))
    if pair:
        yield f'<div class="pair">{pair}</div>'
    yield from _history(report)
    words = "".join(
        f'<tr><th scope="row">{shown(name)}</th><td>{shown(text)}</td></tr>'
        for name, text in facts(report).items()
        if text
    )
    table = f'<table class="words"><tbody>{words}</tbody></table>'
    yield _section("facts", "In words", "The same as the text of the report.", table)
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
    if report.is_newest:
        yield f'<div class="next">{_next(report)}</div>'


def _whole(report: InspectReport) -> Iterator[str]:
    if not report.rows:
        return
    deleted = report.vectors.rows
    drawn = _bar(deleted, report.rows).replace('class="track"', 'class="live"')
    live = percent(report.rows - deleted, report.rows)
    word = "live" if report.live_rows is not None else "not deleted by vectors"
    yield (
        f'<div class="whole">{drawn}<div class="legend"><span class="is-dead">'
        f"{percent(deleted, report.rows)} deleted</span><span>{live} {word}</span></div></div>"
    )


def _cards(report: InspectReport) -> Iterator[tuple[str, str, str, bool]]:
    """Yield label, number, what belongs to it, and whether it is about deleted rows."""
    is_delta, vectors, freed = report.format == "delta", report.vectors, report.freed
    if report.live_rows is None:
        yield "Live rows", "unknown", "only reading tells", False
    else:
        yield "Live rows", f"{report.live_rows:,}", f"of {report.rows:,} in files", False
    share = "" if report.rows is None else f"{percent(vectors.rows, report.rows)} of all"
    yield "Deleted rows", f"{vectors.rows:,}", share, vectors.rows > 0
    yield "Deletion vectors", f"{vectors.count:,}", format_size(vectors.bytes), False
    if report.positions.files:
        what = format_count(report.positions.files, "position delete file")
        yield "Positions", f"{report.positions.positions:,}", f"in {what}", True
    if not is_delta:
        waiting = report.equality
        what = format_count(waiting.files + waiting.vectors, "equality delete")
        yield "Keys that wait", f"{waiting.keys:,}", what, waiting.keys > 0
    yield "Data files", f"{report.files:,}", format_size(report.bytes), False
    if freed.rewrite.files:
        label = "A purge frees" if is_delta else "A rewrite frees"
        more = "about, once vacuumed" if is_delta else "about, once expired"
        yield label, format_size(freed.rewrite.freed), more, False
    if freed.vacuum is not None:
        label = "A vacuum frees" if is_delta else "Old snapshots keep"
        more = f"in {format_count(freed.vacuum_files, 'file')}"
        yield label, format_size(freed.vacuum), f"now, {more}" if is_delta else more, False


def _card(label: str, number: str, more: str, is_dead: bool) -> str:  # noqa: FBT001
    long = (name for name, most in _LONG.items() if len(number) > most)
    style = " ".join(["is-dead" if is_dead else "", *long])
    return (
        f'<div class="card {style}"><span class="label">{shown(label)}</span>'
        f'<b>{shown(number)}</b><span class="sub">{shown(more)}</span></div>'
    )


def _next(report: InspectReport) -> str:
    if not report.advice:
        return "<h2>Nothing to run</h2><p>No limit is passed.</p>"
    items = "".join(
        f"<li><strong>{shown(each.action)}</strong>: {shown(each.why)}"
        f"<code>{shown(each.command or each.call)}</code></li>"
        for each in report.advice
    )
    return f"<h2>What to run next</h2><ol>{items}</ol>"


def _section(key: str, title: str, about: str, inner: str = "") -> str:
    return f'<section id="{key}"><h2>{title}</h2><p class="sub">{about}</p>{inner}</section>'


def _rankings(report: InspectReport) -> Iterator[str]:
    ranking, title = report.most_deleted, "Deleted share by file"
    if not ranking.has_deleted:
        if report.files:
            yield _section("files", title, "No file is known to have deleted rows.")
        return
    if report.files:
        others = " The last bar is all others together." if ranking.others else ""
        about = f"Those with the most deleted rows first.{others}"
        yield _section("files", title, about, _ranking(ranking, "file"))
    if report.partitions.shown:
        about = f"Partitioned by {shown(', '.join(report.partition_by))}."
        drawn = _ranking(report.partitions, "partition")
        yield _section("partitions", "Deleted share by partition", about, drawn)


def _sizes(report: InspectReport) -> Iterator[str]:
    if not report.sizes:
        return
    most = max(each.files for each in report.sizes)
    rows = (
        _row(
            shown(each.label),
            _bar(each.files, most, "live"),
            f"{each.files:,}<small>{format_size(each.bytes)}</small>",
        )
        for each in report.sizes
    )
    about = f"{format_count(report.files, 'data file')}, {format_size(report.bytes)} in all."
    drawn = _bar_table("size", "share of files", "files", rows)
    yield _section("sizes", "File sizes", about, drawn)


def _ages(report: InspectReport) -> Iterator[str]:
    vectors = report.vectors
    if not vectors.ages:
        return
    rows = (
        _row(shown(each.label), _bar(each.vectors, vectors.count), f"{each.vectors:,}")
        for each in vectors.ages
    )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in vectors.kinds.items())
    held = f"{format_size(vectors.bytes)} in {format_count(vectors.stored_in, 'file')}"
    drawn = _bar_table("age", "share of vectors", "vectors", rows)
    yield _section("ages", "Age of deletion vectors", f"By kind: {shown(kinds)}; {held}.", drawn)


def _history(report: InspectReport) -> Iterator[str]:
    moments, is_delta = report.moments, report.format == "delta"
    if not moments:
        return
    noun = "version" if is_delta else "snapshot"
    series = (
        ("Deletion vectors" if is_delta else "Delete files", "live", "vectors"),
        ("Deleted rows", "dead", "deleted"),
        ("Keys of equality deletes", "dead", "keys"),
        ("Data files", "live", "files"),
    )
    # What is 0 at all times says nothing, nor does a single moment.
    found = [
        (title, style, values)
        for title, style, name in series
        if any(values := [getattr(each, name) for each in moments])
    ]
    drawn = ""
    if len(moments) > 1:
        plots = "".join(_columns(*each, moments, noun) for each in found)
        drawn = f'<div class="plots">{plots}</div>' if plots else ""
    heads = "".join(f'<th scope="col">{head}</th>' for head in (noun, "committed", "operation"))
    heads += "".join(f'<th scope="col" class="number">{each[0].lower()}</th>' for each in found)
    rows = [
        "".join(map(_cell, (str(each.at), moment(each.time_ms), each.operation, *numbers)))
        for each, *numbers in zip(moments, *(values for *_, values in found), strict=True)
    ]
    body = "".join(f"<tr>{row}</tr>" for row in reversed(rows))
    drawn += (
        '<details><summary>The numbers</summary><div class="scroll"><table><thead>'
        f"<tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )
    about = f"The newest {format_count(len(moments), noun)}."
    yield _section("history", f"Over {noun}s", about, drawn)


def _cell(value: str | int | None) -> str:
    if isinstance(value, str):
        return f"<td>{shown(value)}</td>"
    return f'<td class="number">{"unknown" if value is None else f"{value:,}"}</td>'


def _columns(
    title: str, style: str, known: Sequence[int | None], moments: Sequence[Moment], noun: str
) -> str:
    """Return a number over versions or snapshots, one column for each."""
    values = [each or 0 for each in known]
    most = max(values)
    width = 0.8 if len(values) >= _FEW else 0.3
    drawn = ""
    for at, (value, each) in enumerate(zip(values, moments, strict=True)):
        height = max(100 * value / most, 1.5) if value else 0.0
        about = f"{noun} {each.at}, {each.operation}, {moment(each.time_ms)}: {value:,}"
        drawn += (
            f'<rect class="{style}" x="{at + (1 - width) / 2:.2f}" width="{width}"'
            f' y="{100 - height:.2f}" height="{height:.2f}"><title>{shown(about)}</title></rect>'
        )
    days = [moment(each.time_ms)[:10] for each in moments]
    if noun == "version":
        days = [f"version {each.at:,}<br>{day}" for each, day in zip(moments, days, strict=True)]
    axis = f"<span>{days[0]}</span><span>{days[-1]}</span>"
    label = f"{title}: {values[0]:,} at first, {values[-1]:,} at last, {most:,} at most"
    return (
        f'<div class="plot"><h3>{shown(title)}<span>at most {most:,}</span></h3>'
        f'<svg class="columns" viewBox="0 0 {len(values)} 100" preserveAspectRatio="none"'
        f' role="img" aria-label="{shown(label)}">{drawn}</svg><div class="axis">{axis}</div></div>'
    )


def _ranking(ranking: Ranking, noun: str) -> str:
    """Return the files or partitions with the most deleted rows as bars; the rest is one bar."""
    rows = [_share(each, _name(each.name, noun)) for each in ranking.shown]
    if ranking.rest is not None:
        label = f"all {format_count(ranking.others, f'other {noun}')}"
        rows.append(_share(ranking.rest, label, ' class="is-rest"'))
    return _bar_table(noun, "deleted share", "deleted", rows)


def _share(share: Share, label: str, style: str = "") -> str:
    if share.rows is None:
        figure = f"{share.deleted:,}<small>of a number that is not known</small>"
    else:
        part = percent(share.deleted, share.rows)
        figure = f"{part}<small>{share.deleted:,} of {share.rows:,}</small>"
    return _row(label, _bar(share.ratio, 1), figure, f'{style} data-files="{share.files}"')


def _name(value: str, noun: str) -> str:
    """Return a name, without its middle if it is long; the whole is its title.

    A file is shown without its folder, which repeats the partition.
    """
    last = value.rpartition("/")[2] if noun == "file" else value
    short = shortened(escape_controls(last), _NAME)
    return f'<bdi title="{shown(value)}">{escape(short, quote=True)}</bdi>'


def _bar(part: float, whole: float, style: str = "dead") -> str:
    """Return a bar whose filled share is that of a part in the whole."""
    share = 100 * min(max(part / whole, 0.0), 1.0) if whole else 0.0
    width = max(share, _LEAST) if part else 0.0
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"/>'
        f'<rect class="{style}" width="{width:.2f}" height="10"/></svg>'
    )


def _row(label: str, drawn: str, figure: str, attributes: str = "") -> str:
    return (
        f'<tr{attributes}><th scope="row">{label}</th><td>{drawn}</td>'
        f'<td class="number">{figure}</td></tr>'
    )


def _bar_table(first: str, second: str, third: str, rows: Iterable[str]) -> str:
    return (
        f'<table class="bars"><thead><tr><th scope="col">{first}</th>'
        f'<th scope="col">{second}</th><th scope="col" class="number">{third}</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
