"""The step of staged upserts: keys are written down as they come, and resolved later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.demo.stage import yes_or_no
from delvec.errors import DelvecError
from delvec.report.figures import counted, size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.cli.demo.stage import Stage
    from delvec.iceberg.table import IcebergTable

__all__ = ["TABLE", "show_keys"]

TABLE: Final = "lake.demo.accounts"
"""The Iceberg table that upserts go to."""

_BRANCH: Final = "staging"
_ROWS: Final = 100_000
_CHANGES: Final = (
    "SELECT id, 100L balance FROM range(95000, 101000)",
    "SELECT id, 200L balance FROM range(100500, 102000)",
)
_CAUSE: Final = "is not a Parquet file"


def show_keys(stage: Stage) -> dict[str, Any]:
    """Stage two upserts, resolve the branch onto `main`, and read both by stock Iceberg."""
    tell, spark = stage.teller, stage.spark
    tell.begin(
        "Upserts by key, staged as Equality Delete Vectors (EDVs), then resolved.",
        f'table.upsert(rows, "id", branch="{_BRANCH}")   # twice',
        f'table.resolve("id", staging="{_BRANCH}")',
    )
    table = _new_table(spark)
    shown = [_state("main before", spark, table, "main")]
    upserts = [table.upsert(spark.sql(rows), "id", branch=_BRANCH) for rows in _CHANGES]
    shown.append(_state(_BRANCH, spark, table, _BRANCH))
    report = table.resolve("id", staging=_BRANCH)
    shown.append(_state("main after", spark, table, "main"))
    titles = {
        "where": "branch",
        "edvs": "EDVs",
        "vectors": "vectors",
        "rows": "delvec",
        "stock": "stock Iceberg",
    }
    tell.table(titles, shown)
    keys, key_bytes = (sum(getattr(u, n) for u in upserts) for n in ("keys", "vector_bytes"))
    tell.fact(
        f"{counted(keys, 'key')} staged in {size(key_bytes)}, no data file read;"
        f" resolve found {counted(report.rows_deleted, 'old row')}"
    )
    same = shown[-1]["sums"] == shown[-2]["sums"]
    tell.fact("main has the rows of the staging branch: ", (yes_or_no(value=same), "bold green"))
    tell.why("Writers never wait, and every Iceberg v3 engine reads the result.")
    return {
        "table": TABLE,
        "upserts": [each.to_json() for each in upserts],
        "report": report.to_json(),
        "branches": [{k: v for k, v in each.items() if k != "sums"} for each in shown],
        "same_as_staged": same,
    }


def _new_table(spark: SparkSession) -> IcebergTable:
    from delvec.iceberg.table import IcebergTable  # noqa: PLC0415

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.demo")
    spark.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, balance BIGINT) USING iceberg TBLPROPERTIES"
        " ('format-version'='3', 'write.delete.equality-vector.enabled'='true')"
    )
    table = IcebergTable.for_name(spark, TABLE)
    table.append(spark.range(0, _ROWS, 1, 2).selectExpr("id", "0L balance"))
    table.create_branch(_BRANCH, staging=True)
    return table


def _state(where: str, spark: SparkSession, table: IcebergTable, branch: str) -> dict[str, Any]:
    """Return what delvec and stock Iceberg say of a branch."""
    from delvec.spark.row_sums import row_sums  # noqa: PLC0415

    detail = table.detail(branch=branch)
    stock = spark.read.option("branch", branch).table(TABLE)
    sums = row_sums(table.to_df(branch), stock.schema)
    return {
        "where": where,
        "edvs": detail.equality_delete_vectors,
        "vectors": detail.deletion_vectors,
        "rows": sums[0],
        "stock": _answer(stock),
        "sums": sums,
    }


def _answer(rows: DataFrame) -> str:
    """Return how many rows there are, or that the branch is refused: keys are no positions."""
    from delvec.iceberg.client.failures import explained  # noqa: PLC0415

    try:
        with explained(TABLE):
            return f"{rows.count():,}"
    except DelvecError as error:
        if _CAUSE not in f"{error} {error.__cause__}":
            raise
        return "refuses"
