"""Find every place where rows that satisfy a condition physically are.

    list      all files below the table's folder                                     files
    history   commits: which versions have which file, and by which columns          history
    rows      matching rows in all data and change files, deleted ones included      files, rows
    log       values that the condition names, in the files of the log               values, log
    steps     what has to be done, and when                                          report

Requests: one listing of the folder, a GET for each file of the log (two for a commit), and for each
other file one for the footer and one for each row group that the footer's statistics do not rule
out: those of the log may be wrong. Memory: see these modules; files without a match cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from delvec.delta.schema.partition_values import folder_values
from delvec.delta.skipping.statistics import prefix_length
from delvec.delta.traces import files, rows
from delvec.delta.traces.history import LogHistory, read_history
from delvec.delta.traces.log import log_places, search_text
from delvec.delta.traces.report import KINDS, PlaceKind, TracePlace, TracesReport, schedule_of
from delvec.delta.traces.values import NamedValues, is_judged, is_plain, named_values
from delvec.report.hints import call, format_hint
from delvec.report.rendering import Stopwatch
from delvec.vector import Bitmap

if TYPE_CHECKING:
    import pyarrow as pa

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.traces.report import Schedule
    from delvec.storage import Storage

# Writers that do not know the property keep this many characters of strings in statistics.
_PREFIX: Final = 32
_OF_OTHERS: Final = ("orphan", "hidden", "change", "outside")


def find_traces(
    storage: Storage, opened: Callable[[], Snapshot], condition: rows.Condition, time_zone: str
) -> TracesReport:
    """Search all that is below a table's folder for rows that satisfy a condition."""
    watch = Stopwatch()
    with watch.phase("list"):
        stored = files.stored_files(storage)
        snapshot = opened()
    with watch.phase("history"):
        history = read_history(snapshot)
        readings = rows.readings_of(condition, history.epochs)
        schedule = schedule_of(snapshot)
    predicates = [reading.predicate for reading in readings.distinct]
    linked = files.behind_links(storage, stored, history.names)
    if linked is not None:
        stored = files.joined(stored, linked)
    prefix = min(_PREFIX, *(prefix_length(each.metadata) for each in history.epochs))
    values, whole = named_values(readings.distinct, time_zone, prefix)
    judged = whole and all(map(is_judged, predicates))
    search = _Search(condition, history, readings, values, schedule, judged)
    with watch.phase("rows"):
        places = search.places(files.Suspects(stored, history))
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
        places=tuple(places),
        log_judged=judged,
        files=search.count,
        log_files=len(stored.of("log")) if values else 0,
        phases=watch.seconds,
        notes=tuple(_notes(readings.note, places, judged=judged, links=linked is not None)),
    )


