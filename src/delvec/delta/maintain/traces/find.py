"""Find every place where rows that satisfy a condition physically are.

    list      all files below the table's folder                                     files
    history   commits: which versions have which file, and by which columns          history
    rows      matching rows in all data and change files, deleted ones included      suspects, rows
    log       values that the condition names, in the files of the log               values, log
    steps     what has to be done, and when                                          steps

Requests: one listing of the folder, a GET for each file of the log (two for a commit), and for each
other file one for the footer and one for each row group that the footer's statistics do not rule
out: those of the log may be wrong. Memory: see the modules; nothing is kept of files without a
match.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from delvec.delta.maintain.traces.files import behind_links, joined, stored_files
from delvec.delta.maintain.traces.history import read_history
from delvec.delta.maintain.traces.log import search_text
from delvec.delta.maintain.traces.log_places import log_places
from delvec.delta.maintain.traces.report import KINDS, TracePlace, TracesReport
from delvec.delta.maintain.traces.row_places import row_places
from delvec.delta.maintain.traces.rows import (
    fits,
    footers,
    readings_for,
    readings_of,
    unknown_partition,
)
from delvec.delta.maintain.traces.steps import schedule_of
from delvec.delta.maintain.traces.suspects import Suspects, folder_values, is_inner_log
from delvec.delta.maintain.traces.values import is_judged, is_plain, named_values
from delvec.delta.stats.indexed_columns import prefix_length
from delvec.report.phases import Stopwatch
from delvec.report.wordings import call, worded
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.traces.files import StoredFiles
    from delvec.delta.maintain.traces.history import LogHistory
    from delvec.delta.maintain.traces.report import PlaceKind
    from delvec.delta.maintain.traces.rows import Condition, Reading, Readings
    from delvec.delta.maintain.traces.steps import Schedule
    from delvec.delta.maintain.traces.suspects import Suspect
    from delvec.delta.maintain.traces.values import NamedValues
    from delvec.storage import Storage

__all__ = ["find_traces"]

# Writers that do not know the property keep this many characters of strings in statistics.
_PREFIX: Final = 32
_OF_OTHERS: Final = ("orphan", "hidden", "change", "outside")


def find_traces(
    storage: Storage, opened: Callable[[], Snapshot], condition: Condition, time_zone: str = "UTC"
) -> TracesReport:
    """Search all that is below a table's folder for rows that satisfy a condition.

    Args:
        storage: The table.
        opened: Returns its newest version; called after the folder is listed, so that no file of
            a commit of the meantime is taken for an orphan.
        condition: The condition, and what evaluates it.
        time_zone: Of timestamps that name none.

    Raises:
        InvalidArgumentError: No version in the log has the columns of the condition.
        FormatError: The log is damaged.
    """
    watch = Stopwatch()
    with watch.phase("list"):
        stored = stored_files(storage)
        snapshot = opened()
    with watch.phase("history"):
        history = read_history(snapshot)
        readings = readings_of(condition, history.epochs)
        schedule = schedule_of(snapshot)
    predicates = [reading.predicate for reading in readings.distinct]
    linked = behind_links(storage, stored, history.names)
    if linked is not None:
        stored = joined(stored, linked)
    values, whole = named_values(
        readings.distinct,
        time_zone,
        min(_PREFIX, *(prefix_length(each.metadata) for each in history.epochs)),
    )
    judged = whole and all(map(is_judged, predicates))
    search = _Search(condition, history, readings, values, schedule, judged=judged)
    with watch.phase("rows"):
        places = search.places(Suspects(stored, history))
    with watch.phase("log"):
        places += log_places(history, stored, values, places, schedule)
        if all(map(is_plain, predicates)):
            places += _names(stored, places, values, schedule)
    order = list(KINDS)
    places.sort(key=lambda place: (order.index(place.kind), place.path))
    return TracesReport(
        snapshot.table,
        snapshot.version,
        condition.text,
        tuple(places),
        log_judged=judged,
        files=search.files,
        log_files=len(stored.of("log")) if values else 0,
        phases=watch.seconds,
        notes=tuple(_notes(readings.note, places, judged=judged, links=linked is not None)),
    )


class _Search:
    """Searches the rows of files, window by window."""

    def __init__(
        self,
        condition: Condition,
        history: LogHistory,
        readings: Readings,
        values: Sequence[NamedValues],
        schedule: Schedule,
        *,
        judged: bool,
    ) -> None:
        self._condition, self._history = condition, history
        self._readings, self._by_epoch = readings.distinct, readings.by_epoch
        self._values, self._schedule, self._judged = values, schedule, judged
        self._storage = history.snapshot.storage
        self.files = 0

    def places(self, suspects: Suspects) -> list[TracePlace]:
        found: list[TracePlace] = []
        remaining = iter(suspects)
        while window := list(islice(remaining, self._condition.window)):
            self.files += len(window)
            hits, failures = self._search(window)
            found += row_places(self._history, hits, self._schedule)
            for suspect, reason in failures:
                if (place := self._unreadable(suspect, reason)) is not None:
                    found.append(place)
        return found

    def _search(
        self, window: Sequence[Suspect]
    ) -> tuple[list[tuple[Suspect, Bitmap]], list[tuple[Suspect, str]]]:
        """Return the files of a window that hold matching rows, and those that nobody can tell."""
        hits: dict[int, Bitmap] = {}
        failures: dict[int, str] = {}
        for reading, numbers in self._grouped(window, failures):
            files = [window[number].file for number in numbers]
            found = self._condition.search(self._history.snapshot, reading, files)
            for place, positions in found:
                number = numbers[place]
                if isinstance(positions, str):
                    failures[number] = positions
                else:
                    hits[number] = hits.get(number, Bitmap()) | positions
        return (
            [(window[number], positions) for number, positions in hits.items()],
            [(window[number], reason) for number, reason in failures.items()],
        )

    def _grouped(
        self, window: Sequence[Suspect], failures: dict[int, str]
    ) -> Iterator[tuple[Reading, list[int]]]:
        """Yield files that are read alike; files that cannot be read are noted as failures."""
        by_reading: dict[int, list[int]] = {}
        schemas = self._schemas(window)
        for number, suspect in enumerate(window):
            schema = schemas.get(number)
            if is_inner_log(suspect.file.path):  # a checkpoint would be read as rows without names
                schema = "not a Parquet file of rows, but of the log of another table"
            if isinstance(schema, str):
                failures[number] = schema
                continue
            chosen: Sequence[Reading] = self._readings[:1]
            if len(self._readings) > 1:
                if schema is None:  # gone since the folder was listed
                    continue
                chosen = readings_for(schema, self._own(suspect), self._readings, suspect.file)
            elif number in schemas and schema is None:
                continue
            for reading in chosen:
                unknown = unknown_partition(reading, suspect.file)
                if unknown is not None:
                    failures[number] = f"its value of the partition column {unknown} is not known"
                elif schema is not None and not fits(schema, reading, suspect.file.path):
                    failures[number] = "it has a column of the condition in another type"
                else:
                    by_reading.setdefault(self._readings.index(reading), []).append(number)
        yield from ((self._readings[each], numbers) for each, numbers in by_reading.items())

    def _schemas(self, window: Sequence[Suspect]) -> dict[int, pa.Schema | str | None]:
        """Read the footers that have to be known before the rows are."""
        numbers = range(len(window))
        if len(self._readings) == 1:
            if not self._condition.checks_first:
                return {}
            # A live file that cannot be read is an error of the table.
            numbers_of = [n for n in numbers if window[n].kind != "live"]
        else:
            numbers_of = list(numbers)
        files = [window[number].file for number in numbers_of]
        return dict(zip(numbers_of, footers(self._storage, files), strict=True))

    def _own(self, suspect: Suspect) -> Reading | None:
        """Return the reading of the last version that has a file, if it has the columns."""
        if suspect.version is None or suspect.version < 0:  # only a checkpoint has its tombstone
            return None
        return self._by_epoch.get(self._history.epoch_of(suspect.version).first)

    def _unreadable(self, suspect: Suspect, reason: str) -> TracePlace | None:
        """Return the place of a file that is not Parquet; None for a text that mentions nothing."""
        file, detail = suspect.file, reason
        kind: PlaceKind = "unreadable"
        if suspect.kind in _OF_OTHERS and "Parquet" in reason:
            is_in = search_text(self._storage, file.path, file.size, self._values)
            if is_in is False and self._judged:
                return None
            kind, detail = ("text", "") if is_in else ("unreadable", "it could hold anything")
        steps = self._schedule.of(suspect.kind, suspect.modified_ms)
        return TracePlace(kind, file.path, None, file.size, None, detail, steps)


def _names(
    stored: StoredFiles,
    places: Sequence[TracePlace],
    values: Sequence[NamedValues],
    schedule: Schedule,
) -> list[TracePlace]:
    """Return files without rows in whose folders a value is, unless a file beside them is found."""
    known = {place.path for place in places}
    keys = {each.physical[0]: each for each in values if len(each.physical) == 1}
    without_rows = stored.select((stored.sizes == 0) | stored.are("vector", "checksum"))
    found = []
    for path, size, modified in without_rows.entries():
        folder, _, name = path.rpartition("/")
        beside = f"{folder}/{name.removeprefix('.').removesuffix('.crc')}"
        if beside not in known and any(
            key in keys and keys[key].is_partition(text)
            for key, text in folder_values(path).items()
        ):
            steps = schedule.of("orphan", modified)
            found.append(TracePlace("name", path, None, size, None, "the folder's name", steps))
    return found


def _notes(
    note: str | None, places: Sequence[TracePlace], *, judged: bool, links: bool
) -> Iterator[str]:
    if note is not None:
        yield note
    if links:
        yield worded(
            "links lead to folders of the table: they were searched where the log names files in"
            " them; {} and {} do not look there",
            call("vacuum"),
            call("clean_log"),
        )
    if not judged:
        yield worded(
            "the log was not judged by values: the condition would have to compare a column by ="
            " or IN, with values that texts can spell. Statistics in the log may hold values of"
            " rows that match until {}",
            call("clean_log"),
        )
    steps = [step for place in places for step in place.steps]
    if any(step.action == call("vacuum") and step.not_before for step in steps):
        yield worded(
            "{} does not wait; but then nobody may be reading or writing the table meanwhile",
            call("vacuum", retention_hours=0, force=True),
        )
