"""How a command speaks: one abstract output, for people and for programs."""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from delvec.report.figures import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.console import RenderableType

    from delvec.errors import DelvecError

__all__ = ["Column", "JsonOutput", "Output", "TextOutput", "used_columns", "visible"]

_WIDTH_IN_A_PIPE = 200  # nobody there breaks lines, so we should not either


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in the rows, and how people see it."""

    key: str
    title: str
    style: str = ""
    is_unbroken: bool = False


def used_columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns that have a value in some row."""
    return [c for c in columns if any(row[c.key] not in (None, "") for row in rows)]


class Output(ABC):
    """What a command tells. A result is told once; the rest is for people.

    Texts are plain, not markup: they hold names that come from anywhere.
    """

    @abstractmethod
    def heading(self, text: str) -> None:
        """Begin a part of what people read."""

    @abstractmethod
    def note(self, *parts: str | tuple[str, str]) -> None:
        """Tell people a sentence, made of texts and of (text, style) pairs."""

    @abstractmethod
    def draw(self, picture: RenderableType) -> None:
        """Show people something that rich can render."""

    @abstractmethod
    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Show rows to people."""

    @abstractmethod
    def progress(self) -> AbstractContextManager[Callable[[str, int, int], None] | None]:
        """Give a function that shows people how much of what is done; None if nobody looks."""

    @abstractmethod
    def result(self, value: Mapping[str, Any]) -> None:
        """Tell programs what came of it all."""

    @abstractmethod
    def error(self, error: DelvecError) -> None:
        """Tell that it failed, and why."""

    @abstractmethod
    def begin_lines(self) -> None:
        """Be ready for many results, one after the other."""


class TextOutput(Output):
    """For people: rich on a terminal, plain in a pipe. What follows a heading is set in."""

    def __init__(self) -> None:
        self._indent = 0
        self._console, self._errors = _console(), _console(stderr=True)

    def heading(self, text: str) -> None:
        """Print the text in bold after an empty line."""
        self._console.print()
        self._console.print(Text(text, "bold"))
        self._indent = 3

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print the sentence."""
        self.draw(Text.assemble(*parts))

    def draw(self, picture: RenderableType) -> None:
        """Print it."""
        self._console.print(Padding(picture, (0, 0, 0, self._indent), expand=False))

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a table, numbers to the right and never broken."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            numeric = all(isinstance(row.get(column.key), int | float | None) for row in rows)
            justify: Any = "right" if numeric else "left"
            table.add_column(
                column.title,
                style=column.style,
                justify=justify,
                overflow="fold",
                no_wrap=numeric or column.is_unbroken,
            )
        for row in rows:
            table.add_row(*(Text(_cell(row.get(column.key))) for column in columns))
        self.draw(table)

    @contextmanager
    def progress(self) -> Iterator[Callable[[str, int, int], None] | None]:
        """Draw a line on standard error while the block runs, if that is a terminal."""
        if not self._errors.is_terminal:
            yield None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
        with Progress(
            *columns,
            MofNCompleteColumn(),
            console=self._errors,
            transient=True,
            redirect_stdout=self._console.is_terminal,  # a pipe gets its own
        ) as line:
            task = line.add_task("", total=None)
            yield lambda what, done, total: line.update(
                task, description=visible(what), completed=done, total=total or None
            )

    def begin_lines(self) -> None:
        """Do nothing: people read on."""

    def result(self, value: Mapping[str, Any]) -> None:
        """Print nothing: people have read it already."""

    def error(self, error: DelvecError) -> None:
        """Print what went wrong and the hint to standard error."""
        lines = "\n".join(map(visible, error.describe().splitlines()))
        self._errors.print(Text.assemble(("Error: ", "bold red"), lines))
        if error.hint:
            self._errors.print(Text.assemble(("Hint: ", "bold yellow"), error.hint))


class JsonOutput(Output):
    """For programs: one JSON document on standard output, whether it went well or not."""

    def __init__(self) -> None:
        self._indent: int | None = 2

    def begin_lines(self) -> None:
        """Print each document in a line of its own from now on."""
        self._indent = None

    def heading(self, text: str) -> None:
        """Print nothing."""

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print nothing."""

    def draw(self, picture: RenderableType) -> None:
        """Print nothing."""

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print nothing: the rows are part of the result."""

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show nothing."""
        yield None

    def result(self, value: Mapping[str, Any]) -> None:
        """Print the document."""
        json.dump(value, sys.stdout, indent=self._indent, default=str)
        sys.stdout.write("\n")
        sys.stdout.flush()

    def error(self, error: DelvecError) -> None:
        """Print a document with the facts of the error."""
        facts = {key: value for key, value in vars(error).items() if value not in (None, (), "")}
        self.result({"error": {"type": type(error).__name__, **facts, "message": error.describe()}})


def _console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # a terminal without our dots still gets the rest
    console = Console(highlight=False, emoji=False, markup=False, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_IN_A_PIPE
    return console


def _cell(value: object) -> str:
    """Show a value: numbers with separators, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return visible(value)
