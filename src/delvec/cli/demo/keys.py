"""The part of the demonstration that deletes and upserts rows of an Iceberg table by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delvec.cli.output import Output
    from delvec.iceberg.deletes.report import KeyDeleteReport
    from delvec.iceberg.table import IcebergTable

__all__ = ["TABLE", "show_key_deletes"]

TABLE: Final = "lake.demo.keys"
"""The table, whose branch `changes` is a staging branch."""

_ROWS: Final = 100_000
_DELETED: Final = range(20_000, 30_000)
_CHANGES: Final = """
    SELECT id, 'changed' status, if(id % 4 = 0, 'D', 'U') op FROM range(99990, 100010)
"""
_STAGED: Final = range(50_000)


def show_key_deletes(output: Output, spark: SparkSession, result: dict[str, Any]) -> None:
    """Delete and upsert by key on `main` and on a staging branch; stock Iceberg reads `main`."""
    from delvec.spark.row_sums import row_sums  # noqa: PLC0415

    output.heading("12. Iceberg deletes by key: the keys are written down, no data is read.")
    table = _new_table(spark)
    reports: list[KeyDeleteReport] = []
    for call, run in _steps(spark, table).items():
        output.note((f"\n{call}" if reports else call, "dim"))
        reports.append(run())
        output.note(str(reports[-1]))
    plan = table.plan_read("changes")
    output.note(('\ntable.plan_read("changes")', "dim"))
    output.note(str(plan))
    stock = spark.table(TABLE)
    ours, theirs = (row_sums(side, stock.schema) for side in (table.to_df(), stock))
    rows = {
        "main": ours[0],
        "stock": theirs[0],
        "same": "yes" if ours == theirs else "no",
        "changes": plan.to_df().count(),
    }
    titles = {
        "main": "rows of main",
        "stock": "by stock Iceberg",
        "same": "the same rows",
        "changes": "rows of changes",
    }
    output.table([Column(key, title) for key, title in titles.items()], [rows])
    result["keys"] = {
        "reports": [report.to_json() for report in reports],
        "plan": plan.to_json(),
        "rows": rows,
    }


def _new_table(spark: SparkSession) -> IcebergTable:
    from delvec.iceberg.table import IcebergTable  # noqa: PLC0415

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.demo")
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")  # a folder that was kept may hold it
    spark.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, status STRING) USING iceberg TBLPROPERTIES"
        " ('format-version'='3', 'write.delete.equality-vector.enabled'='true')"
    )
    table = IcebergTable.for_name(spark, TABLE)
    table.append(spark.range(_ROWS).selectExpr("id", "'open' status").coalesce(2))
    return table


def _steps(spark: SparkSession, table: IcebergTable) -> dict[str, Callable[[], KeyDeleteReport]]:
    def staged() -> KeyDeleteReport:
        table.create_branch("changes", staging=True)
        return table.delete_keys(_STAGED, "id", branch="changes")

    return {
        f'table.delete_keys({_DELETED}, "id")': lambda: table.delete_keys(_DELETED, "id"),
        'table.upsert(changes, "id", delete_where="op = \'D\'")': lambda: table.upsert(
            spark.sql(_CHANGES), "id", delete_where="op = 'D'"
        ),
        'table.create_branch("changes", staging=True)\n'
        f'table.delete_keys({_STAGED}, "id", branch="changes")': staged,
    }
