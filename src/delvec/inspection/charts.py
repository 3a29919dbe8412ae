"""Charts of the page: bars inside tables, and columns over time; plain SVG, no script.

Every name comes from a table and may hold anything: `shown` makes it visible and escapes it. Widths
and heights are attributes of SVG and no styles, so that the page's policy can forbid these.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from delvec.inspection.moments import moment
from delvec.report.figures import counted, percent, shortened, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from delvec.inspection.figures import Moment, Ranking, Share

__all__ = ["Series", "bar", "bar_table", "columns", "ranking_table", "shown", "table"]

_NAME: Final = 46
_FEW: Final = 8  # columns of a chart with fewer are narrow
_NUMBER: Final = ' class="number"'
_LEAST: Final = 0.6  # percent of a bar's width: what is there is seen


@dataclass(frozen=True)
class Series:
    """One number over time.

    Attributes:
        title: What it is.
        style: `dead` or `live`.
        value: Returns the number of a moment; None if it is not known.
    """

    title: str
    style: str
    value: Callable[[Moment], int | None]


def shown(value: object) -> str:
    r"""Return a value as HTML: control characters visible, everything escaped.

    >>> print(shown('<b>\u202e"'))
    &lt;b&gt;\u202e&quot;
    """
    return escape(visible(value), quote=True)


def name(value: str, noun: str) -> str:
    """Return a name, without its middle if it is long; the whole is its title.

    A file is shown without its folder, which repeats the partition.
    """
    last = value.rpartition("/")[2] if noun == "file" else value
    short = shortened(visible(last), _NAME)
    return f'<bdi title="{shown(value)}">{escape(short, quote=True)}</bdi>'


def bar(part: float, whole: float, style: str = "dead") -> str:
    """Return a bar whose filled share is that of a part in the whole."""
    share = 100 * min(max(part / whole, 0.0), 1.0) if whole else 0.0
    width = max(share, _LEAST) if part else 0.0
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"/>'
        f'<rect class="{style}" width="{width:.2f}" height="10"/></svg>'
    )


def bar_table(
    heads: tuple[str, str, str], rows: Iterable[tuple[str, str, str, str]], attribute: str = ""
) -> str:
    """Return a table whose second column is a bar.

    Args:
        heads: The titles; that of the bars is for screen readers as well.
        rows: Attributes of the row, then what is in its columns: HTML.
        attribute: Attributes of the table.
    """
    body = "".join(
        f'<tr{more}><th scope="row">{first}</th><td>{drawn}</td><td class="number">{last}</td></tr>'
        for more, first, drawn, last in rows
    )
    first, second, third = heads
    return (
        f'<table class="bars"{attribute}><thead><tr><th scope="col">{first}</th>'
        f'<th scope="col">{second}</th><th scope="col" class="number">{third}</th></tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def ranking_table(ranking: Ranking, noun: str, most: int | None = None) -> str:
    """Return the files or partitions with the most deleted rows as bars; the rest is one bar."""
    rows = [_share_row(each, name(each.name, noun)) for each in ranking.shown[:most]]
    if most is None and ranking.rest is not None:
        label = f"all {counted(ranking.others, f'other {noun}')}"
        rows.append(_share_row(ranking.rest, label, "is-rest"))
    return bar_table((noun, "deleted share", "deleted"), rows)


def _share_row(share: Share, label: str, style: str = "") -> tuple[str, str, str, str]:
    kind = f' class="{style}"' if style else ""
    if share.rows is None:
        last = f"{share.deleted:,}<small>of a number that is not known</small>"
    else:
        part = percent(share.deleted, share.rows)
        last = f"{part}<small>{share.deleted:,} of {share.rows:,}</small>"
    return f'{kind} data-files="{share.files}"', label, bar(share.ratio, 1), last


def columns(series: Series, moments: Sequence[Moment], noun: str) -> str:
    """Return a number over versions or snapshots, one column for each."""
    values = [series.value(each) or 0 for each in moments]
    most = max(values, default=0)
    width = 0.8 if len(values) >= _FEW else 0.3
    drawn = "".join(
        f'<rect class="{series.style}" x="{place + (1 - width) / 2:.2f}" width="{width}"'
        f"{_height(value, most)}><title>{shown(_title(each, noun, value))}</title></rect>"
        for place, (value, each) in enumerate(zip(values, moments, strict=True))
    )
    ends = [moments[0], moments[-1]] if len(moments) > 1 else list(moments)
    axis = "".join(f"<span>{_place(each, noun)}</span>" for each in ends)
    label = f"{series.title}: {values[0]:,} at first, {values[-1]:,} at last, {most:,} at most"
    return (
        f'<div class="plot"><h3>{shown(series.title)}<span>at most {most:,}</span></h3>'
        f'<svg class="columns" viewBox="0 0 {len(values)} 100" preserveAspectRatio="none"'
        f' role="img" aria-label="{shown(label)}">{drawn}</svg><div class="axis">{axis}</div></div>'
    )


def _height(value: int, most: int) -> str:
    height = max(100 * value / most, 1.5) if value else 0.0
    return f' y="{100 - height:.2f}" height="{height:.2f}"'


def _title(each: Moment, noun: str, value: int) -> str:
    return f"{noun} {each.at}, {each.operation}, {moment(each.time_ms)}: {value:,}"


def _place(each: Moment, noun: str) -> str:
    day = moment(each.time_ms)[:10]
    return f"{noun} {each.at:,}<br>{day}" if noun == "version" else day


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of names and numbers; numbers are right-aligned."""
    body = list(rows)
    is_number = [all(isinstance(row[at], int | None) for row in body) for at in range(len(heads))]
    top = "".join(
        f'<th scope="col"{_NUMBER if number else ""}>{shown(head)}</th>'
        for head, number in zip(heads, is_number, strict=True)
    )
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in body)
    inner = f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody>"
    return f'<div class="scroll"><table>{inner}</table></div>'


def _cell(value: object) -> str:
    if isinstance(value, int | None):
        return f"<td{_NUMBER}>{'unknown' if value is None else f'{value:,}'}</td>"
    return f"<td>{shown(value)}</td>"
