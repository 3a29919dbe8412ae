"""Where rows that satisfy a condition still physically exist, and after which step they are gone.

    live row            delete(), purge() if that writes a vector, vacuum() once the file's
                        retention is over
    deleted by vector   purge(), vacuum() once the old file's retention is over
    dropped column      purge(), vacuum() once the old file's retention is over
    removed file        vacuum(), when it was removed + retention
    change file         vacuum(), when it was written + retention
    orphan file         the same
    footer              rewrite the file, with comments and defaults that do not have the value
    log                 clean_log(), once a later checkpoint is older than the retention of the
                        log; before that purge() and checkpoint(), if live entries mention it, and
                        other comments, defaults and properties, if these do

A report holds one entry for each file in which something was found, some 500 bytes each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from delvec.delta.log.segment import list_log
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Property, retention_ms
from delvec.documents import EPOCH, TIMES_MS
from delvec.report.format import format_count, format_size, nonzero
from delvec.report.hints import Wording, call, format_hint, in_command
from delvec.report.rendering import Line, Rendered, doc, document, documented, required, summary

PlaceKind = Literal[
    "live",
    "deleted",
    "dropped",
    "removed",
    "change",
    "orphan",
    "hidden",
    "outside",
    "footer",
    "log",
    "text",
    "name",
    "unreadable",
]
KINDS: Final[Mapping[PlaceKind, str]] = {
    "live": "live rows",
    "deleted": "deleted by vectors",
    "dropped": "dropped columns",
    "removed": "removed files",
    "change": "change data",
    "orphan": "orphan files",
    "hidden": "hidden files",
    "outside": "outside the table",
    "footer": "footers of files",
    "log": "transaction log",
    "text": "texts",
    "name": "names of files",
    "unreadable": "unreadable",
}
"""The kinds of places, in the order of reports, and how these call them."""
LATER_CHECKPOINT: Final = format_hint("{} after the next commit", call("checkpoint"))
"""The step for a value in the newest commit, which a checkpoint of its own version keeps."""
_REDEFINE: Final = "give the table other comments, defaults and properties"
_APPLICATION: Final = "have the table made anew, since the id of an application stays in its log"
_REWRITE: Final = format_hint("rewrite its files by {}", call("optimize", zorder_by=None))
_BY_HAND: Final = format_hint("delete the file by hand, {} does not look at it", call("vacuum"))
# The order in which steps help; what has to be done by hand comes last.
_ORDER: Final = (
    *(_REDEFINE, _APPLICATION, call("delete"), call("purge"), _REWRITE, call("checkpoint")),
    *(LATER_CHECKPOINT, call("vacuum"), call("clean_log")),
)
_SHOWN: Final = 5
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = 86_400_000


@documented(slots=True)
class Step:
    """Something to do for a trace to be gone."""

    action: str = required("A call such as `vacuum()`, or what has to be done by hand.")
    not_before: datetime | None = doc("The earliest time at which it helps; None if now.", None)

    def __str__(self) -> str:
        return str(self.told)

    @property
    def told(self) -> Wording:
        """The step with its time, in words."""
        when = f" after {shown_time(self.not_before)}" if self.not_before else ""
        return format_hint("{}{}", self.action, when)

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data; the time in ISO 8601."""
        when = self.not_before.isoformat(timespec="seconds") if self.not_before else None
        action = Wording(self.action, in_command(self.action).strip("`"))
        return {"action": action, "not_before": when}


