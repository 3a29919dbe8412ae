"""How reports are declared and shown: as text, in notebooks and as JSON, with the time of phases.

A report declares each field once, with its type, default and documentation:

    @documented()
    class CountReport(OperationReport):
        table: str = required("The name of the table.")
        rows: int = doc("Rows that were counted.", 0)

Its docstring lists the fields, and `to_json` has them, those that are particular to it first.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import Field, dataclass, field, fields, is_dataclass
from html import escape
from inspect import cleandoc, get_annotations
from textwrap import fill
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar, overload

from delvec.report.format import format_count, format_list, format_size
from delvec.report.hints import format_hint, on_one_line

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # of Python 3.11, and for type checkers alone

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda decorator: decorator


_T = TypeVar("_T")
Line: TypeAlias = tuple[str, str]
"""A line of text and its style."""
_AS_IT_IS: Final = {"markup": False, "highlight": False, "emoji": False}
_WIDTH: Final = 96  # of documentation, as it is in the source


def required(text: str) -> Any:  # noqa: ANN401 - the type is that of the field
    """Return a field without a default, with its documentation."""
    return field(metadata={"doc": text})


@overload
def doc(text: str, default: Callable[[], _T]) -> _T: ...
@overload
def doc(text: str, default: _T) -> _T: ...
def doc(text: str, default: Any) -> Any:
    """Return a field with its documentation and its default, or a function that makes it."""
    how = "default_factory" if callable(default) else "default"
    return field(metadata={"doc": text}, **{how: default})


# To type checkers whatever is not `required` is a default.
@dataclass_transform(frozen_default=True, field_specifiers=(required,))
def documented(**options: bool) -> Callable[[type[_T]], type[_T]]:
    """Make a class a frozen dataclass, and list its fields in its docstring."""

    def decorated(cls: type[_T]) -> type[_T]:
        # Reports have a short `repr`, which `dataclass` would replace by all fields.
        made = dataclass(frozen=True, repr=not issubclass(cls, Rendered), **options)(cls)
        entries = [
            fill(
                f"{each.name}: {each.metadata['doc']}",
                _WIDTH,
                initial_indent=" " * 4,
                subsequent_indent=" " * 8,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for each in _ordered_fields(made)
            if "doc" in each.metadata
        ]
        made.__doc__ = "\n".join([cleandoc(made.__doc__ or ""), "", "Attributes:", *entries])
        return made

    return decorated


def _ordered_fields(cls: type[Any]) -> list[Field[Any]]:
    """Return the fields of a dataclass, its own before those that it inherits."""
    found = {each.name: each for each in fields(cls)}
    return [found[name] for part in cls.__mro__ for name in get_annotations(part) if name in found]


class Rendered(ABC):
    """What renders as text, on terminals (rich), in notebooks (HTML) and as JSON."""

    @abstractmethod
    def _lines(self) -> Iterator[Line]:
        """Yield the lines of the report; control characters in them are escaped later."""

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs: what is particular to the report first."""
        return document(self)

    def styled_lines(self) -> Iterator[Line]:
        """Yield the lines of the report, each with its style.

        Whatever a table put into them, they are single lines without control characters.
        """
        return ((on_one_line(text), style) for text, style in self._lines())

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


@documented(kw_only=True)
class OperationReport(Rendered):
    """What an operation did: a headline, facts, the time of its phases, details and notes."""

    _has_shares: ClassVar[bool] = False
    """Whether each phase shows its share of the total, and the total is added."""

    phases: Mapping[str, float] = doc("Seconds by phase, in order.", dict)
    notes: tuple[str, ...] = doc("What users should know, in sentences.", ())

    @abstractmethod
    def _headline(self) -> str:
        """Return what happened, in one line."""

    @abstractmethod
    def _facts(self) -> Mapping[str, str]:
        """Return figures by what they are about; empty ones are omitted."""

    def _counts(self, noun: str, *words: str) -> str:
        """Return fields such as `files_added` that are not zero, each with its word."""
        return format_list(**{word: getattr(self, f"{noun}_{word}") for word in words})

    def _details(self) -> Iterable[str]:
        """Return further lines."""
        return ()

    def _notes(self) -> Iterable[str]:
        return self.notes

    def _lines(self) -> Iterator[Line]:
        return summary(
            self._headline(),
            self._facts(),
            self.phases,
            has_shares=self._has_shares,
            details=self._details(),
            notes=self._notes(),
        )


@documented(kw_only=True)
class ChangeReport(OperationReport):
    """What every report of a changed table tells, whatever the change was."""

    vector_bytes: int = doc("The size of the files of vectors that were written.", 0)
    vector_files: int = doc("How many of these files.", 0)

    def _vectors(self, *words: str) -> str:
        """Return how many vectors there are, as `_counts` does, and the files that hold them."""
        vectors = self._counts("vectors", *words)
        if not self.vector_files:
            return vectors
        written = f"{format_size(self.vector_bytes)} in {format_count(self.vector_files, 'file')}"
        return f"{vectors} ({written})" if vectors else written


def summary(
    headline: str,
    facts: Mapping[str, str],
    phases: Mapping[str, float] = MappingProxyType({}),
    *,
    has_shares: bool = False,
    details: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> Iterator[Line]:
    """Yield the lines of a report, each with its style; see `OperationReport` for its parts."""
    yield headline, "bold"
    facts = {name: text for name, text in facts.items() if text}
    width = max(map(len, [*facts, *phases]), default=0)
    for name, text in facts.items():
        yield f"  {name:<{width}}  {text}", ""
    total = sum(phases.values())
    for name, seconds in phases.items():
        share = f"{100 * seconds / total:.0f} %" if total and has_shares else ""
        yield f"  {name:<{width}}  {seconds:>7.2f} s  {share:>5}".rstrip(), "dim"
    if has_shares and len(phases) > 1:
        yield f"  {'total':<{width}}  {total:>7.2f} s", "dim"
    for text in details:
        yield f"  {text}", "dim"
    for note in notes:
        yield format_hint("Note: {}", note), "yellow"


def document(report: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """Return the public fields of a report as plain data, for JSON."""
    return {
        each.name: _plain(getattr(report, each.name))
        for each in _ordered_fields(type(report))
        if not each.name.startswith("_")
    }


class Stopwatch:
    """Seconds by phase, in the order in which the phases first ended.

    >>> stopwatch = Stopwatch()
    >>> with stopwatch.phase("plan"):
    ...     pass
    >>> stopwatch.add("commit", 0.5)
    >>> list(stopwatch.seconds)
    ['plan', 'commit']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @contextmanager
    def phase(
        self, name: str, describe: AbstractContextManager[object] | None = None
    ) -> Iterator[None]:
        """Add the time of the block to a phase, also if the block fails."""
        start = time.perf_counter()
        try:
            with nullcontext() if describe is None else describe:
                yield
        finally:
            self.add(name, time.perf_counter() - start)


def _plain(value: Any) -> Any:  # noqa: ANN401
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return document(value)
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
