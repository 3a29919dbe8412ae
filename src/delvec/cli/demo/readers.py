"""Readers of a Delta table with deletion vectors: delvec's own two, others, and one that is blind.

Each returns the number of rows and two sums over them, at the newest version.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from delvec.delta.table import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BLIND", "has_delta_rs", "readers"]

BLIND: Final = "Spark, bare Parquet"
"""The reader that does not look at the log."""

_SUMS: Final = ("count(*)", "sum(id)", "sum(cents)")


def readers(spark: SparkSession, table: DeltaTable) -> dict[str, Callable[[], tuple[int, ...]]]:
    """Return readers by name; delta-rs is one of them if it is installed."""
    path = table.storage.root
    found: dict[str, Callable[[], tuple[int, ...]]] = {
        "delvec on Spark": lambda: _on_spark(table.to_df()),
        "delvec without a JVM": lambda: _without_jvm(path),
    }
    if has_delta_rs():
        import deltalake  # noqa: PLC0415

        found[f"delta-rs {deltalake.__version__}"] = lambda: _delta_rs(path)
    return {**found, BLIND: lambda: _on_spark(_bare(spark, path))}


def has_delta_rs() -> bool:
    """Return whether delta-rs is installed, which delvec itself does not need."""
    return find_spec("deltalake") is not None


def _on_spark(rows: DataFrame) -> tuple[int, ...]:
    return tuple(rows.selectExpr(*_SUMS).collect()[0])


def _bare(spark: SparkSession, path: str) -> DataFrame:
    """Return all rows of a folder's Parquet files, as a reader that knows nothing of Delta."""
    found = spark.read.option("recursiveFileLookup", "true")
    return found.option("pathGlobFilter", "*.parquet").parquet(path)


def _without_jvm(path: str) -> tuple[int, ...]:
    import pyarrow.compute as pc  # noqa: PLC0415

    rows = DeltaTable.for_path(None, path).to_arrow(columns=["id", "cents"])
    return (rows.num_rows, *(pc.sum(rows[name]).as_py() for name in ("id", "cents")))


def _delta_rs(path: str) -> tuple[int, ...]:
    from deltalake import DeltaTable as OfDeltaRs  # noqa: PLC0415
    from deltalake import QueryBuilder  # noqa: PLC0415

    query = QueryBuilder().register("t", OfDeltaRs(path))
    names = (f"{each} c{number}" for number, each in enumerate(_SUMS))
    batches = query.execute(f"SELECT {', '.join(names)} FROM t").read_all()  # noqa: S608
    return tuple(column[0].as_py() for column in batches.columns)
