"""The second step: update and merge write deletion vectors too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.demo.delete import NAME
from delvec.delta.table import DeltaTable
from delvec.report.figures import counted, size

if TYPE_CHECKING:
    from delvec.cli.demo.stage import Stage
    from delvec.delta.write.report import WriteReport

__all__ = ["show_writes"]

_STATUS: Final = {"status": "'paid'"}
_PAID: Final = "cents < 500"
_CHANGED: Final = (199_000, 201_000)


def show_writes(stage: Stage) -> dict[str, Any]:
    """Update some rows, merge others, and show what each of the commits wrote."""
    tell = stage.teller
    tell.begin(
        "Update and merge: replaced rows go into vectors, new ones into a file.",
        f'table.update({_STATUS!r}, where="{_PAID}")',
        'table.merge(changes, on="t.id = s.id").when_matched_update_all()'
        "\n       .when_not_matched_insert_all().execute()",
    )
    table = DeltaTable.for_path(stage.spark, stage.path(NAME))
    changes = stage.spark.range(*_CHANGED).selectExpr("id", "'sent' status", "id cents")
    merging = table.merge(changes, on="t.id = s.id").when_matched_update_all()
    reports = [
        table.update(_STATUS, where=_PAID),
        merging.when_not_matched_insert_all().execute(),
    ]
    shown = [_line(table, report) for report in reports]
    titles = {
        "operation": "commit",
        "updated": "updated",
        "inserted": "inserted",
        "written": "written",
        "rows": "rows",
    }
    tell.table(titles, [{**each, "written": size(each["written"])} for each in shown])
    first = next(
        version for version in range(table.version + 1) if table.count(version=version) > 0
    )
    rewritten = sum(each["rewritten"] for each in shown)
    files = len(table.arrow_files())
    tell.fact(f"data files rewritten: {rewritten}; the table has {counted(files, 'file')} now")
    tell.why(
        f"One atomic commit each; version {first} can still be read, with"
        f" {table.count(version=first):,} rows."
    )
    return {
        "reports": [report.to_json() for report in reports],
        "commits": shown,
        "rows": table.count(),
    }


def _line(table: DeltaTable, report: WriteReport) -> dict[str, Any]:
    return {
        "operation": report.operation,
        "updated": report.rows_updated,
        "inserted": report.rows_inserted,
        "rewritten": report.files_removed,
        "written": report.bytes_added + report.vector_bytes,
        "rows": table.count(version=report.version),
    }
