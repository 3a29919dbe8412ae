"""The class that Spark instantiates for each read and write with `format("delvec")`.

Spark calls it in Python processes of its own, on the driver's machine: one creates it and asks for
the schema, another plans the read or the write. They have no session: everything they need comes as
options.

It has no `pushFilters`, on purpose. Up to Spark 4.3 the plan of a read belongs to the relation, not
to the query: after `df.where("id < 3").count()` a plain `df.count()` would count 3 rows, and of two
filters in one query the last would apply to both. The option `filters` belongs to the relation, and
is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as api

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from delvec.datasource.table import Opened


class DelvecDataSource(api.DataSource):
    """A Delta table: its rows without the deleted ones, appends, and streams of both.

        spark.read.format("delvec").option("versionAsOf", 3).load("/lake/orders")
        spark.sql("CREATE TEMPORARY VIEW orders USING delvec OPTIONS (path '/lake/orders')")
        df.write.format("delvec").mode("append").save("/lake/orders")
        spark.readStream.format("delvec").option("readChangeFeed", "true").load("/lake/orders")
        stream.writeStream.format("delvec").option("checkpointLocation", c).start("/lake/copy")

    A DataFrame or view stays at the version that was the newest when it was made; a stream at the
    columns of that version: after other columns, call `load` again.

    Options of all reads (case-insensitive):
        path: The table.
        columns: Comma-separated names, or a JSON list. `_file` and `_pos` are the full
            name of a row's file and its position there.
        splitBytes: How much of the table a task reads, such as `64m`; at most 128 MiB by default,
            less for small tables.
        timeZone: Of times that name none: in timestampAsOf and startingTimestamp, and in values of
            partitions. For the latter the session's zone is taken by itself, if the session sets
            spark.sql.session.timeZone; `delvec.session` does. Where the former are resolved, Spark
            4 does not tell it.
        storage.*: Keys and endpoints of the object store, such as `storage.aws_region`; others are
            taken from the environment. The session's Hadoop configuration is not accessible
            here. Those of another bucket that the table leads to are `storage.s3://other/aws_region`
            and the like.
        allowedPaths: Prefixes, with commas between them, of paths outside of the table's folder
            that it may lead to; everything else outside is refused then. The session's
            `spark.delvec.allowedPaths` holds in tasks, which read all files.

    Options of batches:
        versionAsOf: The version; the newest by default.
        timestampAsOf: Or the version that was current at that time, ISO 8601.
        filters: A JSON list such as `[["day", "=", "2026-01-31"], ["id", "in", [1, 2]]]`, all of
            which must hold, or a list of such lists, one of which must. Files and row groups that
            cannot match are not read.
        view: `rows` by default; `files`, `vectors` (one row for each file with a vector),
            `positions` (every deleted row) or `history`.

    Options of streams, as Delta names them. A stream returns all rows of the table, then those that
    commits append; it fails at a commit that deletes or updates rows:
        startingVersion: Return what commits append from this version on, or after `latest`.
        startingTimestamp: Or from the first version that was committed then or later.
        skipChangeCommits: Pass over commits that delete or update rows.
        ignoreDeletes: Pass over commits that only remove whole files.
        readChangeFeed: Return all changes, with `_change_type`, `_commit_version` and
            `_commit_timestamp`.
        maxFilesPerTrigger: How many files a batch reads at most, 1000 by default. Needs Spark 4.2.
        maxBytesPerTrigger: After how many bytes, such as `10g`, a batch takes no further file.
            Needs Spark 4.2.

    Options of writes:
        partitionBy: The partition columns of a table that is created; Spark refuses
            `.partitionBy(...)` before it asks a data source of Python.
        delta.*: Properties of a table that is created.
        txnAppId, txnVersion: A batch that the table holds already is not written again. Streams
            do this by themselves.
        userMetadata: A string for the history.

    Tables with CHECK constraints, generated or identity columns, char or variant columns are
    written by `delvec.DeltaTable` only.
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

    def reader(self, schema: StructType) -> api.DataSourceReader:
        """Return the reader of the columns that Spark needs."""
        return self._opened().reader(schema)

    def _opened(self) -> Opened:
        # Here, so that registering this class or looking up formats does not import Arrow.
        from delvec.datasource.options import parse_options  # noqa: PLC0415
        from delvec.datasource.table import Opened  # noqa: PLC0415

        opened = Opened.open(parse_options(self.options), self._version)
        self._version = opened.snapshot.version
        return opened

    def streamReader(self, schema: StructType) -> api.DataSourceStreamReader:  # noqa: N802
        return self._opened().stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> api.DataSourceWriter:  # noqa: FBT001
        from delvec.datasource.options import parse_write_options  # noqa: PLC0415
        from delvec.datasource.writers import BatchWriter  # noqa: PLC0415

        return BatchWriter(parse_write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> api.DataSourceStreamWriter:  # noqa: FBT001, N802
        from delvec.datasource.options import parse_write_options  # noqa: PLC0415
        from delvec.datasource.writers import StreamWriter  # noqa: PLC0415

        return StreamWriter(parse_write_options(self.options), schema, overwrite=overwrite)
