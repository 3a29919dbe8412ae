"""The part of the demonstration that converts a Delta table with deletes to Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.output import Column
from delvec.delta.table import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.cli.output import Output
    from delvec.conversion.report import ConversionReport

__all__ = ["show_conversion"]

_TARGET: Final = "lake.demo.orders"
_CALL: Final = f'delvec.convert(spark, "written", "{_TARGET}", verify="rows")'


def show_conversion(output: Output, spark: SparkSession, path: str, result: dict[str, Any]) -> None:
    """Convert a table, delete once more, convert what is new; stock Iceberg reads both."""
    from delvec.conversion.convert import convert  # noqa: PLC0415
    from delvec.spark.row_sums import row_sums  # noqa: PLC0415

    output.heading("11. To Iceberg: data files are shared, vectors are copied and not decoded.")
    table = DeltaTable.for_path(spark, path)
    spark.sql(f"DROP TABLE IF EXISTS {_TARGET}")  # a folder that was kept may hold it
    reports: list[ConversionReport] = []
    rows: list[dict[str, Any]] = []
    for call in (_CALL, f'table.delete("id % 10 = 3"); {_CALL}'):
        if reports:
            table.delete("id % 10 = 3")
        report = convert(spark, table, _TARGET, verify="rows")
        output.note((f"\n{call}" if reports else call, "dim"))
        output.note(str(report).replace(table.storage.root, "written"))
        reports.append(report)
        target = spark.table(_TARGET)
        delta, iceberg = (row_sums(side, target.schema) for side in (table.to_df(), target))
        rows.append(
            {
                "version": report.version,
                "delta": delta[0],
                "iceberg": iceberg[0],
                "same": "yes" if delta == iceberg else "no",
            }
        )
    titles = {
        "version": "version",
        "delta": "rows of the Delta table",
        "iceberg": "rows by stock Iceberg",
        "same": "the same rows",
    }
    output.table([Column(key, title) for key, title in titles.items()], rows)
    result["conversion"] = {"reports": [report.to_json() for report in reports], "rows": rows}
