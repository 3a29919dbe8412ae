"""A table opened for `format("delvec")`: the reader of its columns, and views of its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from delvec.datasource import reader as datasource_reader
from delvec.datasource.options import (
    HAS_LIMITS,
    ReadOptions,
    View,
    parse_json_filters,
    require_batch,
    require_stream,
)
from delvec.datasource.stream_reader import LimitedStreamReader, StreamReader
from delvec.delta.log.file_set import DataFile, FileSet
from delvec.delta.log.history import SCHEMA as HISTORY
from delvec.delta.log.history import find_version_at, history
from delvec.delta.log.snapshot import Snapshot, files_table, open_snapshot
from delvec.delta.read.change_feed import FEED_COLUMNS, require_feed_names
from delvec.delta.read.scan import FILE_COLUMN, POSITION_COLUMN, Scan, arrow_scan
from delvec.delta.read.vectors import load_vectors
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.types import Field
from delvec.delta.skipping.predicate import Predicate
from delvec.errors import InvalidArgumentError
from delvec.spark.types import table_schema
from delvec.storage import Storage
from delvec.storage.fence import lists_of

_STRINGS: Final = pa.map_(pa.string(), pa.string())
_STATISTICS: Final = pa.struct(
    [("null_count", pa.int64()), ("minimum", pa.string()), ("maximum", pa.string())]
)
VIEWS: Final[Mapping[View, pa.Schema]] = {
    "files": pa.schema(
        [
            ("path", pa.string()),
            ("partition_values", _STRINGS),
            ("size", pa.int64()),
            ("modified", pa.timestamp("us", "UTC")),
            ("row_count", pa.int64()),
            ("deleted_rows", pa.int64()),
            ("vector", pa.string()),
            ("vector_bytes", pa.int64()),
            ("tight_bounds", pa.bool_()),
            ("statistics", pa.map_(pa.string(), _STATISTICS)),
        ]
    ),
    "vectors": pa.schema(
        [
            ("path", pa.string()),
            ("storage_type", pa.string()),
            ("vector_file", pa.string()),
            ("offset", pa.int64()),
            ("size_in_bytes", pa.int64()),
            ("cardinality", pa.int64()),
        ]
    ),
    "positions": pa.schema([("path", pa.string()), ("_pos", pa.int64())]),
    "history": HISTORY,
}
"""The columns of each view."""

_BATCH_ROWS: Final = 1 << 16
_POSITION_BYTES: Final = 16  # the weight of a deleted row when positions are divided among tasks


@dataclass(eq=False, repr=False)
class ViewReader(datasource_reader.TableReader):
    """Reads a view; tasks read the log themselves, so that nothing large is pickled."""

    version: int

    def _planned(self, snapshot: Snapshot) -> Sequence[Sequence[DataFile]]:
        if self.options.view != "positions":
            return []  # one task lists it
        chosen = snapshot.files.data_files(np.flatnonzero(snapshot.files.has_vector))
        limit = (self.options.split_bytes or datasource_reader.MAX_SPLIT_BYTES) // _POSITION_BYTES
        return datasource_reader.pack(chosen, lambda file: file.descriptor.cardinality, limit)  # type: ignore[union-attr]

    def _batches(self, items: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        view = self.options.view
        if view == "positions":
            yield from self._positions(items)
            return
        if view == "history":
            table = history(self.storage)
        else:
            files = open_snapshot(self.storage, self.version).files
            table = _files(files) if view == "files" else _vectors(files)
        yield from table.to_batches(_BATCH_ROWS)

    def _positions(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            [vector] = load_vectors(self.storage, [file])
            positions = np.empty(0, dtype=np.int64) if vector is None else vector.to_numpy()
            for start in range(0, len(positions), _BATCH_ROWS):
                some = positions[start : start + _BATCH_ROWS]
                path = pa.repeat(pa.scalar(file.path), len(some))
                yield pa.record_batch([path, pa.array(some)], schema=VIEWS["positions"])


def _files(files: FileSet) -> pa.Table:
    table = files_table(files)
    statistics = _as_map(table.column("statistics").combine_chunks())
    index = table.column_names.index("statistics")
    return table.set_column(index, "statistics", statistics).cast(VIEWS["files"])


def _as_map(statistics: pa.StructArray) -> pa.MapArray:
    """Return statistics as a map, with bounds as strings, since column types differ."""
    names = [field.name for field in statistics.type]
    count = len(statistics)
    parts = [_as_strings(statistics.field(index)) for index in range(len(names))]
    values = pa.concat_arrays(parts) if parts else pa.array([], _STATISTICS)
    # From column by column to file by file, as in a map.
    order = np.arange(len(values)).reshape(len(names), count).T.ravel()
    return pa.MapArray.from_arrays(
        pa.array(np.arange(count + 1) * len(names), pa.int32()),
        pa.array(names * count, pa.string()),
        values.take(pa.array(order)),
    )


def _as_strings(column: pa.StructArray) -> pa.StructArray:
    found = {field.name: column.field(index) for index, field in enumerate(column.type)}
    parts = [
        found[field.name].cast(field.type)
        if field.name in found
        else pa.nulls(len(column), field.type)
        for field in _STATISTICS
    ]
    return pa.StructArray.from_arrays(parts, fields=list(_STATISTICS))


def _vectors(files: FileSet) -> pa.Table:
    rows = []
    for file in files.select(files.has_vector).data_files():
        descriptor = file.descriptor
        if descriptor is None:
            raise AssertionError(f"{file.path} has no vector")
        row = {
            "path": file.path,
            "storage_type": descriptor.storage_type,
            "vector_file": descriptor.file_path,
            "offset": descriptor.offset,
            "size_in_bytes": descriptor.size_in_bytes,
            "cardinality": descriptor.cardinality,
        }
        rows.append(row)
    return pa.Table.from_pylist(rows, VIEWS["vectors"])


_ADDED: dict[str, DataType] = {FILE_COLUMN: StringType(), POSITION_COLUMN: LongType()}


@dataclass(frozen=True)
class Opened:
    """A version of a table, and the options of the read."""

    snapshot: Snapshot
    options: ReadOptions

    @classmethod
    def open(cls, options: ReadOptions, version: int | None = None) -> Opened:
        """Open the version that the options name, or the given one."""
        storage = Storage.open(
            options.path, options.storage_options, allow_paths=lists_of(options.allowed_paths)
        )
        if version is None and options.timestamp is not None:
            version = find_version_at(storage, options.timestamp, options.time_zone or "UTC")
        elif version is None:
            version = options.version
        return cls(open_snapshot(storage, version), options)

    @property
    def schema(self) -> StructType:
        if self.options.columns is None:
            return self._all_columns
        return StructType([self._column(name) for name in self.options.columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns of a schema, which the user may have given."""
        require_batch(self.options)
        names = self._names(schema)
        read = (self.snapshot, self.snapshot.storage, self.options, names, schema.names)
        if self.options.view != "rows":
            return ViewReader(*read, self.snapshot.version)
        filters, predicate = self.options.filters, None
        if filters is not None:
            predicate = parse_json_filters(filters, self.snapshot.metadata.schema)
        scan = self._scan(names, predicate)
        needs_zone = self.options.time_zone is None and self._has_open_zones(scan)
        if needs_zone and filters is not None:
            raise InvalidArgumentError(
                f"a partition column of {self.snapshot.table} has timestamps without a zone, and"
                " the session's is not known where filters choose files",
                hint=datasource_reader.ZONE_HINT,
            )
        return datasource_reader.RowsReader(*read, scan, needs_zone)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        require_stream(self.options)
        self._require_feed()
        names = self._names(schema)
        own = [name for name in names if name not in self._feed_columns]
        scan = self._scan(own, None)
        times = self._partition_times(scan) if self.options.time_zone is None else ()
        zoned = [field.physical_name for field in times]
        kind = LimitedStreamReader if HAS_LIMITS else StreamReader
        return kind(self.snapshot, self.options, scan, names, schema.names, zoned)

    def _require_feed(self) -> None:
        stream, metadata = self.options.stream, self.snapshot.metadata
        if not stream.change_feed:
            return
        if not metadata.is_on(Property.ENABLE_CHANGE_DATA_FEED):
            raise InvalidArgumentError(
                f"{self.snapshot.table} does not record its changes:"
                f" {Property.ENABLE_CHANGE_DATA_FEED} is not true",
                hint="delvec.DeltaTable.for_path(spark, path).set_properties("
                f'{{"{Property.ENABLE_CHANGE_DATA_FEED}": "true"}}) records those that follow',
            )
        require_feed_names(self.snapshot.table, metadata.schema)
        if stream.skip_changes or stream.ignore_deletes:
            raise InvalidArgumentError(
                "readChangeFeed returns every change: skipChangeCommits and ignoreDeletes do not"
                " go with it"
            )

    def _names(self, schema: StructType) -> list[str]:
        columns = [self._column(field.name) for field in schema.fields]
        for field, own in zip(schema.fields, columns, strict=True):
            wanted, kind = field.dataType.simpleString(), own.dataType.simpleString()
            if wanted != kind:
                raise InvalidArgumentError(
                    f"column {own.name} is of type {kind}, not {wanted}",
                    hint="omit the schema, and cast the column of the DataFrame",
                )
        return [field.name for field in columns]

    def _scan(self, names: Sequence[str], predicate: Predicate | None) -> Scan:
        return arrow_scan(
            self.snapshot,
            columns=names,
            predicate=predicate,
            time_zone=self.options.time_zone or "UTC",
        )

    @property
    def _feed_columns(self) -> Sequence[str]:
        return FEED_COLUMNS.names if self.options.stream.change_feed else ()

    @cached_property
    def _all_columns(self) -> StructType:
        if self.options.view == "rows":
            own = table_schema(self.snapshot.metadata.schema.fields)
            if not self._feed_columns:
                return own
            return StructType([*own.fields, *from_arrow_schema(FEED_COLUMNS).fields])
        return from_arrow_schema(VIEWS[self.options.view])

    def _column(self, name: str) -> StructField:
        found = [f for f in self._all_columns.fields if f.name.lower() == name.lower()]
        if found:
            return found[0]
        if self.options.view == "rows" and name in _ADDED:
            return StructField(name, _ADDED[name])
        if self.options.view == "rows":
            self.snapshot.metadata.schema.field(name)  # its error names near columns
        names = ", ".join(self._all_columns.names)
        raise InvalidArgumentError(f"view={self.options.view} has no column {name!r}, only {names}")

    def _partition_times(self, scan: Scan) -> list[Field]:
        read = {field.name for field in scan.needed_fields}
        return [
            field
            for field in self.snapshot.metadata.partition_fields
            if field.name in read and str(field.type) == "timestamp"
        ]

    def _has_open_zones(self, scan: Scan) -> bool:
        """Return whether partition values name no zone; Spark reads them in the session's."""
        return any(
            datasource_reader.lacks_zone(value)
            for field in self._partition_times(scan)
            for value in self.snapshot.files.partition_strings(field.physical_name)
            .unique()
            .to_pylist()
        )
