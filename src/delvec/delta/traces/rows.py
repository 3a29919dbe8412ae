"""Matching rows in files of any version of a table, and which versions still have them.

A condition is read by the definitions that the table had: columns were added, dropped, renamed and
widened, and a file holds what it was written with. Rows that a vector deletes are read as well.
Each file is read by itself, side by side with others: only the columns of the condition, and no row
group that the footer's statistics rule out. Memory holds a row group of each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from delvec import errors
from delvec.delta.log.file_set import DataFile
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.conform import Conformer, find_field
from delvec.delta.read.data_file import read_schemas
from delvec.delta.read.scan import POSITION_COLUMN, Scan, read_file
from delvec.delta.read.vectors import load_vectors
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import find, resolve
from delvec.delta.schema.types import Field
from delvec.delta.skipping.predicate import Predicate, columns_of, parse_filters, to_arrow
from delvec.delta.traces.files import Suspect
from delvec.delta.traces.history import Epoch, FileFacts, LogHistory
from delvec.delta.traces.report import Schedule, TracePlace
from delvec.delta.traces.values import Redaction
from delvec.storage import Storage
from delvec.storage.parallel import gather
from delvec.vector import Bitmap

_THREADS: Final = 8
_COLUMN_AND_MORE: Final = 3  # parts of a filter: column, operator, value


@dataclass(frozen=True)
class Reading:
    """How a condition reads files, by one definition of the table.

    The predicate is what is understood of it; `columns` are the fields on the path to each.
    """

    metadata: Metadata
    predicate: Predicate
    columns: tuple[tuple[Field, ...], ...]

    @property
    def names(self) -> frozenset[tuple[str, ...]]:
        """The columns by the names that they have in files, statistics and partition values."""
        return frozenset(tuple(each.physical_name for each in path) for path in self.columns)

    @property
    def parts(self) -> frozenset[str]:
        """The columns that are partition values, by their physical names."""
        parts = {field.physical_name for field in self.metadata.partition_fields}
        return frozenset(name[0] for name in self.names) & parts

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two readings find the same rows."""
        return (
            self.metadata.mapping_mode,
            self.names,
            frozenset((path[0].field_id, path[0].physical_name) for path in self.columns),
            tuple(sorted(str(path[-1].type) for path in self.columns)),
            self.parts,
        )


class Condition(Protocol):
    """A condition on rows, and what evaluates it."""

    @property
    def text(self) -> str:
        """The condition, for the report."""

    def redacted(self, redaction: Redaction) -> str:
        """Return the condition with digests for its values."""

    @property
    def window(self) -> int:
        """How many files are searched at once."""

    @property
    def checks_first(self) -> bool:
        """Whether files must be known to be readable before they are searched."""

    def reading(self, metadata: Metadata) -> Reading:
        """Return how the condition reads the files of a definition of the table."""

    def search(
        self, snapshot: Snapshot, reading: Reading, files: Sequence[DataFile]
    ) -> Iterator[tuple[int, Bitmap | str]]:
        """Yield the number of each file with matching rows, and their positions.

        Instead of positions, why a file cannot be read. Files that are gone are skipped.
        """


@dataclass(frozen=True)
class TupleCondition:
    """Tuples such as `[("name", "=", "Anna")]`, evaluated by Arrow."""

    filters: Sequence[object]
    time_zone: str = "UTC"
    window: int = 4096
    checks_first: bool = False

    @property
    def text(self) -> str:
        return repr(self.filters)

    def redacted(self, redaction: Redaction) -> str:
        return repr(_redacted(self.filters, redaction))

    def reading(self, metadata: Metadata) -> Reading:
        schema = metadata.schema
        predicate = parse_filters(self.filters, schema)
        if to_arrow(predicate, schema) is None:
            raise errors.InvalidArgumentError(f"{self.text} cannot be evaluated without Spark")
        paths = sorted(columns_of(predicate))
        columns = tuple(resolve(schema, path, structs_only=True) for path in paths)
        return Reading(metadata, predicate, columns)

    def search(
        self, snapshot: Snapshot, reading: Reading, files: Sequence[DataFile]
    ) -> Iterator[tuple[int, Bitmap | str]]:
        metadata = reading.metadata
        how = (reading.predicate, metadata.mapping_mode, self.time_zone)
        scan = Scan(metadata.schema, metadata.partition_columns, (), *how, with_position=True)
        found = gather(lambda file: _positions(snapshot.storage, file, scan), files, _THREADS)
        yield from ((number, each) for number, each in enumerate(found) if each)


