"""The part of the demonstration that makes a deleted person's rows physically gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.output import Column
from delvec.delta.table import DeltaTable
from delvec.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delvec.cli.output import Output

__all__ = ["show_maintenance"]

_ROWS: Final = 20_000
_WHO: Final = "name = 'customer 7'"


def show_maintenance(
    output: Output, spark: SparkSession, path: str, result: dict[str, Any]
) -> None:
    """Delete a customer, and follow the rows through purge and vacuum until they are gone."""
    output.heading("10. Deleted rows stay in the files until purge and vacuum: traces proves it.")
    table = DeltaTable.create(spark, path, "id long, name string, spent double", mode="replace")
    for part in range(3):
        rows = spark.range(part * _ROWS, (part + 1) * _ROWS, 1, 1)
        table.append(rows.selectExpr("id", "concat('customer ', id % 100) name", "id / 7 spent"))
    steps: dict[str, Callable[[], object]] = {
        "append(rows)": lambda: None,
        "delete(...)": lambda: table.delete(_WHO),
        "purge()": table.purge,
        # In earnest after a week, when no reader and no time travel needs the old files.
        "vacuum(...)": lambda: table.vacuum(0, force=True),
    }
    found: list[dict[str, Any]] = []
    for call, act in steps.items():
        act()
        traces = table.traces(_WHO)
        by_kind = {
            kind: sum(each.rows or 0 for each in traces.places if each.kind == kind)
            for kind in ("live", "deleted", "removed")
        }
        found.append({"step": call, **by_kind, **_files(table)})
    titles = {
        "step": "after",
        "live": "live",
        "deleted": "by vectors",
        "removed": "old files",
        "files": "files",
        "bytes": "bytes",
    }
    shown = [{**each, "bytes": size(each["bytes"])} for each in found]
    output.note(f"rows with {_WHO}, wherever they physically are:")
    output.table([Column(key, title) for key, title in titles.items()], shown)
    output.note(("table.traces(...) says what is left to do", "dim"))
    output.note(str(table.traces(_WHO)).replace(table.storage.root, "customers"))
    output.note(("\ntable.check()", "dim"))
    report = table.check()
    output.note(str(report).replace(table.storage.root, "customers"))
    result["maintain"] = {"steps": found, "ok": report.ok, "rows": table.count()}


def _files(table: DeltaTable) -> dict[str, int]:
    """Return how many files are below the table's folder outside the log, and their size."""
    infos = [
        info
        for info in table.storage.list(recursive=True)
        if not info.key.startswith("_") and not info.key.rpartition("/")[2].startswith(".")
    ]
    return {"files": len(infos), "bytes": sum(info.size for info in infos)}