@documented(slots=True)
class TracePlace:
    """A file in which matching rows, or their values, still are."""

    kind: PlaceKind = required(
        "`live` (rows of the newest version), `deleted` (by a deletion vector, in a file of the"
        " newest version), `dropped` (in a column that was dropped, in a file of the newest"
        " version), `removed` (in a file that the newest version does not have any more), `change`"
        " (in a file of the change data feed), `orphan` (in a file that the log does not name),"
        " `hidden` (in a file that vacuum does not look at), `outside` (in a file of another table,"
        " as in shallow clones), `footer` (a value that the condition names, in the comments and"
        " defaults that a data file keeps), `log` (such a value in a file of the log), `text` (such"
        " a value in a plain text), `name` (such a value in the name of a folder), `unreadable` (a"
        " file that could hold anything)."
    )
    path: str = required("The file, relative to the table, or its full name if it is outside.")
    rows: int | None = required("How many rows match; None if rows cannot be counted.")
    bytes: int = required("The size of the file.")
    versions: tuple[int, int] | None = doc(
        "The first and the last version that have the rows, of those that can still be read;"
        " None if there is none. For a change file or a file of the log: its version.",
        None,
    )
    detail: str = doc("What was found, where that is no row.", "")
    steps: tuple[Step, ...] = doc("What has to be done, in order, until the trace is gone.", ())

    def to_json(self) -> dict[str, Any]:
        """Return the place as plain data."""
        return document(self)


@documented()
class TracesReport(Rendered):
    """Where rows that satisfy a condition still are, and when they will be gone.

    It is true while there are traces, or places that could not be judged, and false when nothing is
    left for certain.

    >>> place = TracePlace("deleted", "part-0.parquet", 12, 2048, steps=(Step("purge()"),))
    >>> print(TracesReport("/lake/orders", 7, "name = 'Anna'", places=(place,), files=3))
    TRACES of name = 'Anna' in /lake/orders, version 7: 12 rows in 1 data file
      searched            3 files
      deleted by vectors  12 rows in 1 file (2.0 KiB): run purge()
        part-0.parquet: 12 rows
    >>> bool(TracesReport("/lake/orders", 9, "name = 'Anna'"))
    False
    """

    table: str = required("Where the table is.")
    version: int = required("Its newest version.")
    condition: str = required("The condition.")
    time: datetime | None = doc("When the search began.", None)
    delvec: str = doc("The version of delvec that searched.", "")
    host: str = doc("The machine that it ran on.", "")
    table_id: str | None = doc("The table's own id.", None)
    log_judged: bool = doc(
        "Whether values were searched for in the log: only if the condition has `=` or `IN`.", True
    )
    files: int = doc(
        "Data and change files that were looked at, also if their statistics ruled them out.", 0
    )
    log_files: int = doc("Files of the log that were searched.", 0)
    other_files: int = doc(
        "Files of deletion vectors and of Hadoop's checksums, whose bytes were searched.", 0
    )
    places: tuple[TracePlace, ...] = doc("Where something was found; empty if nothing is left.", ())
    phases: Mapping[str, float] = doc("Seconds by phase.", dict)
    notes: tuple[str, ...] = doc("What users should know, in sentences.", ())

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left for certain."""
        return not self

    def __bool__(self) -> bool:
        return bool(self.places) or not self.log_judged

    @property
    def gone_at(self) -> datetime | None:
        """The time at which the last of the steps can be taken; None if all can be taken now."""
        steps = (step for place in self.places for step in place.steps)
        return max((each.not_before for each in steps if each.not_before), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs, with every place."""
        gone = self.gone_at
        when = gone.isoformat(timespec="seconds") if gone else None
        found = super().to_json()
        found["time"] = self.time.isoformat(timespec="seconds") if self.time else None
        record = ("table", "table_id", "version", "time", "delvec", "host", "condition")
        first = {name: found.pop(name) for name in record}
        return {**first, "is_empty": self.is_empty, "gone_at": when, **found}

    def _lines(self) -> Iterator[Line]:
        searched = (
            nonzero(self.files, "file"),
            nonzero(self.log_files, "file of the log"),
            nonzero(self.other_files, "file of vectors or checksums"),
        )
        by_kind = {kind: [each for each in self.places if each.kind == kind] for kind in KINDS}
        groups = {kind: members for kind, members in by_kind.items() if members}
        headline = (
            f"TRACES of {self.condition} in {self.table}, version {self.version:,}:"
            f" {_headline(groups, is_judged=self.log_judged)}"
        )
        *first, last = [each for each in searched if each] or [""]
        told = f"{', '.join(first)} and {last}" if first else last
        facts = {"searched": told, "not searched": "" if self.log_judged else "the log"}
        facts = {name: text for name, text in facts.items() if text}
        width = max(map(len, (*facts, *(KINDS[kind] for kind in groups))), default=0)
        yield from summary(headline, {f"{name:<{width}}": text for name, text in facts.items()})
        for kind, members in groups.items():
            yield format_hint("  {}  {}", f"{KINDS[kind]:<{width}}", _sentence(kind, members)), ""
            for each in members[:_SHOWN]:
                yield f"    {_place_line(each)}", "dim"
            if len(members) > _SHOWN:
                yield f"    and {len(members) - _SHOWN:,} more", "dim"
        yield from ((format_hint("Note: {}", note), "yellow") for note in self.notes)


