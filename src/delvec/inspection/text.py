"""The report of an inspection as a page of text, as wide as asked for.

Sentences are folded between words, below their beginning. Names are shortened in their middle where
bars need the room; commands and calls are never broken inside a word, so that they can be copied.
"""

from __future__ import annotations

import re
import shutil
import sys
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from delvec.inspection.facts import facts, headline
from delvec.report.figures import UNIT_GAP, bar, counted, percent, shortened, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.inspection.figures import Advice, Ranking, Share
    from delvec.inspection.report import InspectReport
    from delvec.report.rendered import Line

__all__ = ["lines", "text_width"]

WIDTH: Final = 80
"""The width where there is no terminal."""

_UNBROKEN: Final = "\u00a0"
_WORD: Final = r"""(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|"[^"]*"|[^\s'"])+"""  # as a shell quotes it
_PART: Final = re.compile(rf"-\S+ (?!-){_WORD}|{_WORD}")  # an option with its value, or a word
_WIDEST: Final = 120  # longer lines are hard to read
_NARROWEST: Final = 40
_NAMES: Final = (12, 60)  # the least and the most characters of a name before a bar
_BARS: Final = (8, 24)
_FILES: Final = 10
_PARTITIONS: Final = 5


def text_width() -> int:
    """Return the width of the terminal that standard output is; 80 if it is none."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def lines(report: InspectReport, width: int = WIDTH) -> Iterator[Line]:
    """Yield the lines of the page, each with its style.

    Args:
        report: The report.
        width: The columns of the terminal; some are left free of very wide ones.
    """
    room = max(_NARROWEST, min(width, _WIDEST) - 1)
    yield from _folded("", visible(headline(report)), room, "bold", 2)
    shown = {name: text for name, text in facts(report).items() if text}
    label = max(map(len, shown), default=0)
    for name, text in shown.items():
        yield from _folded(f"  {name:<{label}}  ", visible(text), room)
    if any(each.deleted for each in report.most_deleted.shown):
        yield from _bars("Files", report.most_deleted, _FILES, "file", room)
        yield from _bars("Partitions", report.partitions, _PARTITIONS, "partition", room)
    yield from _advice(report, room)
    for note in report.notes:
        yield from _folded("Note: ", visible(note), room, "yellow")


def _bars(what: str, ranking: Ranking, most: int, noun: str, room: int) -> Iterator[Line]:
    shown = [each for each in ranking.shown if each.deleted][:most]
    if not shown:
        return
    yield "", ""
    yield f"{what} with the most deleted rows", "bold"
    # The folder of a file repeats its partition.
    names = [each.name.rpartition("/")[2] if noun == "file" else each.name for each in shown]
    labels = list(map(visible, names))
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
        if left := deleted - sum(each.deleted for each in shown):
            text = f"{counted(more, noun)} more, with {counted(left, 'deleted row')} in all"
        else:
            text = f"{counted(more, noun)} without deleted rows"
        yield f"  … and {text}", "dim"


def _number(share: Share) -> str:
    if share.rows is None:
        return f"{share.deleted:,} of an unknown number"
    return f"{percent(share.deleted, share.rows):>7}  {share.deleted:,}"


def _advice(report: InspectReport, room: int) -> Iterator[Line]:
    if not report.is_newest:
        return
    yield "", ""
    if not report.advice:
        yield "What to run next", "bold"
        yield "  nothing: no limit is passed", "green"
        return
    in_shell = any(each.command for each in report.advice)
    yield "What to run next" + ("" if in_shell else ", for the table t"), "bold"
    for number, each in enumerate(report.advice, 1):
        yield from _folded(f"  {number}. {visible(each.action)}: ", visible(each.why), room, "", 5)
        for line in _runnable(each, room - 5):
            yield f"     {line}", "cyan"


def _runnable(advice: Advice, room: int) -> Iterator[str]:
    """Yield a call, or the lines of a command: each but the last ends with a backslash."""
    line = ""
    for part in _PART.findall(visible(advice.command)) or [visible(advice.call)]:
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
