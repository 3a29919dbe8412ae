"""The output of commands: one interface, as text for people and as JSON for programs."""

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

_WIDTH_IN_A_PIPE = 200  # lines in a pipe are not wrapped


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in the rows, title and style."""

    key: str
    title: str
    style: str = ""
    is_unbroken: bool = False


def used_columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns that have a value in some row."""
    return [c for c in columns if any(row[c.key] not in (None, "") for row in rows)]


class Output(ABC):
    """The output of a command: one result for programs, everything else for people.

    Strings are plain, not markup: they contain names from tables and files.
    """

    @abstractmethod
    def heading(self, text: str) -> None:
        """Begin a section of the text."""

    @abstractmethod
    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print a sentence, made of strings and (string, style) pairs."""

    @abstractmethod
    def draw(self, picture: RenderableType) -> None:
        """Print something that rich can render."""

    @abstractmethod
    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print rows as a table."""

    @abstractmethod
    def progress(self) -> AbstractContextManager[Callable[[str, int, int], None] | None]:
        """Enter with a function that shows progress; None if there is no terminal."""

    @abstractmethod
    def result(self, value: Mapping[str, Any]) -> None:
        """Print the result for programs."""

    @abstractmethod
    def error(self, error: DelvecError) -> None:
        """Print an error."""

    @abstractmethod
    def begin_lines(self) -> None:
        """Print each of the following results on a line of its own."""


class TextOutput(Output):
    """For people: rich on a terminal, plain in a pipe; indented below a heading."""

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
        """Print a table; numbers are right-aligned and never wrapped."""
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
        """Show a progress line on standard error during the block, if that is a terminal."""
        if not self._errors.is_terminal:
            yield None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
        with Progress(
            *columns,
            MofNCompleteColumn(),
            console=self._errors,
            transient=True,
            redirect_stdout=self._console.is_terminal,  # a pipe keeps its own standard output
        ) as line:
            task = line.add_task("", total=None)
            yield lambda what, done, total: line.update(
                task, description=visible(what), completed=done, total=total or None
            )

    def begin_lines(self) -> None:
        """Do nothing: results are not printed as text."""

    def result(self, value: Mapping[str, Any]) -> None:
        """Print nothing: the text shows it already."""

    def error(self, error: DelvecError) -> None:
        """Print the error and its hint to standard error."""
        lines = "\n".join(map(visible, error.describe().splitlines()))
        self._errors.print(Text.assemble(("Error: ", "bold red"), lines))
        if error.hint:
            self._errors.print(Text.assemble(("Hint: ", "bold yellow"), error.hint))


class JsonOutput(Output):
    """For programs: one JSON document on standard output, for success and failure alike."""

    def __init__(self) -> None:
        self._indent: int | None = 2

    def begin_lines(self) -> None:
        """Print each document on a line of its own from now on."""
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
        stream.reconfigure(errors="replace")  # characters that a terminal lacks are replaced
    console = Console(highlight=False, emoji=False, markup=False, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_IN_A_PIPE
    return console


def _cell(value: object) -> str:
    """Return a value as a cell: numbers with separators, empty for None."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return visible(value)