@dataclass(frozen=True)
class Readings:
    """How a condition reads the files of all versions."""

    distinct: tuple[Reading, ...]  # the different readings, newest first
    # That of each definition, by its first version; None where it lacks a column.
    by_epoch: Mapping[int, Reading | None]
    note: str | None = None  # why the newest definition is not among them; None if it is


def readings_of(condition: Condition, epochs: Sequence[Epoch]) -> Readings:
    """Return how a condition reads files, by every definition of the table in its log."""
    distinct: dict[tuple[object, ...], Reading] = {}
    by_epoch: dict[int, Reading | None] = {}
    refused, note = None, None
    for number, epoch in enumerate(epochs):
        try:
            reading = condition.reading(epoch.metadata)
        except errors.InvalidArgumentError as error:
            refused = refused or error
            by_epoch[epoch.first] = None
            continue
        if by_epoch and not distinct and refused is not None:
            note = (
                f"the condition is read by the columns of version {epochs[number - 1].first - 1};"
                f" in the newest version {refused.describe()}"
            )
        by_epoch[epoch.first] = distinct.setdefault(reading.key, reading)
    if not distinct and refused is not None:
        if len(epochs) > 1:
            refused.message += f" (nor in the {len(epochs) - 1} older definitions in the log)"
        raise refused
    return Readings(tuple(distinct.values()), by_epoch, note)


def readings_for(
    stored: pa.Schema, own: Reading | None, readings: Sequence[Reading], file: DataFile
) -> list[Reading]:
    """Return the readings that apply to one file: that of its own time, and of dropped columns.

    Where nobody knows the time of a file, a column may be in the file or a partition value: it is
    read in both ways.
    """
    first = own or readings[0]
    by_names: dict[frozenset[tuple[str, ...]], list[Reading]] = {}
    for each in (first, *(each for each in readings if each is not first)):
        by_names.setdefault(each.names, []).append(each)
    chosen = []
    for names, group in by_names.items():
        if names == first.names or any(
            _stores_all(stored, each, file.path, besides=each.parts) for each in group
        ):
            fitting = [each for each in group if fits(stored, each, file.path)] or group[:1]
            is_own = own is not None and names == own.names
            chosen += fitting[:1] if is_own else _ways(stored, fitting, file)
    return chosen


def fits(stored: pa.Schema, reading: Reading, path: str) -> bool:
    by_id = reading.metadata.mapping_mode == "id"
    parts = {field.name for field in reading.metadata.partition_fields}
    try:
        for field in {path[0].name: path[0] for path in reading.columns}.values():
            place = find_field(list(stored), field, by_id=by_id, path=path)
            if field.name not in parts and place is not None:
                nothing = pa.array([], stored.field(place).type)
                Conformer(path, by_id=by_id).conform(nothing, field.type, field.name)
    except (errors.FormatError, errors.UnsupportedFeatureError):
        return False
    return True


def footers(storage: Storage, files: Sequence[DataFile]) -> list[pa.Schema | str | None]:
    """Read the columns of files from their footers; why not, or None for one that is gone."""
    read = read_schemas(storage, [(file.path, file.size) for file in files])
    return [
        f"not a readable Parquet file ({' '.join(each.describe().split())[:200]})"
        if isinstance(each, errors.DelvecError)
        else each
        for each in read
    ]


def is_dropped(reading: Reading, newest: Metadata) -> bool:
    return any(find(newest.schema, name, physical=True) is None for name in reading.names)


def unknown_partition(reading: Reading, file: DataFile) -> str | None:
    """Return the partition column of a condition whose value in a file nobody knows, or None."""
    unknown = {path[0].physical_name for path in reading.columns} - file.partition_values.keys()
    fields = reading.metadata.partition_fields
    return next((field.name for field in fields if field.physical_name in unknown), None)


def row_places(
    history: LogHistory, hits: Sequence[tuple[Suspect, Bitmap]], schedule: Schedule
) -> Iterator[TracePlace]:
    """Yield the places of matching rows; only vectors of files with such rows are loaded."""
    storage = history.snapshot.storage
    paths = pa.array([suspect.file.path for suspect, _ in hits], pa.string())
    files = [replace(suspect.file, descriptor=suspect.descriptor) for suspect, _ in hits]
    loaded = _vectors(storage, files)
    for (suspect, rows), vector, actions in zip(hits, loaded, history.of(paths), strict=True):
        is_live = suspect.version == history.snapshot.version and suspect.kind != "change"
        facts = history.facts(actions, is_live=is_live)
        if suspect.kind == "live":
            yield from _in_live_file(history, suspect, rows, vector, facts, schedule)
            continue
        versions = facts.versions
        if suspect.kind == "dropped":
            # A version that has the column, or none that can be read.
            versions = None
        elif suspect.kind == "change" and suspect.version is not None:
            versions = (suspect.version, suspect.version)
        elif suspect.version is None:
            versions = None
        steps, file = schedule.of(suspect.kind, suspect.modified_ms, facts.removed_ms), suspect.file
        count = rows.cardinality
        yield TracePlace(suspect.kind, file.path, count, file.size, versions, steps=steps)


