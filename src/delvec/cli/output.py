"""The output of commands: one interface, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from delvec.cli.fitting import (
    UNLIMITED,
    Column,
    Sentence,
    apart,
    cell,
    fitted,
    is_numeric,
    used_columns,
)
from delvec.cli.hints import command_hint
from delvec.cli.terminal import (
    ClosedPipeError,
    blocks,
    folded,
    opened_console,
    printing,
    unpadded,
)
from delvec.report.figures import visible
from delvec.report.rendered import Rendered
from delvec.report.wordings import in_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.console import RenderableType

    from delvec.errors import DelvecError
    from delvec.report.rendered import Line

__all__ = [
    "ClosedPipeError",
    "Column",
    "JsonOutput",
    "Output",
    "TextOutput",
    "used_columns",
    "visible",
]

_PIPE: Final = 80  # columns of text that is folded


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
    def lines(self, made_for: Callable[[int], Iterable[Line]]) -> None:
        """Print lines that a function makes for a width; words that are longer stay whole."""

    @abstractmethod
    def plain(self, text: str) -> None:
        """Print text as it is, neither wrapped nor styled."""

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

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show what is done during the block, for work that does not tell how far it is."""
        with self.progress() as show:
            if show is not None:
                show(what, 0, 0)
            yield


class TextOutput(Output):
    """For people: rich on a terminal, plain in a pipe; indented below a heading."""

    def __init__(self) -> None:
        self._indent = 0
        self._console, self._errors = opened_console(), opened_console(stderr=True)

    def heading(self, text: str) -> None:
        """Print the text in bold after an empty line."""
        self._indent = 0
        self.draw(Text(f"\n{text}", "bold"))
        self._indent = 3

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print the sentence."""
        self.draw(Sentence.assemble(*parts))

    def draw(self, picture: RenderableType) -> None:
        """Print it; a report names commands, and its lines are folded under their own text."""
        if isinstance(picture, Rendered):
            picture = folded(picture.styled_lines(), self._console.width - self._indent)
        placed = Padding(picture, (0, 0, 0, self._indent), expand=False)
        with printing():
            if self._console.is_terminal:
                self._console.print(placed)
            else:
                self._console.file.write(unpadded(self._console, placed))
                self._console.file.flush()

    def lines(self, made_for: Callable[[int], Iterable[Line]]) -> None:
        """Print the lines, for the width of the terminal, or 80 columns in a pipe."""
        width = self._console.width if self._console.width < UNLIMITED else _PIPE
        with printing():
            for text, style in made_for(width):
                self._console.print(Text(text, style), soft_wrap=True)

    def plain(self, text: str) -> None:
        """Print it."""
        with printing():
            sys.stdout.write(text)
            sys.stdout.flush()

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a table that fits the terminal, or a block of lines for each row."""
        layout = fitted(columns, rows, self._console.width - self._indent)
        if layout is None:
            self.draw(blocks(columns, rows))
            return
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for column in layout.columns:
            justify: Any = "right" if is_numeric(column, rows) else "left"
            table.add_column(column.title, style=column.style, justify=justify)
        cells = [
            self._cells(column, rows, width)
            for column, width in zip(layout.columns, layout.widths, strict=True)
        ]
        for row in zip(*cells, strict=True):
            table.add_row(*row)
        self.draw(table)
        if layout.omitted:
            missing = ", ".join(layout.omitted)
            self.note((f"No room for: {missing}. Widen the terminal, or add --json.", "dim"))

    def _cells(
        self, column: Column, rows: Sequence[Mapping[str, Any]], width: int
    ) -> Iterator[Text]:
        """Yield cells that are no wider: rich finds the width of a column by its cells."""
        texts = [cell(row.get(column.key)) for row in rows]
        short = {} if column.name_width is None else apart(texts, width)
        for text in (Text(short.get(each, each)) for each in texts):
            if text.cell_len <= width:
                yield text
            else:
                yield Text("\n").join(text.wrap(self._console, width, overflow="fold"))

    @contextmanager
    def progress(self) -> Iterator[Callable[[str, int, int], None] | None]:
        """Show a progress line during the block, if standard error is a terminal."""
        if not self._errors.is_terminal:
            yield None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
        with Progress(
            *columns,
            MofNCompleteColumn(),
            # A console knows of its own progress line only, and prints above it.
            console=self._console if self._console.is_terminal else self._errors,
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
        # The terminal folds them: a command that is copied has no line breaks of ours.
        self._errors.print(Text.assemble(("Error: ", "bold red"), error.describe()), soft_wrap=True)
        if error.hint:
            hint = visible(command_hint(error.hint, _options()))
            self._errors.print(Text.assemble(("Hint: ", "bold yellow"), hint), soft_wrap=True)


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

    def lines(self, made_for: Callable[[int], Iterable[Line]]) -> None:
        """Print nothing."""

    def plain(self, text: str) -> None:
        """Print nothing."""

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print nothing: the rows are part of the result."""

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show nothing."""
        yield None

    def result(self, value: Mapping[str, Any]) -> None:
        """Print the document."""
        with printing():
            json.dump(in_command(value), sys.stdout, indent=self._indent, default=str)
            sys.stdout.write("\n")
            sys.stdout.flush()

    def error(self, error: DelvecError) -> None:
        """Print a document with the facts of the error."""
        facts = {key: value for key, value in vars(error).items() if value not in (None, (), "")}
        if error.hint:
            facts["hint"] = command_hint(error.hint, _options())
        self.result({"error": {"type": type(error).__name__, **facts, "message": error.describe()}})


def _options() -> set[str]:
    """Return the options of the command that runs."""
    context = click.get_current_context(silent=True)
    params = [] if context is None else context.command.params
    return {name for param in params for name in param.opts}
