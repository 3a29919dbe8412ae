"""A table opened for `format("delvec")`: its schema, and the reader of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from delvec.datasource.options import (
    HAS_LIMITS,
    ReadOptions,
    parse_json_filters,
    require_batch,
    require_stream,
)
from delvec.datasource.reader import ZONE_HINT, RowsReader, lacks_zone
from delvec.datasource.stream_reader import LimitedStreamReader, StreamReader
from delvec.datasource.views import VIEWS, ViewReader
from delvec.delta.log.history import find_version_at
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.read.change_feed import FEED_COLUMNS, require_feed_names
from delvec.delta.read.scan import FILE_COLUMN, POSITION_COLUMN, Scan, arrow_scan
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.types import Field
from delvec.delta.skipping.predicate import Predicate
from delvec.errors import InvalidArgumentError
from delvec.spark.types import table_schema
from delvec.storage import Storage
from delvec.storage.fence import lists_of

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
                hint=ZONE_HINT,
            )
        return RowsReader(*read, scan, needs_zone)

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
            lacks_zone(value)
            for field in self._partition_times(scan)
            for value in self.snapshot.files.partition_strings(field.physical_name)
            .unique()
            .to_pylist()
        )
