"""The output of commands: as text for people, or as JSON for programs.

Advice and hints are in the words of the command, see `delvec.report.hints`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from delvec.cli import terminal
from delvec.cli.terminal import Column, printing
from delvec.report.format import escape_controls
from delvec.report.hints import Wording, in_command, shell_word
from delvec.report.rendering import Line, Rendered

if TYPE_CHECKING:
    from rich.console import RenderableType

    from delvec.errors import DelvecError

    _Progress = Callable[[str, int, int], None]

_TABLE: Final = re.compile(r"(?<=\s)TABLE(?=[\s`])")
_PIPE: Final = 80  # columns of text that is folded


class Output:
    """Text for people: rich on a terminal, plain in a pipe; or one JSON document for programs.

    Strings are plain, not markup: they contain names from tables and files.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._json_indent: int | None = 2
        self._indent = 0
        self._show: _Progress | None = None
        self._console = terminal.opened_console()
        self._errors = terminal.opened_console(stderr=True)

    def heading(self, text: str) -> None:
        """Begin a section of the text: bold after an empty line, what follows is indented."""
        self._indent = 0
        self.draw(Text(f"\n{text}", "bold"))
        self._indent = 3

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print a sentence, made of strings and (string, style) pairs."""
        self.draw(terminal.Sentence.assemble(*parts))

    def draw(self, picture: RenderableType) -> None:
        """Print something that rich can render; lines of a report are folded under their text."""
        if self.as_json:
            return
        if isinstance(picture, Rendered):
            picture = terminal.folded(picture.styled_lines(), self._console.width - self._indent)
        placed = Padding(picture, (0, 0, 0, self._indent), expand=False)
        with printing():
            if self._console.is_terminal:
                self._console.print(placed)
            else:
                self._console.file.write(terminal.unpadded(self._console, placed))
                self._console.file.flush()

    def report(self, report: Any) -> None:  # noqa: ANN401 - of any operation
        self.draw(report)
        self.result(report.to_json())

    def lines(self, made_for: Callable[[int], Iterable[Line]]) -> None:
        """Print lines that are made for the terminal's width, or 80; longer words stay whole."""
        width = self._console.width if self._console.width < terminal.UNLIMITED else _PIPE
        for text, style in () if self.as_json else made_for(width):
            with printing():
                self._console.print(Text(text, style), soft_wrap=True)

    def plain(self, text: str) -> None:
        """Print text as it is, neither wrapped nor styled."""
        if not self.as_json:
            with printing():
                sys.stdout.write(text)
                sys.stdout.flush()

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print rows as a table that fits the terminal, or a block of lines for each row."""
        if self.as_json:
            return
        width = self._console.width - self._indent
        shown = terminal.fitted(columns, rows, width)
        if shown is None:
            self.draw(terminal.blocks(columns, rows))
            return
        self.draw(terminal.tabulated(shown, rows, width))
        if missing := ", ".join(each.title for each in columns if each not in shown):
            self.note((f"No room for: {missing}. Widen the terminal, or add --json.", "dim"))

    def listing(
        self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], count: int = 0
    ) -> None:
        """Print rows, without columns that have no value; and how many are left out of so many."""
        used = [c for c in columns if any(row[c.key] not in (None, "") for row in rows)]
        if rows:
            self.table(used, rows)
        if (left := count - len(rows)) > 0:
            self.note((f"… and {left:,} more; --limit 0 shows all", "dim"))

    @contextmanager
    def progress(self, what: str = "") -> Iterator[_Progress | None]:
        """Show what is done in the block; enter with a function for more, None without a terminal.

        A block inside of another has the same line.
        """
        if self._show is not None or self.as_json or not self._errors.is_terminal:
            yield self._show
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
            task = line.add_task(escape_controls(what), total=None)
            self._show = lambda what, done, total: line.update(
                task, description=escape_controls(what), completed=done, total=total or None
            )
            try:
                yield self._show
            finally:
                self._show = None

    def begin_lines(self) -> None:
        """Print each of the following results on a line of its own."""
        self._json_indent = None

    def timed(self, *parts: str | tuple[str, str]) -> None:
        """Print a sentence that begins with date, time and zone."""
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        self.note((f"{now}  ", "dim"), *parts)

    def cycle(self, report: Any, **facts: object) -> None:  # noqa: ANN401 - of a conversion or resolve
        """Print what a command that goes on has done now, with more facts for programs."""
        self.timed(report.brief())
        for note in report.notes:
            self.note((f"Note: {escape_controls(note)}", "yellow"))
        self.result({**report.to_json(), **facts})

    def retry(self, error: DelvecError, seconds: float, **facts: object) -> None:
        """Print why a command that goes on tries again, and when."""
        message = error.describe()
        told = escape_controls(message.partition("\n")[0])
        self.timed((f"again in {seconds:.3g} s: ", "yellow"), told)
        error_facts: dict[str, object] = {"type": type(error).__name__, "message": message}
        if error.report is not None:
            error_facts["report"] = error.report.to_json()
        self.result({"retry_in": seconds, "error": error_facts, **facts})

    def result(self, value: Mapping[str, Any]) -> None:
        """Print the document for programs; as text, all was shown already."""
        if not self.as_json:
            return
        with printing():
            # Piece by piece: a pipe that is closed meanwhile is noticed at the next one.
            json.dump(in_command(value), sys.stdout, indent=self._json_indent, default=str)
            sys.stdout.write("\n")
            sys.stdout.flush()

    def error(self, error: DelvecError) -> None:
        """Print the error and its hint to standard error; as JSON, a document with its facts."""
        hint = _in_command(error.hint) if error.hint else None
        if self.as_json:
            facts = vars(error) | {"hint": hint}
            facts = {name: each for name, each in facts.items() if each not in (None, (), "")}
            facts |= {"message": error.describe()}
            if error.report is not None:
                facts["report"] = error.report.to_json()
            self.result({"error": {"type": type(error).__name__, **facts}})
            return
        # The terminal folds them: a command that is copied has no line breaks of ours.
        self._errors.print(Text.assemble(("Error: ", "bold red"), error.describe()), soft_wrap=True)
        if hint:
            told = Text.assemble(("Hint: ", "bold yellow"), escape_controls(hint))
            self._errors.print(told, soft_wrap=True)


def _in_command(hint: str) -> str:
    """Return a hint as the command says it, with its own table in place of TABLE."""
    context = click.get_current_context(silent=True)
    table = None if context is None else context.params.get("table")
    if table is None or not isinstance(hint, Wording):
        return str(in_command(hint))
    return _TABLE.sub(lambda _: shell_word(table, is_path=True), hint.command)
