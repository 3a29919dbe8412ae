"""The report of an inspection as a page of text, for terminals of 80 columns."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from delvec.inspection.facts import facts, headline
from delvec.report.figures import bar, counted, percent, shortened, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.inspection.figures import Ranking, Share
    from delvec.inspection.report import InspectReport
    from delvec.report.rendered import Line

__all__ = ["lines"]

_WIDTH: Final = 79
_NAME: Final = 36
_BAR: Final = 16
_FILES: Final = 10
_PARTITIONS: Final = 5


def lines(report: InspectReport) -> Iterator[Line]:
    """Yield the lines of the page, each with its style."""
    yield visible(headline(report)), "bold"
    shown = {name: text for name, text in facts(report).items() if text}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        yield from _folded(f"  {name:<{width}}  ", visible(text))
    if report.vectors.rows:
        yield from _bars("Files with the most deleted rows", report.most_deleted, _FILES, "file")
        yield from _bars(
            "Partitions with the most deleted rows", report.partitions, _PARTITIONS, "partition"
        )
    yield from _advice(report)
    for note in report.notes:
        yield from _folded("Note: ", visible(note), "yellow")


def _bars(title: str, ranking: Ranking, most: int, noun: str) -> Iterator[Line]:
    shown = [each for each in ranking.shown if each.deleted][:most]
    if not shown:
        return
    yield "", ""
    yield title, "bold"
    for each in shown:
        # The folder of a file repeats its partition.
        yield _bar(each, each.name.rpartition("/")[2] if noun == "file" else each.name), ""
    if left := len(ranking.shown) - len(shown) + ranking.others:
        yield f"  … and {counted(left, noun)} more", "dim"


def _bar(share: Share, label: str) -> str:
    name = shortened(visible(label), _NAME)
    if share.rows is None:
        return f"  {name:<{_NAME}}  {share.deleted:,} deleted, of a number that is not known"
    part = percent(share.deleted, share.rows)
    drawn = bar(share.deleted, share.rows, _BAR)
    return f"  {name:<{_NAME}}  {drawn} {part:>7}  {share.deleted:,}"


def _advice(report: InspectReport) -> Iterator[Line]:
    if not report.is_newest:
        return
    yield "", ""
    yield "What to run next", "bold"
    if not report.advice:
        yield "  nothing: no limit is passed", "green"
    for number, each in enumerate(report.advice, 1):
        yield from _folded(f"  {number}. {visible(each.action)}: ", visible(each.why), "", 5)
        yield f"     {visible(each.command or each.call)}", "cyan"


def _folded(start: str, text: str, style: str = "", indent: int | None = None) -> Iterator[Line]:
    """Yield lines of a text behind a label; words longer than a line stay whole."""
    rest = " " * (len(start) if indent is None else indent)
    found = wrap(
        text,
        _WIDTH,
        initial_indent=start,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in found or [start.rstrip()]:
        yield line, style
