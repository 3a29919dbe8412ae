"""The part of the demonstration that resolves staged deletes by key into deletion vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.demo.keys import TABLE
from delvec.cli.output import Column
from delvec.errors import DelvecError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.cli.output import Output

__all__ = ["show_resolving"]

_BRANCH: Final = "changes"
_CHANGES: Final = (
    "SELECT id, 'sent' status FROM range(95000, 101000)",
    "SELECT id, 'paid' status FROM range(100990, 102000)",
)
_CAUSE: Final = "is not a Parquet file"


def show_resolving(output: Output, spark: SparkSession, result: dict[str, Any]) -> None:
    """Stage two upserts, resolve the branch onto `main`, and read that by stock Iceberg."""
    from delvec.iceberg.table import IcebergTable  # noqa: PLC0415
    from delvec.spark.row_sums import row_sums  # noqa: PLC0415

    output.heading("13. Staged deletes by key become deletion vectors, which every engine reads.")
    table = IcebergTable.for_name(spark, TABLE)
    output.note((f'table.upsert(rows, "id", branch="{_BRANCH}")  # twice', "dim"))
    upserts = [table.upsert(spark.sql(rows), "id", branch=_BRANCH) for rows in _CHANGES]
    keys = sum(each.keys for each in upserts)
    vectors = sum(each.key_vectors for each in upserts)
    output.note(f"{keys:,} keys, as {vectors} equality delete vectors beside the new rows")
    rows = [_state("before", spark, table.to_df())]
    failure = _failure(spark.read.option("branch", _BRANCH).table(TABLE))
    output.note(f"stock Iceberg reads {_BRANCH}: ", (failure, "red"))

    staged = row_sums(table.to_df(_BRANCH), spark.table(TABLE).schema)
    output.note((f'\ntable.resolve("id", staging="{_BRANCH}")', "dim"))
    report = table.resolve("id", staging=_BRANCH)
    output.note(str(report))
    rows.append(_state("after", spark, table.to_df()))
    same = row_sums(spark.table(TABLE), spark.table(TABLE).schema) == staged
    titles = {
        "main": "main",
        "rows": "rows by Iceberg",
        "same": "same by delvec",
        "equality": "equality deletes",
        "vectors": "vectors",
    }
    output.table([Column(key, title) for key, title in titles.items()], rows)
    answer = ("yes", "bold green") if same else ("no", "bold red")
    output.note(f"main has the rows that {_BRANCH} had: ", answer)
    result["resolve"] = {
        "upserts": [each.to_json() for each in upserts],
        "failure": failure,
        "report": report.to_json(),
        "rows": rows,
        "same_as_staged": same,
    }


def _state(when: str, spark: SparkSession, ours: DataFrame) -> dict[str, Any]:
    """Return what stock Iceberg says of `main`."""
    from delvec.spark.row_sums import row_sums  # noqa: PLC0415

    stock = spark.table(TABLE)
    sums, expected = row_sums(stock, stock.schema), row_sums(ours, stock.schema)
    deletes = spark.table(f"{TABLE}.delete_files").groupBy("content").count().collect()
    by_content = {row["content"]: row["count"] for row in deletes}
    return {
        "main": when,
        "rows": sums[0],
        "same": "yes" if sums == expected else "no",
        "equality": by_content.get(2, 0),
        "vectors": by_content.get(1, 0),
    }


def _failure(rows: DataFrame) -> str:
    """Return why rows cannot be read; the number of them if they can."""
    from delvec.iceberg.client.failures import explained  # noqa: PLC0415

    try:
        with explained(TABLE):
            return f"{rows.count():,} rows"
    except DelvecError as error:
        if _CAUSE not in f"{error} {error.__cause__}":
            raise
        return f"a vector {_CAUSE}"
