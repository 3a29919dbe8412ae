"""Standard output and error as consoles of rich, and how tables and lines fit their width.

Names are shortened in the middle, texts are folded, and columns are omitted in the order that they
say; numbers, sizes and times stay whole. Where even that does not fit, each row becomes a block of
lines.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from os.path import commonprefix
from textwrap import wrap
from typing import Any, Final, NoReturn

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Lines
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from delvec.report.format import UNIT_GAP, escape_controls, shortened
from delvec.report.hints import in_command

UNLIMITED: Final = 10_000
"""The width of a pipe, where lines are not wrapped, and the most characters of any cell."""
_GAP: Final = 3  # between two columns, with the padding of both
_EDGES: Final = 2
_LEAST_NAME: Final = 18
_LEAST_TEXT: Final = 12
_HELD: Final = "\ue000"  # a blank, while lines are made; `escape_controls` lets none through
# Where the text of a line begins: after the name of a figure, else four further than the line.
_START: Final = re.compile(r" +\S+(?: \S+)* {2,}")


class ClosedPipeError(Exception):
    """Nobody reads standard output any more, as after `| head`."""


@contextmanager
def printing() -> Iterator[None]:
    """Tell a closed pipe from other pipes that break, such as that to a JVM."""
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError from error


def opened_console(*, stderr: bool = False) -> Console:
    """Return a console; in a pipe it is as wide as any line."""
    stream = sys.stderr if stderr else sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # characters that a terminal lacks are replaced
    console = _Console(highlight=False, emoji=False, markup=False, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNLIMITED + 100
    return console


def unpadded(console: Console, picture: RenderableType) -> str:
    """Return what a console would print, without the blanks at the ends of lines."""
    with console.capture() as shown:
        console.print(picture)
    return "\n".join(line.rstrip(" ") for line in shown.get().split("\n"))


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in the rows, its title, and how it adapts to a narrow terminal.

    A name is shortened in the middle, to so many characters at most; in a pipe it has no limit. The
    column with the greatest number is omitted first, and one with 0 never.
    """

    key: str
    title: str
    style: str = ""
    is_unbroken: bool = False  # cells stay whole; those of numbers always do
    is_right: bool = False  # cells end below each other; those of numbers always do
    name_width: int | None = None
    omitted: int = 0


class Sentence(Text):
    """A text whose figures stay whole where it is folded: `9.5 %`."""

    def wrap(self, console: Console, width: int, *more: Any, **how: Any) -> Lines:  # noqa: ANN401
        held = self.copy()
        held.plain = UNIT_GAP.sub(_HELD, held.plain)
        lines = held.wrap(console, width, *more, **how)
        for line in lines:
            line.plain = line.plain.replace(_HELD, " ")
        return lines


def is_numeric(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
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
    return shortened(escape_controls(shortened(str(value), UNLIMITED)), width or UNLIMITED)


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


class ShortName:
    """A cell with a name, which is shortened in the middle to the width that it gets."""

    def __init__(self, name: str, limit: int, short: Callable[[int], dict[str, str]]) -> None:
        self._name, self._limit, self._short = name, limit, short

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        wanted = min(cell_len(self._name), self._limit)
        return Measurement(min(wanted, _LEAST_NAME), wanted)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._short(min(self._limit, options.max_width))[self._name])


def fitted(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int
) -> list[Column] | None:
    """Return the columns that fit a width; None if those do not that are never omitted."""
    least = {column.key: _least(column, rows) + _GAP for column in columns}
    shown = list(columns)
    while sum(least[column.key] for column in shown) - _GAP + _EDGES > width:
        last = max(shown, key=lambda column: column.omitted)
        if not last.omitted:
            return None
        shown.remove(last)
    return shown


def tabulated(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Return rows as a table of rich, which divides the width among the columns."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    cells: list[list[RenderableType]] = []
    for column in columns:
        numeric = is_numeric(column, rows)
        table.add_column(
            column.title,
            style=column.style,
            justify="right" if column.is_right or numeric else "left",
            no_wrap=column.is_unbroken or numeric,
            overflow="fold",
        )
        texts = [cell(row.get(column.key)) for row in rows]
        if column.name_width is None or width >= UNLIMITED:
            cells.append([Text(each) for each in texts])
        else:
            short = cache(partial(apart, texts))  # by width, once for all cells
            cells.append([ShortName(each, column.name_width, short) for each in texts])
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    return table


def blocks(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows as blocks of lines, title and value, with an empty line between two rows."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for number, row in enumerate(rows):
        if number:
            table.add_row("", "")
        for column in columns:
            if row.get(column.key) not in (None, ""):
                table.add_row(column.title, Text(cell(row[column.key]), column.style))
    return table


def folded(lines: Iterable[tuple[str, str]], width: int) -> Text:
    """Return lines of a report, with commands in place of calls; long ones hang below their text.

    >>> print(folded([("  searched  3 files and 17 files of the log", "")], 28))
      searched  3 files and 17
                files of the log
    """
    found = [Text(_hanging(in_command(text), width), style) for text, style in lines]
    return Text("\n").join(found)


class _Console(Console):
    """A console that prints no control character, and that a closed pipe does not end."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the parts of a picture; rich drops only some control characters of a text."""
        for part in super().render(renderable, options):
            if part.control or part.text == "\n" or part.text.isprintable():
                yield part
            else:
                text = "\n".join(map(escape_controls, part.text.split("\n")))
                yield Segment(text, part.style)

    def on_broken_pipe(self) -> NoReturn:
        """Raise; rich calls this while it handles a BrokenPipeError."""
        raise ClosedPipeError


def _least(column: Column, rows: Sequence[Mapping[str, Any]]) -> int:
    cells = [cell_len(cell(row.get(column.key), column.name_width)) for row in rows]
    title = cell_len(column.title)
    wanted = max([title, *cells])
    if column.is_unbroken or is_numeric(column, rows):
        return wanted
    least = _LEAST_TEXT if column.name_width is None else _LEAST_NAME
    return min(wanted, max(least, title))


def _hanging(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    start = _START.match(line)
    hang = len(line) - len(line.lstrip()) + 4
    if start and start.end() <= width // 2:
        hang = start.end()
    indent = " " * hang
    # A path longer than a line stays whole, to be copied.
    folded = wrap(
        line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(folded)
