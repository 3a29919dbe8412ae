"""How a table fits the width of a terminal.

Names are shortened in the middle, texts are folded, and columns are omitted in the order that they
say; numbers, sizes and times stay whole. Where even that does not fit, each row becomes a block of
lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.text import Text

from delvec.report.figures import UNIT_GAP, shortened, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.containers import Lines

__all__ = [
    "UNLIMITED",
    "Column",
    "Fitted",
    "Sentence",
    "apart",
    "cell",
    "fitted",
    "is_numeric",
    "used_columns",
]

UNLIMITED: Final = 10_000
"""The width of a pipe, where lines are not wrapped, and the most characters of any cell."""

_GAP: Final = 3  # between two columns, with the padding of both
_EDGES: Final = 2
_LEAST_NAME: Final = 18
_LEAST_TEXT: Final = 12
_HELD: Final = "\ue000"  # in place of a blank, while lines are made; `visible` lets none through


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in the rows, its title, and how it adapts to a narrow terminal.

    Attributes:
        key: Its key in the rows.
        title: Its title.
        style: The style of its cells.
        is_unbroken: Whether its cells stay whole; numbers always do.
        name_width: The most characters of a name that is shortened in the middle; names have no
            limit in a pipe. None for everything else.
        omitted: When it is omitted: the column with the greatest number first; 0 is never omitted.
    """

    key: str
    title: str
    style: str = ""
    is_unbroken: bool = False
    name_width: int | None = None
    omitted: int = 0


@dataclass(frozen=True)
class Fitted:
    """The columns that fit, the width of each, and the titles of those that do not."""

    columns: Sequence[Column]
    widths: Sequence[int]
    omitted: Sequence[str]


class Sentence(Text):
    """A text whose figures stay whole where it is folded: `9.5 %`."""

    def wrap(self, console: Console, width: int, *more: Any, **how: Any) -> Lines:  # noqa: ANN401
        """Return the lines."""
        held = self.copy()
        held.plain = UNIT_GAP.sub(_HELD, held.plain)
        lines = held.wrap(console, width, *more, **how)
        for line in lines:
            line.plain = line.plain.replace(_HELD, " ")
        return lines


def used_columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns that have a value in some row."""
    return [c for c in columns if any(row[c.key] not in (None, "") for row in rows)]


def is_numeric(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all values of a column are numbers."""
    return all(isinstance(row.get(column.key), int | float | None) for row in rows)


def cell(value: object, width: int | None = None) -> str:
    """Return a value as a cell: numbers with separators, empty for None, a name shortened.

    >>> cell(1200), cell("part-00000.parquet", 11)
    ('1,200', 'part-…rquet')
    """
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return shortened(visible(shortened(str(value), UNLIMITED)), width or UNLIMITED)


def apart(names: Sequence[str], width: int) -> dict[str, str]:
    """Return names that are short enough, and still differ where they did.

    Where the ends are alike, as those of Spark's files, more of the beginning is kept; where that
    is alike too, what follows it.

    >>> apart(["part-00000-2b.parquet", "part-00000-c8.parquet"], 15).values()
    dict_values(['part-00000-2…et', 'part-00000-c…et'])
    >>> apart(["/lake/orders/2b/part.parquet", "/lake/orders/c8/part.parquet"], 10).values()
    dict_values(['…/2b/part…', '…/c8/part…'])
    """
    known = list(dict.fromkeys(names))
    for tail in range(width // 2, -1, -1):
        found = [shortened(name, width, tail) for name in known]
        if len(set(found)) == len(known):
            return dict(zip(known, found, strict=True))
    start = max(len(commonprefix(known)) - 1, 0)  # noqa: RUF071 - of characters, not of folders
    return {name: f"…{shortened(name[start:], width - 1, 0)}" for name in known}


def fitted(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int
) -> Fitted | None:
    """Return how a table fits a width; None if it does not."""
    if width >= UNLIMITED:
        columns = [replace(column, name_width=None) for column in columns]
    wanted = {column.key: _wanted(column, rows) for column in columns}
    least = {column.key: _least(column, rows, wanted[column.key]) for column in columns}
    shown = list(columns)
    while sum(least[column.key] for column in shown) > _room(shown, width):
        last = max(shown, key=lambda column: column.omitted)
        if not last.omitted:
            return None
        shown.remove(last)
    widths = _shared([(least[c.key], wanted[c.key]) for c in shown], _room(shown, width))
    return Fitted(shown, widths, [c.title for c in columns if c not in shown])


def _room(columns: Sequence[Column], width: int) -> int:
    return width - _EDGES - _GAP * (len(columns) - 1)


def _wanted(column: Column, rows: Sequence[Mapping[str, Any]]) -> int:
    cells = [cell_len(cell(row.get(column.key), column.name_width)) for row in rows]
    return max(cell_len(column.title), *cells) if cells else cell_len(column.title)


def _least(column: Column, rows: Sequence[Mapping[str, Any]], wanted: int) -> int:
    if column.is_unbroken or is_numeric(column, rows):
        return wanted
    least = _LEAST_TEXT if column.name_width is None else _LEAST_NAME
    return min(wanted, max(least, cell_len(column.title)))


def _shared(bounds: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Divide the room: all get their least, and those that want more get equal shares of the rest.

    >>> _shared([(5, 5), (4, 10), (4, 40)], 35)
    [5, 10, 20]
    """
    widths = [least for least, _ in bounds]
    left = room - sum(widths)
    hungry = [place for place, (least, wanted) in enumerate(bounds) if wanted > least]
    while left > 0 and hungry:
        for place in hungry[:left]:
            widths[place] += 1
        left -= len(hungry[:left])
        hungry = [place for place in hungry if widths[place] < bounds[place][1]]
    return widths
