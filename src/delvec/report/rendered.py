"""How reports and plans are shown: as text, on terminals, in notebooks and as JSON documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delvec.report.wordings import on_one_line, worded

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ChangeReport", "Line", "Rendered", "Summary", "document"]

Line: TypeAlias = tuple[str, str]
"""A line of text and its style."""

_AS_IT_IS: Final = {"markup": False, "highlight": False, "emoji": False}


class Rendered(ABC):
    """A report that renders as text, on terminals (rich) and in notebooks (HTML)."""

    @abstractmethod
    def _lines(self) -> Iterator[Line]:
        """Yield the lines of the report."""

    def styled_lines(self) -> Iterator[Line]:
        """Yield the lines of the report, each with its style.

        Whatever a table put into them, they are single lines without control characters.
        """
        return ((on_one_line(text), style) for text, style in self._lines())

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        """Give each report a short `repr`, which `dataclass` would replace by all fields."""
        super().__init_subclass__(**kwargs)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Rendered.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        headline = next(self.styled_lines(), ("", ""))[0]
        return f"{type(self).__name__}({headline})"

    def __str__(self) -> str:
        return "\n".join(text for text, _ in self.styled_lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    # Rich passes its console in, so that nothing here has to import it.
    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:  # noqa: ANN401
        for text, style in self.styled_lines():
            yield console.render_str(text, style=style, **_AS_IT_IS)

    def __rich_measure__(self, console: Any, options: Any) -> Any:  # noqa: ANN401
        return console.measure(console.render_str(str(self), **_AS_IT_IS), options=options)


@dataclass(frozen=True, kw_only=True)
class ChangeReport(Rendered):
    """What every report of a changed table tells, whatever the change was.

    Attributes:
        vector_bytes: The size of the files of vectors that were written.
        vector_files: How many of these files.
        phases: Seconds by phase, in order.
        notes: What users should know, in sentences.
    """

    vector_bytes: int = 0
    vector_files: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs: what is particular to the change first."""
        shared = {each.name for each in fields(ChangeReport)}
        found = document(self)
        particular = {name: value for name, value in found.items() if name not in shared}
        return {**particular, **found}


@dataclass(frozen=True)
class Summary:
    """The parts that reports have in common; all but the headline may be empty.

    Attributes:
        headline: What happened, in one line.
        facts: Figures by what they are about; empty ones are omitted.
        phases: Seconds by phase.
        has_shares: Whether each phase shows its share of the total, and the total is added.
        details: Further lines.
        notes: Sentences; may hold any character.
    """

    headline: str
    facts: Mapping[str, str] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    has_shares: bool = False
    details: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[Line]:
        """Yield each line with its style."""
        yield self.headline, "bold"
        facts = {name: text for name, text in self.facts.items() if text}
        width = max(map(len, [*facts, *self.phases]), default=0)
        for name, text in facts.items():
            yield f"  {name:<{width}}  {text}", ""
        for text in self._phase_lines(width):
            yield text, "dim"
        for text in self.details:
            yield f"  {text}", "dim"
        for note in self.notes:
            yield worded("Note: {}", on_one_line(note)), "yellow"

    def _phase_lines(self, width: int) -> Iterator[str]:
        total = sum(self.phases.values())
        for name, seconds in self.phases.items():
            share = f"{100 * seconds / total:.0f} %" if total and self.has_shares else ""
            yield f"  {name:<{width}}  {seconds:>7.2f} s  {share:>5}".rstrip()
        if self.has_shares and len(self.phases) > 1:
            yield f"  {'total':<{width}}  {total:>7.2f} s"


def document(report: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """Return the fields of a report as plain data, for JSON."""
    return {each.name: _plain(getattr(report, each.name)) for each in fields(report)}


def _plain(value: Any) -> Any:  # noqa: ANN401
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
