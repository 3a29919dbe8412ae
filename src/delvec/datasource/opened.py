"""A table opened for `format("delvec")`: its schema, and the reader of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from delvec.datasource.filters import parse_json_filters
from delvec.datasource.options import names_zone
from delvec.datasource.rows import RowsReader
from delvec.datasource.views import VIEWS, ViewReader
from delvec.delta.log.commit_times import version_at
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.scan import FILE_COLUMN, POSITION_COLUMN
from delvec.delta.read.snapshot_reader import arrow_scan
from delvec.delta.schema.partition_values import is_null_text
from delvec.errors import InvalidArgumentError
from delvec.spark.types import table_schema
from delvec.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import DataType

    from delvec.datasource.options import ReadOptions
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.read.scan import Scan

__all__ = ["Opened"]

_ADDED: dict[str, DataType] = {FILE_COLUMN: StringType(), POSITION_COLUMN: LongType()}


@dataclass(frozen=True)
class Opened:
    """A version of a table, and the options of the read."""

    snapshot: Snapshot
    options: ReadOptions

    @classmethod
    def open(cls, options: ReadOptions, version: int | None = None) -> Opened:
        """Open the version that the options name, or the given one."""
        storage = Storage.open(options.path, options.storage_options)
        if version is None and options.timestamp is not None:
            version = version_at(storage, options.timestamp, options.time_zone or "UTC")
        elif version is None:
            version = options.version
        return cls(open_snapshot(storage, version), options)

    @property
    def schema(self) -> StructType:
        """The schema of the read."""
        if self.options.columns is None:
            return self._all_columns
        return StructType([self._column(name) for name in self.options.columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns of a schema, which the user may have given.

        Raises:
            InvalidArgumentError: The table has no such column, or not of that type.
        """
        columns = [self._column(field.name) for field in schema.fields]
        for wanted, own in zip(schema.fields, columns, strict=True):
            _require_type(wanted, own)
        names = [field.name for field in columns]
        if self.options.view != "rows":
            return ViewReader(self.snapshot, self.options, names, schema.names)
        scan = arrow_scan(
            self.snapshot,
            columns=names,
            predicate=self._predicate,
            time_zone=self.options.time_zone or "UTC",
        )
        if self.options.time_zone is None:
            self._require_zones(scan)
        return RowsReader(self.snapshot, self.options, scan, names, schema.names)

    @cached_property
    def _all_columns(self) -> StructType:
        if self.options.view == "rows":
            return table_schema(self.snapshot.metadata.schema.fields)
        return from_arrow_schema(VIEWS[self.options.view])

    @property
    def _predicate(self) -> Predicate | None:
        if self.options.filters is None:
            return None
        return parse_json_filters(self.options.filters, self.snapshot.metadata.schema)

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

    def _require_zones(self, scan: Scan) -> None:
        """Reject partition values without a time zone, which Spark reads in the session's."""
        read = {field.name for field in scan.needed_fields}
        for field in self.snapshot.metadata.partition_fields:
            if field.name not in read or str(field.type) != "timestamp":
                continue
            values = self.snapshot.files.partition_strings(field.physical_name).unique().to_pylist()
            zoneless: Sequence[str] = [
                value
                for value in values
                if value and not is_null_text(value, field.type) and not names_zone(value)
            ]
            if zoneless:
                raise InvalidArgumentError(
                    f"column {field.name} of {self.snapshot.table} has values without a zone, such"
                    f" as {zoneless[0]!r}, and the session's zone is not known here",
                    hint='set the option timeZone to spark.conf.get("spark.sql.session.timeZone")',
                )


def _require_type(wanted: StructField, own: StructField) -> None:
    if wanted.dataType.simpleString() != own.dataType.simpleString():
        raise InvalidArgumentError(
            f"column {own.name} is of type {own.dataType.simpleString()}, not"
            f" {wanted.dataType.simpleString()}",
            hint="omit the schema, and cast the column of the DataFrame",
        )
