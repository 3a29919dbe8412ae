"""The part of the demonstration that writes: each change is one commit with a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.output import Column
from delvec.delta.table import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.cli.output import Output
    from delvec.delta.write.report import WriteReport

__all__ = ["show_writes"]

_ROWS = 100_000


def show_writes(output: Output, spark: SparkSession, path: str, result: dict[str, Any]) -> None:
    """Create a table, delete, update and merge rows by vectors, and show the changes."""
    output.heading("9. Writing, with plain PySpark and no jar: deletes go into vectors.")
    table = DeltaTable.create(
        spark,
        path,
        "id long, status string, amount double",
        properties={"delta.enableChangeDataFeed": "true"},
        mode="replace",
    )
    rows = spark.range(_ROWS).selectExpr("id", "'open' status", "id / 100 amount")
    changed = spark.range(99_990, 100_010).selectExpr("id", "'merged' status", "-1.0D amount")
    steps: dict[str, WriteReport] = {
        "table.append(rows)": table.append(rows.coalesce(2)),
        'table.delete("id % 7 = 0")': table.delete("id % 7 = 0"),
        'table.update({"status": "\'closed\'"}, where="id < 1000")': table.update(
            {"status": "'closed'"}, where="id < 1000"
        ),
        'table.merge(rows, on="t.id = s.id").when_matched_update_all()'
        ".when_not_matched_insert_all().execute()": table.merge(changed, on="t.id = s.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(),
    }
    for call, report in steps.items():
        output.note(("\n" + call, "dim"))
        output.note(str(report).replace(table.storage.root, "written"))
    output.note(("\ntable.changes(2).groupBy(...).count()", "dim"))
    counts = (
        table.changes(2)
        .groupBy("_commit_version", "_change_type")
        .count()
        .orderBy("_commit_version", "_change_type")
        .collect()
    )
    titles = {"_commit_version": "version", "_change_type": "change", "count": "rows"}
    columns = [Column(key, title) for key, title in titles.items()]
    changes = [row.asDict() for row in counts]
    output.table(columns, changes)
    result["writes"] = {
        "reports": [report.to_json() for report in steps.values()],
        "changes": changes,
        "rows": table.count(),
    }
