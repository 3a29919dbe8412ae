"""Rows of an Iceberg table for other libraries: Arrow, pandas, and whatever takes Arrow streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.frames import to_pandas
from delvec.iceberg.table.reads import TableReads
from delvec.spark.engine import SparkEngine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["TableArrowReads"]


@explained_calls()
@dataclass(frozen=True)
class TableArrowReads(TableReads):
    """The commands that read rows into this process; Spark reads them, through all deletes."""

    def to_arrow(
        self,
        branch: str | None = None,
        snapshot_id: int | None = None,
        *,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Read a snapshot into an Arrow table, all rows in memory at once; see `to_df`."""
        df = self.to_df(
            branch, snapshot_id, where=where, columns=columns, timestamp=timestamp, tag=tag
        )
        with SparkEngine(self.spark).explained(self.name):
            return df.toArrow()

    def to_pandas(
        self,
        branch: str | None = None,
        snapshot_id: int | None = None,
        *,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pd.DataFrame:
        """Read a snapshot into a pandas DataFrame; see `to_df`."""
        rows = self.to_arrow(
            branch, snapshot_id, where=where, columns=columns, timestamp=timestamp, tag=tag
        )
        return to_pandas(rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows of `main` to other libraries: DuckDB, polars, pandas and pyarrow.

        Spark reads them as a whole into memory first, unlike those of a Delta table.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)