def _redacted(filters: object, redaction: Redaction) -> object:
    """Return filters, or a list of them, with digests for their values."""
    if isinstance(filters, tuple) and len(filters) == _COLUMN_AND_MORE:
        column, op, value = filters
        several = isinstance(value, list | tuple | set | frozenset)
        shown = [redaction.digest(each) for each in value] if several else redaction.digest(value)
        return column, op, shown
    if isinstance(filters, list | tuple):
        return [_redacted(each, redaction) for each in filters]
    return redaction.digest(filters)


def _positions(storage: Storage, file: DataFile, scan: Scan) -> Bitmap | str | None:
    try:
        batches = [
            batch.column(POSITION_COLUMN).to_numpy()
            for batch in read_file(storage, file, scan, vector=None)
        ]
    except errors.ObjectNotFoundError:
        return None
    except errors.DelvecError as error:
        return error.describe()
    return Bitmap(np.concatenate(batches)) if batches else None


def _ways(stored: pa.Schema, group: Sequence[Reading], file: DataFile) -> list[Reading]:
    """Return one of the readings for each way to find columns: in folders, by name or by id."""
    ways: dict[tuple[object, ...], Reading] = {}
    for each in group:
        ways.setdefault((each.parts, each.metadata.mapping_mode == "id"), each)
    known = [
        each
        for each in ways.values()
        # A file that has the column itself, and no folder of that name, is of another time.
        if unknown_partition(each, file) is None or not _stores_all(stored, each, file.path)
    ]
    return known or list(ways.values())


def _stores_all(
    stored: pa.Schema, reading: Reading, path: str, besides: Collection[str] = ()
) -> bool:
    """Whether a file has the columns of a condition itself, but for some."""
    by_id = reading.metadata.mapping_mode == "id"
    fields = [each[0] for each in reading.columns if each[0].physical_name not in besides]
    try:
        places = [find_field(list(stored), each, by_id=by_id, path=path) for each in fields]
    except errors.FormatError:  # more than once
        return True
    return None not in places


def _in_live_file(
    history: LogHistory,
    suspect: Suspect,
    rows: Bitmap,
    vector: Bitmap | errors.DelvecError | None,
    facts: FileFacts,
    schedule: Schedule,
) -> Iterator[TracePlace]:
    file, detail, deleted = suspect.file, "", Bitmap()
    if isinstance(vector, errors.DelvecError):
        detail = f"its vector cannot be read, so rows may be deleted: {vector.describe()}"
    elif vector is not None:
        deleted = rows & vector
    count = deleted.cardinality
    if live := rows.cardinality - count:
        steps = schedule.live()
        yield TracePlace("live", file.path, live, file.size, facts.versions, detail, steps)
    if count:
        last = _last_with(history.snapshot.storage, file, facts, deleted)
        versions = None
        if last is not None and facts.versions is not None and facts.versions[0] <= last:
            versions = (facts.versions[0], last)
        steps = schedule.deleted()
        yield TracePlace("deleted", file.path, count, file.size, versions, steps=steps)


def _last_with(storage: Storage, file: DataFile, facts: FileFacts, rows: Bitmap) -> int | None:
    """Return the last version in which one of some rows was live; None if none can be read."""
    until: int | None = None
    for version, descriptor in reversed(facts.vectors):
        [vector] = _vectors(storage, [replace(file, descriptor=descriptor)])
        # A version whose vector is gone cannot be read.
        if not isinstance(vector, errors.DelvecError) and not rows.issubset(vector or Bitmap()):
            return until
        until = version - 1
    return None


def _vectors(
    storage: Storage, files: Sequence[DataFile]
) -> list[Bitmap | errors.DelvecError | None]:
    """Load vectors; for one that cannot be read, why."""
    try:
        return list(load_vectors(storage, files))
    except errors.DelvecError as error:
        if len(files) == 1:
            return [error]
        return [_vectors(storage, [file])[0] for file in files]
