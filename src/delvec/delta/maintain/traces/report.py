"""Where rows that satisfy a condition still physically exist, for people and for programs.

A report holds one entry for each file in which something was found, some 500 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from delvec.report.figures import counted, size, visible
from delvec.report.rendered import Rendered, Summary
from delvec.report.wordings import Wording, call, in_command, on_one_line, worded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delvec.report.rendered import Line

__all__ = [
    "KINDS",
    "LATER_CHECKPOINT",
    "PlaceKind",
    "Step",
    "TracePlace",
    "TracesReport",
    "shown_time",
]

PlaceKind = Literal[
    "live",
    "deleted",
    "removed",
    "change",
    "orphan",
    "hidden",
    "outside",
    "log",
    "text",
    "name",
    "unreadable",
]

KINDS: Final[Mapping[PlaceKind, str]] = {
    "live": "live rows",
    "deleted": "deleted by vectors",
    "removed": "removed files",
    "change": "change data",
    "orphan": "orphan files",
    "hidden": "hidden files",
    "outside": "outside the table",
    "log": "transaction log",
    "text": "texts",
    "name": "names of files",
    "unreadable": "unreadable",
}
"""The kinds of places, in the order of reports, and how these call them."""

LATER_CHECKPOINT: Final = worded("{} after the next commit", call("checkpoint"))
"""The step for a value in the newest commit, which a checkpoint of its own version keeps."""

# The order in which steps help; what has to be done by hand comes last.
_ORDER: Final = (
    *(call("delete"), call("purge"), call("checkpoint")),
    *(LATER_CHECKPOINT, call("vacuum"), call("clean_log")),
)
_SHOWN: Final = 5
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do for a trace to be gone.

    Attributes:
        action: A call such as `vacuum()`, or what has to be done by hand.
        not_before: The earliest time at which it helps; None if it does right away.
    """

    action: str
    not_before: datetime | None = None

    def __str__(self) -> str:
        return str(self.told)

    @property
    def told(self) -> Wording:
        """The step with its time, in words."""
        when = f" after {shown_time(self.not_before)}" if self.not_before else ""
        return worded("{}{}", self.action, when)

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data; the time in ISO 8601."""
        when = self.not_before.isoformat(timespec="seconds") if self.not_before else None
        action = Wording(self.action, in_command(self.action).strip("`"))
        return {"action": action, "not_before": when}


@dataclass(frozen=True, slots=True)
class TracePlace:
    """A file in which matching rows, or their values, still are.

    Attributes:
        kind: `live` (rows of the newest version), `deleted` (by a deletion vector, in a file of
            the newest version), `removed` (in a file that the newest version does not have any
            more), `change` (in a file of the change data feed), `orphan` (in a file that the log
            does not name), `hidden` (in a file that vacuum does not look at), `outside` (in a file
            of another table, as in shallow clones), `log` (a value that the condition names, in a
            file of the log), `text` (such a value in a plain text), `name` (such a value in the
            name of a folder), `unreadable` (a file that could hold anything).
        path: The file, relative to the table, or its full name if it is outside of it.
        rows: How many rows match; None if rows cannot be counted.
        bytes: The size of the file.
        versions: The first and the last version that have the rows, of those that can still be
            read; None if there is none. For a change file or a file of the log: its version.
        detail: What was found, where that is no row.
        steps: What has to be done, in order, until the trace is gone.
    """

    kind: PlaceKind
    path: str
    rows: int | None
    bytes: int
    versions: tuple[int, int] | None = None
    detail: str = ""
    steps: tuple[Step, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the place as plain data."""
        return {
            "kind": self.kind,
            "path": self.path,
            "rows": self.rows,
            "bytes": self.bytes,
            "versions": None if self.versions is None else list(self.versions),
            "detail": self.detail,
            "steps": [each.to_json() for each in self.steps],
        }