@dataclass
class _Search:
    """Searches the rows of files, window by window, and counts them."""

    condition: rows.Condition
    history: LogHistory
    readings: rows.Readings
    values: Sequence[NamedValues]
    schedule: Schedule
    judged: bool
    count: int = 0

    def places(self, suspects: files.Suspects) -> list[TracePlace]:
        found: list[TracePlace] = []
        remaining = iter(suspects)
        while window := list(islice(remaining, self.condition.window)):
            self.count += len(window)
            hits, failures = self._search(window)
            matching = [(window[number], positions) for number, positions in hits.items()]
            found += rows.row_places(self.history, matching, self.schedule)
            unread = (self._unreadable(window[number], why) for number, why in failures.items())
            found += filter(None, unread)
        return found

    def _search(self, window: Sequence[files.Suspect]) -> tuple[dict[int, Bitmap], dict[int, str]]:
        """Return the files of a window that hold matching rows, and those that nobody can tell."""
        hits: dict[int, Bitmap] = {}
        failures: dict[int, str] = {}
        for reading, numbers in self._grouped(window, failures):
            searched = [window[number].file for number in numbers]
            found = self.condition.search(self.history.snapshot, reading, searched)
            for place, positions in found:
                number = numbers[place]
                if isinstance(positions, str):
                    failures[number] = positions
                else:
                    hits[number] = hits.get(number, Bitmap()) | positions
        return hits, failures

    def _grouped(
        self, window: Sequence[files.Suspect], failures: dict[int, str]
    ) -> Iterator[tuple[rows.Reading, list[int]]]:
        """Yield files that are read alike; files that cannot be read are noted as failures."""
        by_reading: dict[int, list[int]] = {}
        schemas, readings = self._schemas(window), self.readings.distinct
        for number, suspect in enumerate(window):
            schema, file = schemas.get(number), suspect.file
            if "/_delta_log/" in file.path:  # a checkpoint would be read as rows without names
                schema = "not a Parquet file of rows, but of the log of another table"
            if isinstance(schema, str):
                failures[number] = schema
                continue
            chosen: Sequence[rows.Reading] = readings[:1]
            if len(readings) > 1:
                if schema is None:  # gone since the folder was listed
                    continue
                chosen = rows.readings_for(schema, self._own(suspect), readings, file)
            elif number in schemas and schema is None:
                continue
            for reading in chosen:
                unknown = rows.unknown_partition(reading, file)
                if unknown is not None:
                    failures[number] = f"its value of the partition column {unknown} is not known"
                elif schema is not None and not rows.fits(schema, reading, file.path):
                    failures[number] = "it has a column of the condition in another type"
                else:
                    by_reading.setdefault(readings.index(reading), []).append(number)
        yield from ((readings[each], numbers) for each, numbers in by_reading.items())

    def _schemas(self, window: Sequence[files.Suspect]) -> dict[int, pa.Schema | str | None]:
        """Read the footers that have to be known before the rows are."""
        numbers = list(range(len(window)))
        if len(self.readings.distinct) == 1:
            if not self.condition.checks_first:
                return {}
            # A live file that cannot be read is an error of the table.
            numbers = [n for n in numbers if window[n].kind != "live"]
        read = rows.footers(self.history.snapshot.storage, [window[n].file for n in numbers])
        return dict(zip(numbers, read, strict=True))

    def _own(self, suspect: files.Suspect) -> rows.Reading | None:
        """Return the reading of the last version that has a file, if it has the columns."""
        if suspect.version is None or suspect.version < 0:  # only a checkpoint has its tombstone
            return None
        return self.readings.by_epoch.get(self.history.epoch_of(suspect.version).first)

    def _unreadable(self, suspect: files.Suspect, reason: str) -> TracePlace | None:
        """Return the place of a file that is not Parquet; None for a text that mentions nothing."""
        file, detail = suspect.file, reason
        kind: PlaceKind = "unreadable"
        if suspect.kind in _OF_OTHERS and "Parquet" in reason:
            storage = self.history.snapshot.storage
            is_in = search_text(storage, file.path, file.size, self.values)
            if is_in is False and self.judged:
                return None
            kind, detail = ("text", "") if is_in else ("unreadable", "it could hold anything")
        steps = self.schedule.of(suspect.kind, suspect.modified_ms)
        return TracePlace(kind, file.path, None, file.size, None, detail, steps)


def _names(
    stored: files.StoredFiles,
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
            key in keys and keys[key].is_partition(text) for key, text in folder_values(path)
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
        yield format_hint(
            "links lead to folders of the table: they were searched where the log names files in"
            " them; {} and {} do not look there",
            call("vacuum"),
            call("clean_log"),
        )
    if not judged:
        yield format_hint(
            "the log was not judged by values: the condition would have to compare a column by ="
            " or IN, with values that texts can spell. Statistics in the log may hold values of"
            " rows that match until {}",
            call("clean_log"),
        )
    steps = [step for place in places for step in place.steps]
    if any(step.action == call("vacuum") and step.not_before for step in steps):
        yield format_hint(
            "{} does not wait; but then nobody may be reading or writing the table meanwhile",
            call("vacuum", retention_hours=0, force=True),
        )
