"""The step that makes a person's rows physically gone, with the bytes searched after each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.delta.table import DeltaTable
from delvec.report.figures import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.cli.demo.stage import Stage
    from delvec.delta.maintain.traces.report import TracesReport

__all__ = ["show_erasing"]

_NAME: Final = "customers"
_ROWS: Final = 20_000
_PARTS: Final = 3
_EMAIL: Final = "maria.keller@example.com"
# The part of it that Parquet's compression leaves as it is: no other address has it.
_MARK: Final = b"maria.keller"
_OTHERS: Final = "element_at(array('anna', 'ben', 'tom', 'zoe'), cast(customer % 4 AS int) + 1)"


def show_erasing(stage: Stage) -> dict[str, Any]:
    """Delete a customer, and follow the rows through purge and vacuum until they are gone."""
    tell = stage.teller
    tell.begin(
        "Erase a person for good: a delete hides rows, these calls remove them.",
        'table.delete("customer = 7"); table.purge()',
        "table.vacuum(0, force=True)   # in earnest table.vacuum(), a week later",
        f"table.traces(\"email = '{_EMAIL}'\")   # proves it",
    )
    table = _new_table(stage)
    steps: dict[str, Callable[[], object]] = {
        "append": lambda: None,
        "delete": lambda: table.delete("customer = 7"),
        "purge": table.purge,
        "vacuum": lambda: table.vacuum(0, force=True),
    }
    shown: list[dict[str, Any]] = []
    for name, act in steps.items():
        act()
        left = table.traces(f"email = '{_EMAIL}'")
        shown.append({"step": name, **_rows(left), "raw": _files_with_bytes(table)})
    tell.fact("\nher rows, wherever they physically are:")
    titles = {
        "step": "after",
        "live": "live",
        "deleted": "hidden",
        "removed": "old files",
        "raw": "her bytes in",
    }
    cells = [
        {**each, "raw": counted(each["raw"], "file") if each["raw"] else "no file"}
        for each in shown
    ]
    tell.table(titles, cells)
    tell.fact(
        f"all bytes below the table searched for {_MARK.decode()!r}; traces finds ",
        (counted(len(left.places), "place") if left else "nothing", "bold green"),
    )
    tell.why("Until purge and vacuum have run, a deleted person is still in your files.")
    return {
        "table": table.storage.root,
        "steps": shown,
        "traces": left.to_json(),
        "rows": table.count(),
    }


def _new_table(stage: Stage) -> DeltaTable:
    """Make a table in which the address is neither the least nor the greatest of any file."""
    columns = "customer long, email string, cents long"
    table = DeltaTable.create(stage.spark, stage.path(_NAME), columns)
    for part in range(_PARTS):
        ids = stage.spark.range(part * _ROWS, (part + 1) * _ROWS, 1, 1)
        rows = ids.selectExpr("id % 1000 customer", "id cents")
        email = f"if(customer = 7, '{_EMAIL}', concat({_OTHERS}, customer, '@example.com'))"
        table.append(rows.selectExpr("customer", f"{email} email", "cents"))
    return table


def _rows(traces: TracesReport) -> dict[str, int]:
    """Return how many rows of the person are where."""
    return {
        kind: sum(each.rows or 0 for each in traces.places if each.kind == kind)
        for kind in ("live", "deleted", "removed")
    }


def _files_with_bytes(table: DeltaTable) -> int:
    """Return how many files below the table, those of the log included, have the bytes."""
    keys = [info.key for info in table.storage.list(recursive=True)]
    return sum(_MARK in table.storage.read(key) for key in keys)
