"""The public class `DeltaTable`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.calls import explained_class
from delvec.delta.table.alterations import TableAlterations
from delvec.delta.table.checks import TableChecks
from delvec.delta.table.handle import TableHandle, opened
from delvec.delta.table.maintenance import TableMaintenance
from delvec.delta.table.reads import TableReads, detail_of
from delvec.delta.table.writes import TableWrites
from delvec.delta.write.transaction import WriteOptions
from delvec.errors import InvalidArgumentError
from delvec.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@explained_class(WriteOptions)
@dataclass(frozen=True, init=False, repr=False)
class DeltaTable(TableReads, TableWrites, TableAlterations, TableMaintenance, TableChecks):
    """A handle on a Delta table; each call sees the newest version, unless it names another.

    With a Spark session, rows are read and written as DataFrames. Without one, the log, the
    deletion vectors, Arrow and pandas reads and changes of the metadata work all the same.

        t = delvec.DeltaTable.create(spark, "/lake/orders", "id long, amount double")
        t = delvec.DeltaTable.for_path(spark, "/lake/orders")
        t.append(df)
        t.delete("amount < 0")
        t.update({"amount": "amount * 1.19"}, where="id < 1000")
        t.merge(df, on="t.id = s.id").when_matched_update_all().execute()
        t.to_df().where("amount > 100").show()
        t.to_df(version=3).count()

        t = delvec.DeltaTable.for_path(None, "/lake/orders")    # no JVM
        t.to_arrow([("id", "=", 17)], columns=["amount"])

    `DeltaTable(path)` is `for_path` with the session of this process, or without one if there is
    none: it starts no JVM.
    """

    def __init__(
        self,
        table: str | os.PathLike[str] | SparkSession | Storage | None,
        path: str | os.PathLike[str] | SparkSession | None = None,
        storage_options: Mapping[str, object] | None = None,
        *,
        allow_paths: Sequence[str] | None = None,
        version: int | None = None,
    ) -> None:
        """Open a table: `DeltaTable(path)`, or `DeltaTable(spark, path)`.

        Args:
            table: The path, or the session; None for none.
            path: The path, behind a session.
            storage_options: See `for_path`.
            allow_paths: See `for_path`.
            version: Not taken: a table has all of its versions.

        Raises:
            TableNotFoundError: There is no Delta table.
            UnsupportedFeatureError: The table needs a reader feature that delvec does not support.
        """
        if version is not None:
            raise InvalidArgumentError(
                f"DeltaTable(..., version={version!r}): a table is opened with all of its versions",
                hint=f"name it where you read: to_arrow(version={version!r})",
            )
        storage, spark = opened(table, path, storage_options, allow_paths)
        TableHandle.__init__(self, storage, spark)
        if not isinstance(table, Storage):
            self._require_table(table if isinstance(table, str | os.PathLike) else path)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        snapshot = self.snapshot()
        columns = snapshot.metadata.schema._repr_html_()
        return f"{detail_of(snapshot)._repr_html_()}{columns}"

    def __repr__(self) -> str:
        session = "" if self.spark is None else ", with Spark"
        return f"DeltaTable({self.storage.root!r}{session})"
