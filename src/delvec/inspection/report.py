"""The report of an inspection, and its page of text, as wide as asked for.

Sentences are folded between words, below their beginning. Names are shortened in their middle where
bars need the room. Commands and calls are never broken inside a word, so that they can be copied.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal

from delvec.errors import InvalidArgumentError
from delvec.inspection import figures
from delvec.inspection.facts import facts, headline
from delvec.inspection.html import fragment, page
from delvec.report.format import UNIT_GAP, bar, escape_controls, format_count, percent, shortened
from delvec.report.rendering import Line, Rendered, doc, documented, required

_WIDTH: Final = 80  # where there is no terminal
_UNBROKEN: Final = "\u00a0"
_WORD: Final = r"""(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|"[^"]*"|[^\s'"])+"""  # as a shell quotes it
_PART: Final = re.compile(rf"-\S+ (?!-){_WORD}|{_WORD}")  # an option with its value, or a word
_WIDEST: Final = 120  # longer lines are hard to read
_NARROWEST: Final = 40
_NAMES: Final = (12, 60)  # the least and the most characters of a name before a bar
_BARS: Final = (8, 24)
_FILES: Final = 10
_PARTITIONS: Final = 5


@documented(kw_only=True)
class InspectReport(Rendered):
    """What a table is made of at one version or snapshot, and what to run next.

        report = t.inspect()
        print(report)
        report.write_html("report.html")

    Prints as a page of text; in notebooks it is a page with charts.
    """

    table: str = required("The path or URI of a Delta table, the name of an Iceberg table.")
    format: Literal["delta", "iceberg"] = required("`delta` or `iceberg`.")
    location: str = required("Where it is.")
    protocol: str = doc("The versions of the format that it needs, in words.", "")
    version: int | None = doc("The version of a Delta table.", None)
    snapshot_id: int | None = doc("The snapshot of an Iceberg table; None if it has none.", None)
    branch: str | None = doc("The branch of an Iceberg table; None if a snapshot was named.", None)
    is_newest: bool = doc(
        "Whether it is the newest, or of its branch; only that gets advice.", True
    )
    owns_files: bool = doc(
        "Whether its files are its own; not those of a target that shares its source's.", True
    )
    committed_ms: int | None = doc("When it was committed, in milliseconds since 1970.", None)
    inspected_ms: int = doc("When it was inspected.", 0)
    partition_by: tuple[str, ...] = doc("The partition columns, or partition fields.", ())
    files: int = doc("The number of data files.", 0)
    bytes: int = doc("Their size.", 0)
    rows: int | None = doc(
        "Their rows, with deleted ones; None if the log lacks those of a file.", 0
    )
    live_rows: int | None = doc("The rows that are left; None if only reading tells.", 0)
    vectors: figures.VectorFigures = doc("The deletion vectors.", figures.VectorFigures)
    positions: figures.PositionFigures = doc(
        "The position delete files of Iceberg.", figures.PositionFigures
    )
    equality: figures.EqualityFigures = doc(
        "The equality deletes of Iceberg.", figures.EqualityFigures
    )
    most_deleted: figures.Ranking = doc("The files with the most deleted rows.", figures.Ranking)
    partitions: figures.Ranking = doc(
        "The partitions with the most deleted rows, if there are any.", figures.Ranking
    )
    sizes: tuple[figures.SizeClass, ...] = doc("The data files by size.", ())
    small_files: figures.SmallFiles = doc(
        "Small files, and what compacting them would do.", figures.SmallFiles
    )
    log: figures.LogFigures = doc("What opening the table reads.", figures.LogFigures)
    moments: tuple[figures.Moment, ...] = doc(
        "The state after each newest commit, oldest first.", ()
    )
    freed: figures.Freed = doc("Bytes that maintenance would free.", figures.Freed)
    advice: tuple[figures.Advice, ...] = doc("What to run next, in order.", ())
    notes: tuple[str, ...] = doc("What else is to be known, in sentences.", ())
    phases: Mapping[str, float] = doc("Seconds by phase.", dict)

    def to_html(self) -> str:
        """Return the report as one HTML page with charts; it makes no request."""
        return page(self)

    def write_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the page of `to_html` to a local file, and return its path.

        Raises:
            InvalidArgumentError: The file cannot be written.
        """
        file = Path(path)
        try:
            file.write_text(self.to_html(), encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(
                f"the report cannot be written to {file}: {error.strerror or error}",
                hint="name a file in an existing folder, such as report.html",
            ) from error
        return file

    def lines(self, width: int) -> Iterator[Line]:
        """Yield the lines of the report for a terminal, each with its style.

        Args:
            width: The columns of the terminal. Words that are longer, such as paths, stay whole.
        """
        room = max(_NARROWEST, min(width, _WIDEST) - 1)
        yield from _folded("", headline(self), room, "bold", 2)
        shown = {name: text for name, text in facts(self).items() if text}
        label = max(map(len, shown), default=0)
        for name, text in shown.items():
            yield from _folded(f"  {name:<{label}}  ", text, room)
        if self.most_deleted.has_deleted:
            yield from _bars("Files", self.most_deleted, _FILES, "file", room)
            yield from _bars("Partitions", self.partitions, _PARTITIONS, "partition", room)
        if self.is_newest:
            yield from _advice(self.advice, room)
        for note in self.notes:
            yield from _folded("Note: ", note, room, "yellow")

    def _lines(self) -> Iterator[Line]:
        """Yield the lines for standard output, 80 columns wide if that is no terminal."""
        size = shutil.get_terminal_size((_WIDTH, 24))
        return self.lines(size.columns if sys.stdout.isatty() else _WIDTH)

    def __repr__(self) -> str:
        return f"InspectReport({escape_controls(headline(self))})"

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:  # noqa: ANN401
        plain = {"markup": False, "highlight": False, "emoji": False}
        for text, style in self.lines(options.max_width):
            yield console.render_str(text, style=style, **plain)

    def _repr_html_(self) -> str:
        return fragment(self)


def _bars(what: str, ranking: figures.Ranking, most: int, noun: str, room: int) -> Iterator[Line]:
    shown = [each for each in ranking.shown if each.deleted][:most]
    if not shown:
        return
    yield "", ""
    yield f"{what} with the most deleted rows", "bold"
    # The folder of a file repeats its partition.
    names = [each.name.rpartition("/")[2] if noun == "file" else each.name for each in shown]
    labels = list(map(escape_controls, names))
    numbers = [_number(each) for each in shown]
    left = room - 4 - max(map(len, numbers))
    bars = min(_BARS[1], max(_BARS[0], left // 4))
    least, largest = _NAMES
    name_width = min(max(map(len, labels)), largest, max(least, left - bars - 2))
    for each, label, number in zip(shown, labels, numbers, strict=True):
        name = shortened(label, name_width)
        drawn = " " * bars if each.rows is None else bar(each.deleted, each.rows, bars)
        yield f"  {name:<{name_width}}  {drawn} {number}", ""
    if more := len(ranking.shown) - len(shown) + ranking.others:
        deleted = sum(each.deleted for each in (*ranking.shown, ranking.rest) if each)
        left = deleted - sum(each.deleted for each in shown)
        rest = f"more, with {format_count(left, 'deleted row')} in all"
        rest = rest if left else "without deleted rows"
        yield f"  … and {format_count(more, noun)} {rest}", "dim"


def _number(share: figures.Share) -> str:
    if share.rows is None:
        return f"{share.deleted:,} of an unknown number"
    return f"{percent(share.deleted, share.rows):>7}  {share.deleted:,}"


def _advice(advice: Sequence[figures.Advice], room: int) -> Iterator[Line]:
    yield "", ""
    if not advice:
        yield "What to run next", "bold"
        yield "  nothing: no limit is passed", "green"
        return
    in_shell = any(each.command for each in advice)
    yield "What to run next" + ("" if in_shell else ", for the table t"), "bold"
    for number, each in enumerate(advice, 1):
        yield from _folded(f"  {number}. {each.action}: ", each.why, room, "", 5)
        for line in _runnable(each, room - 5):
            yield f"     {line}", "cyan"


def _runnable(advice: figures.Advice, room: int) -> Iterator[str]:
    """Yield a call, or the lines of a command: each but the last ends with a backslash."""
    line = ""
    for part in _PART.findall(escape_controls(advice.command)) or [escape_controls(advice.call)]:
        if line and len(line) + len(part) + 3 > room:
            yield f"{line} \\"
            line = f"  {part}"
        else:
            line = f"{line} {part}" if line else part
    yield line


def _folded(
    start: str, text: str, room: int, style: str = "", indent: int | None = None
) -> Iterator[Line]:
    """Yield lines of a text behind a label; words longer than a line, and figures, stay whole."""
    start, text = escape_controls(start), escape_controls(text)
    rest = " " * (len(start) if indent is None else indent)
    found = wrap(
        UNIT_GAP.sub(_UNBROKEN, text),
        room,
        initial_indent=start,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in found or [start.rstrip()]:
        yield line.replace(_UNBROKEN, " "), style
