"""The class that Spark instantiates for each `spark.read.format("delvec")`.

Spark calls it in Python processes of its own, on the driver's machine: one creates it and asks for
the schema, another plans the read. They have no session: everything they need comes as options.

It has no `pushFilters`, on purpose. Up to Spark 4.3 the plan of a read belongs to the relation, not
to the query: after `df.where("id < 3").count()` a plain `df.count()` would count 3 rows, and of two
filters in one query the last would apply to both. The option `filters` belongs to the relation, and
is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource

from delvec.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from delvec.datasource.opened import Opened

__all__ = ["DelvecDataSource"]


class DelvecDataSource(DataSource):
    """A Delta table, without its deleted rows.

        spark.read.format("delvec").option("versionAsOf", 3).load("/lake/orders")
        spark.sql("CREATE TEMPORARY VIEW orders USING delvec OPTIONS (path '/lake/orders')")

    A DataFrame or view stays at the version that was the newest when it was made.

    Options (case-insensitive):
        path: The table.
        versionAsOf: The version; the newest by default.
        timestampAsOf: Or the version that was current at that time, ISO 8601.
        columns: Comma-separated names, or a JSON list. `_file` and `_pos` are the full
            name of a row's file and its position there.
        filters: A JSON list such as `[["day", "=", "2026-01-31"], ["id", "in", [1, 2]]]`, all of
            which must hold, or a list of such lists, one of which must. Files and row groups that
            cannot match are not read.
        view: `rows` by default; `files`, `vectors` (one row for each file with a vector),
            `positions` (every deleted row) or `history`.
        splitBytes: How much of the table a task reads, such as `64m`; at most 128 MiB by default,
            less for small tables.
        timeZone: Of times that name none: in timestampAsOf, and in values of partitions.
        storage.*: Keys and endpoints of the object store, such as `storage.aws_region`; others are
            taken from the environment. The session's Hadoop configuration is not accessible
            here.
    """

    # The version that schema() opened; pickled with the object, so that the read plans the same.
    _version: int | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "delvec"

    @property
    def version(self) -> int | None:
        """The version that is read; None before it is chosen."""
        return self._version

    def schema(self) -> StructType:
        """Return the schema, from the table's log."""
        return self._opened().schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns that Spark needs."""
        return self._opened().reader(schema)

    def _opened(self) -> Opened:
        # Here, so that registering this class or looking up formats does not import Arrow.
        from delvec.datasource.opened import Opened  # noqa: PLC0415
        from delvec.datasource.options import parse_options  # noqa: PLC0415

        opened = Opened.open(parse_options(self.options), self._version)
        self._version = opened.snapshot.version
        return opened

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, FBT001
        """Refuse to write."""
        raise UnsupportedFeatureError(
            'format("delvec") reads only',
            feature="writing through the data source API",
            hint="write through delvec.DeltaTable.for_path(spark, path)",
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: FBT001, N802
        """Refuse to write."""
        self.writer(schema, overwrite)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802
        """Refuse to stream."""
        raise UnsupportedFeatureError(
            'format("delvec") cannot be streamed: a stream would miss rows that vectors delete',
            feature="streaming reads",
            hint='read in batches with spark.read.format("delvec"), or what has changed between two'
            " versions with delvec.DeltaTable.for_path(spark, path).changes(start_version)",
        )

    def simpleStreamReader(self, schema: StructType) -> Any:  # noqa: ANN401, N802
        """Refuse to stream."""
        self.streamReader(schema)