@dataclass(frozen=True)
class LogState:
    """What of the newest version mentions a value, and so would be in its checkpoint too."""

    is_live: bool  # statistics or partition values of live files
    has_live_rows: bool  # rows that match are live
    is_defined: bool  # comments, defaults or properties
    has_application: bool  # the id of an application that wrote, with its last transaction
    is_named: bool  # names and tags of live files
    # When the last file was removed whose tombstone does; None without such a file.
    removed_ms: int | None


@dataclass(frozen=True)
class Schedule:
    """The times at which what a table does not need any more may be removed.

    `files_ms` and `log_ms` are how long removed files and the log are kept, None if the property is
    not a fixed interval; `commits` are the times at which they were put; checkpoints ascend.
    """

    now_ms: int
    files_ms: int | None
    log_ms: int | None
    writes_vectors: bool
    version: int
    commits: Mapping[int, int]
    checkpoints: tuple[int, ...]

    def of(
        self, kind: PlaceKind, modified_ms: int, removed_ms: int | None = None
    ) -> tuple[Step, ...]:
        if kind == "live":
            return self.live()
        if kind in ("deleted", "dropped"):
            return self.deleted()
        if kind == "hidden":
            return (Step(_BY_HAND),)
        if kind == "outside":
            return (Step("do the same for the table that the file belongs to"),)
        since = modified_ms if removed_ms is None else max(modified_ms, removed_ms)
        return (self._vacuum(since),)

    def live(self) -> tuple[Step, ...]:
        purge = (Step(call("purge")),) if self.writes_vectors else ()
        return (Step(call("delete")), *purge, self._vacuum(self.now_ms))

    def deleted(self) -> tuple[Step, ...]:
        return (Step(call("purge")), self._vacuum(self.now_ms))

    def footer(self, kind: PlaceKind, modified_ms: int, *, is_defined: bool) -> tuple[Step, ...]:
        """Return the steps for a file whose footer has a value, by what its rows would be."""
        if kind != "live":
            return self.of(kind, modified_ms)
        first = (Step(_REDEFINE),) if is_defined else ()
        return (*first, Step(_REWRITE), self._vacuum(self.now_ms))

    def log(self, version: int | None, state: LogState) -> tuple[Step, ...]:
        expired = 0
        if state.removed_ms is not None and self.files_ms is not None:
            expired = state.removed_ms + self.files_ms
        begin = [Step(_REDEFINE)] if state.is_defined else []
        begin += [Step(_APPLICATION)] if state.has_application else []
        if state.is_live or state.has_live_rows:
            begin += (self.live() if state.has_live_rows else self.deleted())[:-1]
        begin += [Step(_REWRITE)] if state.is_named else []
        if begin or expired > self.now_ms:
            due = max(expired, self.now_ms)
            return (*begin, Step(call("checkpoint"), self._future(due)), self._clean_log(due))
        newest = self.version if version is None else version
        later = [each for each in self.checkpoints if each > newest and each in self.commits]
        if later:
            return (self._clean_log(self.commits[later[0]]),)
        if newest < self.version:
            return (Step(call("checkpoint")), self._clean_log(self.commits.get(self.version)))
        # The commit of a checkpoint's own version is kept with it.
        return (Step(LATER_CHECKPOINT), self._clean_log(self.now_ms))

    def _vacuum(self, since_ms: int) -> Step:
        if self.files_ms is None:
            return Step(call("vacuum"))
        return Step(call("vacuum"), self._future(since_ms + self.files_ms))

    def _clean_log(self, since_ms: int | None) -> Step:
        if self.log_ms is None or since_ms is None:
            return Step(call("clean_log"))
        # Logs are cleaned up by whole days.
        whole_day = -(-since_ms // _DAY) * _DAY
        return Step(call("clean_log"), self._future(whole_day + self.log_ms))

    def _future(self, time_ms: int) -> datetime | None:
        if time_ms <= self.now_ms:
            return None
        return EPOCH + timedelta(milliseconds=min(time_ms, TIMES_MS[-60_000]))


def schedule_of(snapshot: Snapshot) -> Schedule:
    """Return the times of a table; lists its log."""
    listing = list_log(snapshot.storage)
    properties = snapshot.metadata.configuration
    return Schedule(
        int(time.time() * 1000),
        retention_ms(properties, Property.DELETED_FILE_RETENTION),
        retention_ms(properties, Property.LOG_RETENTION),
        snapshot.protocol.has_vectors and snapshot.metadata.is_on(Property.ENABLE_DELETION_VECTORS),
        snapshot.version,
        {version: file.modified_ms for version, file in listing.commits.items()},
        tuple(sorted({each.version for each in listing.checkpoints})),
    )


def shown_time(moment: datetime) -> str:
    """Return a time in minutes, rounded up.

    >>> from datetime import timezone
    >>> shown_time(datetime(2026, 11, 24, 9, 59, 1, tzinfo=timezone.utc))
    '2026-11-24 10:00 UTC'
    """
    whole = moment.replace(second=0, microsecond=0)
    whole += _MINUTE if whole < moment else timedelta()
    return f"{whole:%Y-%m-%d %H:%M} UTC"


def _headline(groups: Mapping[PlaceKind, Sequence[TracePlace]], *, is_judged: bool) -> str:
    if not groups:
        return "nothing is left" if is_judged else "no row was found, the log was not judged"
    named = {
        "footer": "footer",
        "log": "file of the log",
        "text": "text",
        "name": "name",
        "unreadable": "unreadable file",
    }
    told = []
    rows = [each for kind, members in groups.items() if kind not in named for each in members]
    if rows:
        total = format_count(sum(each.rows or 0 for each in rows), "row")
        files = len({each.path for each in rows})
        told.append(f"{total} in {format_count(files, 'data file')}")
    told += [format_count(len(groups[kind]), named[kind]) for kind in groups if kind in named]
    told += [] if is_judged else ["the log was not judged"]
    return ", ".join(told)


def _sentence(kind: PlaceKind, members: Sequence[TracePlace]) -> Wording:
    size = format_size(sum(each.bytes for each in members))
    files = f"{format_count(len(members), 'file')} ({size})"
    if kind in ("footer", "log", "text", "name"):
        what = f"the value is in {files}"
    elif kind == "unreadable":
        what = f"{files} that could hold anything"
    else:
        what = f"{format_count(sum(each.rows or 0 for each in members), 'row')} in {files}"
    reached = [each.versions for each in members if each.versions]
    if reached and kind in ("deleted", "removed"):
        first, last = min(each[0] for each in reached), max(each[1] for each in reached)
        told = f"version {first:,}" if first == last else f"versions {first:,} to {last:,}"
        what += f", reached by time travel to {told}"
    return format_hint("{}: {}", what, _advice([each.steps for each in members]))


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
    told = format_hint(template, *(Step(action, times[action]).told for action in actions))
    is_call = actions[0] in _ORDER and actions[0] not in (_REDEFINE, _APPLICATION, _REWRITE)
    return format_hint("run {}", told) if is_call else told


def _place_line(place: TracePlace) -> str:
    rows = "" if place.rows is None else format_count(place.rows, "row")
    told = ", ".join(filter(None, (rows, place.detail)))
    return f"{place.path}: {told}" if told else place.path
