"""A table that both engines work on: delta-spark judges what delvec does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import Rows, copy_of, rows_of


@dataclass(frozen=True)
class Lake:
    """The folder of a table and a session."""

    spark: SparkSession
    path: Path

    def create(
        self,
        columns: str,
        *statements: str,
        parts: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Let delta-spark create the table with vectors on, and change it."""
        spark_tables.create(
            self.spark, self.path, columns, partitioned_by=parts, properties=properties
        )
        self.sql(*statements)
        return self.table

    def sql(self, *statements: str) -> None:
        spark_tables.sql(self.spark, self.path, *statements)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.for_path(self.spark, self.path)

    @property
    def bare(self) -> DeltaTable:
        """The table without a session."""
        return DeltaTable.for_path(None, self.path)

    def frame(self, version: int | None = None) -> DataFrame:
        """Give what delta-spark reads."""
        return spark_tables.as_delta_spark_reads(self.spark, self.path, version)

    def rows(self) -> Rows:
        """Read by delta-spark, and see that delvec reads the same."""
        return rows_of(self.spark, self.path)

    def ids(self, version: int | None = None) -> list[int]:
        """Read the column `id` by delta-spark, sorted."""
        return sorted(row.id for row in spark_tables.collected(self.frame(version).select("id")))

    def history(self, last: int = 1) -> list[dict[str, Any]]:
        """Give what delta-spark's history says of the newest versions, newest first."""
        told = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.path}` LIMIT {last}")
        return [row.asDict() for row in told.collect()]

    def beside(self, name: str) -> Lake:
        return Lake(self.spark, self.path.parent / name)

    def copy(self, name: str) -> Lake:
        return Lake(self.spark, copy_of(self.path, name))
