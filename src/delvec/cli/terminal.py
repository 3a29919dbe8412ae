"""Standard output and error: consoles of rich, pipes that nobody reads, rows as blocks of lines."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from delvec.cli.fitting import UNLIMITED, cell
from delvec.report.figures import visible
from delvec.report.wordings import in_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import ConsoleOptions, RenderableType

    from delvec.cli.fitting import Column

__all__ = ["ClosedPipeError", "blocks", "folded", "opened_console", "printing", "unpadded"]

# Where the text of a line begins: after the name of a figure, else four further than the line.
_START: Final = re.compile(r" +\S+(?: \S+)* {2,}")


class ClosedPipeError(Exception):
    """Nobody reads standard output any more, as after `| head`."""


class _Console(Console):
    """A console that prints no control character of a text.

    It reports a closed pipe, instead of ending the process itself.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the parts of a picture; rich drops only some control characters of a text."""
        for part in super().render(renderable, options):
            if part.control or part.text == "\n" or part.text.isprintable():
                yield part
            else:
                text = "\n".join(map(visible, part.text.split("\n")))
                yield Segment(text, part.style)

    def on_broken_pipe(self) -> NoReturn:
        """Raise; rich calls this while it handles a BrokenPipeError."""
        raise ClosedPipeError


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


def folded(lines: Iterable[tuple[str, str]], width: int) -> Text:
    """Return lines of a report, with commands in place of calls; long ones hang below their text.

    >>> print(folded([("  searched  3 files and 17 files of the log", "")], 28))
      searched  3 files and 17
                files of the log
    """
    found = [Text(_hanging(in_command(text), width), style) for text, style in lines]
    return Text("\n").join(found)


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
