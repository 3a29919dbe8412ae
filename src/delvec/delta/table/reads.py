"""Reading a Delta table: rows as DataFrames or Arrow, changes, and the facts of its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from delvec.calls import require_condition
from delvec.delta.log.history import history
from delvec.delta.log.snapshot import Snapshot, files_table
from delvec.delta.read.scan import (
    ADDED_COLUMNS,
    arrow_scan,
    count_rows,
    is_understood,
    read_batches,
)
from delvec.delta.skipping.predicate import Always, Predicate, parse_filters
from delvec.delta.table.arguments import by_name
from delvec.delta.table.handle import TableHandle
from delvec.errors import InvalidArgumentError
from delvec.frames import to_pandas, to_polars
from delvec.identifiers import quote
from delvec.report.format import format_count, format_size, percent
from delvec.report.rendering import Line, Rendered, documented, required, summary

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import Column, DataFrame

    Where: TypeAlias = str | Column | Sequence[object]


@documented()
class TableDetail(Rendered):
    """The facts of one version of a table."""

    location: str = required("The path or URI of the table.")
    id: str | None = required("The id in its metadata.")
    name: str | None = required("Its name, if it has one.")
    description: str | None = required("Its description, if it has one.")
    version: int = required("The version that is described.")
    created_ms: int | None = required("When the table was created, in milliseconds since 1970.")
    partition_columns: tuple[str, ...] = required("The partition columns, in order.")
    properties: Mapping[str, str] = required("The table properties.")
    min_reader_version: int = required("The reader version of the protocol.")
    min_writer_version: int = required("The writer version of the protocol.")
    features: tuple[str, ...] = required("The table features that the protocol lists, sorted.")
    files: int = required("The number of data files.")
    bytes: int = required("The size of the data files.")
    rows: int | None = required(
        "The number of live rows; None if the log lacks the rows of a file."
    )
    deleted_rows: int = required("The number of rows that deletion vectors delete.")
    files_with_vectors: int = required("The number of data files that have a deletion vector.")

    def _lines(self) -> Iterator[Line]:
        known = "rows unknown: the log has no statistics of some files"
        rows = known if self.rows is None else format_count(self.rows, "live row")
        deleted = ""
        if self.files_with_vectors:
            total = None if self.rows is None else self.rows + self.deleted_rows
            share = "" if total is None else f" ({percent(self.deleted_rows, total)})"
            vectors = format_count(self.files_with_vectors, "deletion vector")
            deleted = f"{format_count(self.deleted_rows, 'row')}{share} by {vectors}"
        protocol = f"reader {self.min_reader_version}, writer {self.min_writer_version}"
        features = f", features {', '.join(self.features)}" if self.features else ""
        return summary(
            f"{self.location}: version {self.version:,}",
            {
                "name": self.name or "",
                "about": self.description or "",
                "id": self.id or "",
                "partitions": ", ".join(self.partition_columns),
                "data": f"{format_count(self.files, 'file')}, {format_size(self.bytes)}, {rows}",
                "deleted": deleted,
                "protocol": f"{protocol}{features}",
                "properties": ", ".join(f"{key}={text}" for key, text in self.properties.items()),
            },
        )


def detail_of(snapshot: Snapshot) -> TableDetail:
    """Return the facts of a version; reads the log only."""
    files, metadata, protocol = snapshot.files, snapshot.metadata, snapshot.protocol
    known = not files.row_counts.null_count
    return TableDetail(
        location=snapshot.table,
        id=metadata.id,
        name=metadata.name,
        description=metadata.description,
        version=snapshot.version,
        created_ms=metadata.created_ms,
        partition_columns=metadata.partition_columns,
        properties=dict(metadata.configuration),
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        features=tuple(sorted(protocol.features)),
        files=len(files),
        bytes=int(files.sizes.sum()),
        rows=int(files.live_rows.to_numpy().sum()) if known else None,
        deleted_rows=int(files.deleted_rows.sum()),
        files_with_vectors=int(files.has_vector.sum()),
    )


@dataclass(frozen=True)
class TableReads(TableHandle):
    """The commands that read a table."""

    def detail(
        self, version: int | None = None, timestamp: datetime | str | None = None
    ) -> TableDetail:
        """Return size, protocol and properties of a version; reads the log only."""
        return detail_of(self.snapshot(version, timestamp))

    def arrow_history(self, limit: int | None = None) -> pa.Table:
        """Return the commits that are still in the log as an Arrow table, newest first."""
        return history(self.storage, limit)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits that are still in the log as a DataFrame, newest first."""
        return self._session("history()", "arrow_history()").createDataFrame(
            self.arrow_history(limit)
        )

    def arrow_files(
        self, version: int | None = None, timestamp: datetime | str | None = None
    ) -> pa.Table:
        """Return the data files: path, partition values, rows, deletion vector, statistics."""
        return files_table(self.snapshot(version, timestamp).files)

    def files(
        self, version: int | None = None, timestamp: datetime | str | None = None
    ) -> DataFrame:
        """Return the data files as a DataFrame; see `arrow_files`."""
        return self._session("files()", "arrow_files()").createDataFrame(
            self.arrow_files(version, timestamp)
        )

    def to_df(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """Read a version as a DataFrame; lazy, on Spark's own Parquet reader.

        A plain `.where(...)` on it prunes files by their partition values and statistics, and
        only the vectors of files that are read are loaded. `delvec.explain(df)` shows what a query
        reads.

        Args:
            version: The version; the newest by default.
            timestamp: Instead of `version`: a time; the version that was current then is read.
            where: The same as `.where(where)`.
            columns: The same as `.select(*columns)`, but `_file` and `_pos` are allowed too: the
                full path of a row's file, and the row's position in it.
        """
        from delvec.spark.delta.scan.conditions import aliased, attributes_of, to_predicate  # noqa: PLC0415
        from delvec.spark.delta.scan.scan import scan  # noqa: PLC0415
        from delvec.spark.failures import translate_errors  # noqa: PLC0415

        require_condition("to_df(where={})", where)
        session = self._session("to_df()", "to_arrow()")
        snapshot = self.snapshot(version, timestamp)
        follows = version is None and timestamp is None
        if where is None:
            df = scan(session, snapshot, columns, follows=follows)
            self._given.append(attributes_of(df))
            return df
        # The condition may look at columns that are not wanted.
        own = snapshot.metadata.schema.names
        added = [name for name in columns or () if name not in own and name in ADDED_COLUMNS]
        where = by_name(self, where)
        with translate_errors(snapshot.table):
            predicate = to_predicate(session, snapshot.metadata.schema, where)
            files = snapshot.files.prune(predicate, self.time_zone)
            rows = scan(session, snapshot, [*own, *added], files, follows=follows)
            found = aliased(rows, snapshot.metadata.schema).where(where)
            self._given.append(attributes_of(found))
            return found if columns is None else found.select(*map(quote, columns))

    def to_batches(
        self,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the live rows of a version as Arrow batches, read in this process.

        Args:
            where: Tuples such as `[("day", "=", "2026-01-31")]`; with a session also SQL or a
                column of Spark.
            columns: The columns, all by default; `_file` and `_pos`, if named, come last.
            version: The version; the newest by default.
            timestamp: Instead of `version`: a time; the version that was current then is read.

        Raises:
            InvalidArgumentError: The condition needs Spark to be evaluated.
        """
        snapshot = self.snapshot(version, timestamp)
        predicate = self._predicate(snapshot, where, "to_arrow")
        if not is_understood(predicate, snapshot.metadata.schema):
            raise InvalidArgumentError(
                f"{where!r} cannot be evaluated without Spark",
                hint="use .to_df().where(...).toArrow(), or tuples such as [('id', '=', 1)]",
            )
        scan = arrow_scan(snapshot, columns=columns, predicate=predicate, time_zone=self.time_zone)
        return read_batches(snapshot, scan)

    def to_arrow(
        self,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.Table:
        """Read a version into an Arrow table, all rows in memory at once; see `to_batches`."""
        return self.to_batches(where, columns, version=version, timestamp=timestamp).read_all()

    def to_pandas(
        self,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pd.DataFrame:
        """Read a version into a pandas DataFrame; see `to_batches`."""
        return to_pandas(self.to_arrow(where, columns, version=version, timestamp=timestamp))

    def to_polars(
        self,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pl.DataFrame:
        """Read a version into a DataFrame of polars; see `to_batches`."""
        return to_polars(self.to_batches(where, columns, version=version, timestamp=timestamp))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Stream the newest version to other libraries: DuckDB, polars, pandas and pyarrow.

        duckdb.sql("SELECT sum(amount) FROM t")
        polars.DataFrame(t)
        pyarrow.table(t)
        """
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def count(
        self,
        where: Where | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> int:
        """Count rows, from the log alone where its statistics suffice."""
        snapshot = self.snapshot(version, timestamp)
        predicate = self._predicate(snapshot, where, "count")
        if is_understood(predicate, snapshot.metadata.schema):
            return count_rows(snapshot, predicate, self.time_zone)
        from delvec.spark.engine import SparkEngine  # noqa: PLC0415

        session = self._session("count()", "tuples such as [('id', '=', 1)]")
        with SparkEngine(session).translate_errors(snapshot.table):
            return self.to_df(snapshot.version, where=where).count()  # type: ignore[arg-type]

    def changes(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        *,
        start_timestamp: datetime | str | None = None,
        end_timestamp: datetime | str | None = None,
    ) -> DataFrame:
        """Return the rows that were inserted, deleted and updated between two versions.

        The change data feed has the columns of the table, then `_change_type` (`insert`, `delete`,
        `update_preimage`, `update_postimage`), `_commit_version` and `_commit_timestamp`. The
        property `delta.enableChangeDataFeed` must be on in all of these versions.

            t.changes(start_version=3).where("_change_type = 'delete'").show()

        Args:
            start_version: The first version; its own changes are included.
            end_version: The last version, included too; the newest by default.
            start_timestamp: Instead of `start_version`: the first version committed at this time
                or later.
            end_timestamp: Instead of `end_version`: the last version committed at this time or
                earlier.
        """
        from delvec.spark.delta.scan.scan import changes  # noqa: PLC0415

        return changes(
            self._session("changes()"),
            self.storage,
            start_version,
            end_version,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
        )

    def _predicate(self, snapshot: Snapshot, where: Where | None, call: str) -> Predicate:
        if where is None:
            return Always()
        if isinstance(where, list | tuple):
            return parse_filters(where, snapshot.metadata.schema)
        from delvec.spark.delta.scan.conditions import to_predicate  # noqa: PLC0415
        from delvec.spark.failures import translate_errors  # noqa: PLC0415

        require_condition(f"{call}({{}})", where, tuples=True)
        session = self._session("a condition in SQL", "tuples such as [('id', '=', 1)]")
        with translate_errors(snapshot.table):
            return to_predicate(session, snapshot.metadata.schema, by_name(self, where))
