"""Find every place where rows that satisfy a condition physically are.

    list      all files below the table's folder                                     files
    history   commits: which versions have which file, and by which columns          history
    rows      matching rows in all data and change files, deleted ones included      files, rows
    log       values that the condition names, in the files of the log               values, log
    steps     what has to be done, and when                                          report

Requests: one listing of the folder, a GET for each file of the log (two for a commit), and for each
other file two for the footer and one for each row group that the footer's statistics do not rule
out: those of the log may be wrong. Memory: see these modules; files without a match cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import islice
from socket import gethostname
from typing import Final

import pyarrow as pa

from delvec._version import __version__
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.data_file import foreign_columns
from delvec.delta.schema.partition_values import folder_values
from delvec.delta.skipping.statistics import prefix_length
from delvec.delta.traces import files, rows
from delvec.delta.traces.history import LogHistory, read_history
from delvec.delta.traces.log import LogSearch, binary_places, definition, log_places, search_text
from delvec.delta.traces.report import (
    KINDS,
    PlaceKind,
    Schedule,
    TracePlace,
    TracesReport,
    schedule_of,
)
from delvec.delta.traces.texts import footer_texts
from delvec.delta.traces.values import NamedValues, Redaction, is_judged, is_plain, named_values
from delvec.report.hints import call, format_hint
from delvec.report.rendering import Stopwatch
from delvec.storage import Storage
from delvec.vector import Bitmap

# Writers that do not know the property keep this many characters of strings in statistics.
_PREFIX: Final = 32
_OF_OTHERS: Final = ("orphan", "hidden", "change", "outside")


def find_traces(
    storage: Storage,
    opened: Callable[[], Snapshot],
    condition: rows.Condition,
    time_zone: str,
    *,
    redact: bool = False,
) -> TracesReport:
    """Search all that is below a table's folder for rows that satisfy a condition."""
    watch, begun = Stopwatch(), datetime.now(timezone.utc)
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
    definitions = [each.metadata for each in history.epochs]
    prefix = min(_PREFIX, *map(prefix_length, definitions))
    schemas = [each.schema for each in definitions]
    values, whole = named_values(readings.distinct, schemas, time_zone, prefix)
    judged = whole and all(map(is_judged, predicates))
    log = LogSearch(storage, values)
    search = _Search(condition, history, readings, log, schedule, judged)
    with watch.phase("rows"):
        places = search.places(files.Suspects(stored, history))
    with watch.phase("log"):
        places += log_places(log, history, stored, places, schedule)
        others = stored.select(stored.are("vector", "checksum") & (stored.sizes > 0))
        places += binary_places(log, others, schedule)
        if all(map(is_plain, predicates)):
            places += _names(stored, places, values, schedule)
    order = list(KINDS)
    places.sort(key=lambda place: (order.index(place.kind), place.path))
    report = TracesReport(
        snapshot.table,
        snapshot.version,
        condition.text,
        time=begun,
        delvec=__version__,
        host=gethostname(),
        table_id=snapshot.metadata.id,
        places=tuple(places),
        log_judged=judged,
        files=search.count,
        log_files=len(stored.of("log")) if values else 0,
        other_files=len(others),
        phases=watch.seconds,
        notes=tuple(_notes(readings.note, places, judged=judged, links=linked is not None)),
    )
    return Redaction(report.table_id).report(report, condition.redacted) if redact else report