@dataclass(frozen=True)
class TracesReport(Rendered):
    """Where rows that satisfy a condition still are, and when they will be gone.

    It is true while there are traces, and false when there are none.

    >>> place = TracePlace("deleted", "part-0.parquet", 12, 2048, steps=(Step("purge()"),))
    >>> print(TracesReport("/lake/orders", 7, "name = 'Anna'", places=(place,), files=3))
    TRACES of name = 'Anna' in /lake/orders, version 7: 12 rows in 1 data file
      searched            3 files
      deleted by vectors  12 rows in 1 file (2.0 KiB): run purge()
        part-0.parquet: 12 rows
    >>> bool(TracesReport("/lake/orders", 9, "name = 'Anna'"))
    False

    Attributes:
        table: Where the table is.
        version: Its newest version.
        condition: The condition.
        places: Where something was found; empty if nothing is left.
        log_judged: Whether values in the log were searched for. That needs a condition that names
            the values of a column, by `=` or `IN`.
        files: Data and change files whose rows were looked at, those included that the statistics
            in their footers rule out.
        log_files: Files of the log that were searched.
        phases: Seconds by phase.
        notes: What users should know, in sentences.
    """

    table: str
    version: int
    condition: str
    places: tuple[TracePlace, ...] = ()
    log_judged: bool = True
    files: int = 0
    log_files: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self.places

    def __bool__(self) -> bool:
        return bool(self.places)

    @property
    def gone_at(self) -> datetime | None:
        """The time at which the last of the steps can be taken; None if all can be taken now."""
        return latest(step for place in self.places for step in place.steps)

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs, with every place."""
        gone = self.gone_at
        return {
            "table": self.table,
            "version": self.version,
            "condition": self.condition,
            "is_empty": self.is_empty,
            "gone_at": gone.isoformat(timespec="seconds") if gone else None,
            "log_judged": self.log_judged,
            "files": self.files,
            "log_files": self.log_files,
            "places": [each.to_json() for each in self.places],
            "phases": dict(self.phases),
            "notes": list(self.notes),
        }

    def _lines(self) -> Iterator[Line]:
        searched = [counted(self.files, "file")] if self.files else []
        searched += [f"{counted(self.log_files, 'file')} of the log"] if self.log_files else []
        facts = {"searched": " and ".join(searched)}
        groups = {
            kind: [each for each in self.places if each.kind == kind]
            for kind in KINDS
            if any(each.kind == kind for each in self.places)
        }
        headline = (
            f"TRACES of {visible(self.condition)} in {visible(self.table)}, version"
            f" {self.version:,}: {_headline(groups)}"
        )
        facts |= {KINDS[kind]: "" for kind in groups}
        width = max(map(len, facts), default=0)
        yield from Summary(headline, {f"{'searched':<{width}}": facts["searched"]}).lines()
        for kind, members in groups.items():
            yield worded("  {}  {}", f"{KINDS[kind]:<{width}}", _sentence(kind, members)), ""
            for each in members[:_SHOWN]:
                yield f"    {_place_line(each)}", "dim"
            if len(members) > _SHOWN:
                yield f"    and {len(members) - _SHOWN:,} more", "dim"
        yield from ((worded("Note: {}", on_one_line(note)), "yellow") for note in self.notes)


def latest(steps: Iterator[Step]) -> datetime | None:
    """Return the latest time among steps; None if all can be taken now."""
    return max((each.not_before for each in steps if each.not_before), default=None)


def shown_time(moment: datetime) -> str:
    """Return a time in minutes, rounded up.

    >>> from datetime import timezone
    >>> shown_time(datetime(2026, 11, 24, 9, 59, 1, tzinfo=timezone.utc))
    '2026-11-24 10:00 UTC'
    """
    whole = moment.replace(second=0, microsecond=0)
    whole += _MINUTE if whole < moment else timedelta()
    return f"{whole:%Y-%m-%d %H:%M} UTC"


def _headline(groups: Mapping[PlaceKind, Sequence[TracePlace]]) -> str:
    if not groups:
        return "nothing is left"
    named = {
        "log": ("file", " of the log"),
        "text": ("text", ""),
        "name": ("name", ""),
        "unreadable": ("unreadable file", ""),
    }
    told = []
    rows = [each for kind, members in groups.items() if kind not in named for each in members]
    if rows:
        total = counted(sum(each.rows or 0 for each in rows), "row")
        files = len({each.path for each in rows})
        told.append(f"{total} in {counted(files, 'data file')}")
    for kind in (kind for kind in groups if kind in named):
        first, last = named[kind]
        told.append(f"{counted(len(groups[kind]), first)}{last}")
    return ", ".join(told)


def _sentence(kind: PlaceKind, members: Sequence[TracePlace]) -> Wording:
    files = f"{counted(len(members), 'file')} ({size(sum(each.bytes for each in members))})"
    if kind in ("log", "text", "name"):
        what = f"the value is in {files}"
    elif kind == "unreadable":
        what = f"{files} that could hold anything"
    else:
        what = f"{counted(sum(each.rows or 0 for each in members), 'row')} in {files}"
    reached = [each.versions for each in members if each.versions]
    if reached and kind in ("deleted", "removed"):
        first, last = min(each[0] for each in reached), max(each[1] for each in reached)
        what += f", reached by time travel to {_versions(first, last)}"
    return worded("{}: {}", what, _advice([each.steps for each in members]))


def _versions(first: int, last: int) -> str:
    return f"version {first:,}" if first == last else f"versions {first:,} to {last:,}"


def _advice(all_steps: Sequence[Sequence[Step]]) -> Wording:
    """Return the steps of several places as one sentence, each with its latest time.

    >>> first = [Step(call("checkpoint")), Step(call("clean_log"))]
    >>> _advice([first, [Step(LATER_CHECKPOINT), Step(call("clean_log"))]])
    'run checkpoint() after the next commit, then clean_log()'
    """
    times: dict[str, datetime | None] = {}
    for step in (step for steps in all_steps for step in steps):
        known = times.get(step.action)
        times[step.action] = max(filter(None, (known, step.not_before)), default=None)
    if LATER_CHECKPOINT in times:  # which is one of all versions before as well
        both = (times[LATER_CHECKPOINT], times.pop(call("checkpoint"), None))
        times[LATER_CHECKPOINT] = max(filter(None, both), default=None)
    actions: list[str] = [each for each in _ORDER if each in times]
    actions += [each for each in times if each not in _ORDER]
    if not actions:
        return Wording("nothing removes it")
    template = ", then ".join(["{}"] * len(actions))
    told = worded(template, *(Step(action, times[action]).told for action in actions))
    return worded("run {}", told) if actions[0] in _ORDER else told


def _place_line(place: TracePlace) -> str:
    rows = "" if place.rows is None else counted(place.rows, "row")
    told = [each for each in (rows, visible(place.detail)) if each]
    return f"{visible(place.path)}: {', '.join(told)}" if told else visible(place.path)