@dataclass
class _Search:
    """Searches the rows of files, window by window, and counts them."""

    condition: rows.Condition
    history: LogHistory
    readings: rows.Readings
    log: LogSearch
    schedule: Schedule
    judged: bool
    count: int = 0

    def places(self, suspects: files.Suspects) -> list[TracePlace]:
        found: list[TracePlace] = []
        remaining = iter(suspects)
        while window := list(islice(remaining, self.condition.window)):
            self.count += len(window)
            schemas = self._schemas(window)
            hits, failures = self._search(window, schemas)
            found += rows.row_places(self.history, hits, self.schedule)
            unread = (self._unreadable(window[number], why) for number, why in failures.items())
            found += filter(None, unread)
            for number, schema in schemas.items():
                if isinstance(schema, pa.Schema):
                    found += self._beside_rows(window[number], schema)
        return found

    def _beside_rows(self, suspect: files.Suspect, schema: pa.Schema) -> Iterator[TracePlace]:
        """Yield what a file has beside the rows of known columns: its footer, and other columns."""
        file, kind = suspect.file, suspect.kind
        if any(
            each.is_in_text(text, is_written=is_written)
            for _, text, is_written in footer_texts(schema)
            for each in self.log.values
        ):
            steps = self.schedule.footer(kind, suspect.modified_ms, is_defined=self._is_defined)
            detail = "comments or defaults of columns"
            yield TracePlace("footer", file.path, None, file.size, None, detail, steps)
        foreign: list[str] = []
        if self.history.snapshot.metadata.mapping_mode != "none" and kind != "outside":
            foreign = foreign_columns(schema, [each.metadata for each in self.history.epochs])
        if foreign:
            detail = f"no version in the log defines its column {foreign[0]}: it was dropped"
            place: PlaceKind = "dropped" if kind == "live" else kind
            steps = self.schedule.of(place, suspect.modified_ms)
            yield TracePlace("unreadable", file.path, None, file.size, None, detail, steps)

    @cached_property
    def _is_defined(self) -> bool:
        """Whether comments, defaults or properties of the newest version have a value."""
        return self.log.is_in(definition(self.history.snapshot))

    def _search(
        self, window: Sequence[files.Suspect], schemas: Mapping[int, pa.Schema | str | None]
    ) -> tuple[list[tuple[files.Suspect, Bitmap]], dict[int, str]]:
        """Return the files of a window that hold matching rows, and those that nobody can tell."""
        hits: dict[tuple[int, PlaceKind], Bitmap] = {}
        failures: dict[int, str] = {}
        newest = self.history.snapshot.metadata
        for reading, numbers in self._grouped(window, schemas, failures):
            searched = [window[number].file for number in numbers]
            is_dropped = rows.is_dropped(reading, newest)
            found = self.condition.search(self.history.snapshot, reading, searched)
            for place, positions in found:
                number = numbers[place]
                if isinstance(positions, str):
                    failures[number] = positions
                    continue
                kind = window[number].kind
                kind = "dropped" if is_dropped and kind == "live" else kind
                hits[number, kind] = hits.get((number, kind), Bitmap()) | positions
        return [(replace(window[n], kind=kind), each) for (n, kind), each in hits.items()], failures

    def _grouped(
        self,
        window: Sequence[files.Suspect],
        schemas: Mapping[int, pa.Schema | str | None],
        failures: dict[int, str],
    ) -> Iterator[tuple[rows.Reading, list[int]]]:
        """Yield files that are read alike; files that cannot be read are noted as failures."""
        by_reading: dict[int, list[int]] = {}
        readings = self.readings.distinct
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
        """Read the footers of files, but for live ones that cannot be read.

        These are errors of the table, unless there are several ways to read it.
        """
        read = rows.footers(self.history.snapshot.storage, [each.file for each in window])
        is_single = len(self.readings.distinct) == 1
        return {
            number: schema
            for number, schema in enumerate(read)
            if isinstance(schema, pa.Schema) or not is_single or window[number].kind != "live"
        }

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
            is_in = search_text(storage, file.path, file.size, self.log.values)
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
            " or IN, with values of its own type that texts can spell. Statistics in the log may"
            " hold values of rows that match until {}: name the values, to know that nothing is"
            " left",
            call("clean_log"),
        )
    steps = [step for place in places for step in place.steps]
    if any(step.action == call("vacuum") and step.not_before for step in steps):
        yield format_hint(
            "{} does not wait; but then nobody may be reading or writing the table meanwhile",
            call("vacuum", retention_hours=0, force=True),
        )
