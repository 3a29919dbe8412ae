"""The step that converts a Delta table with deletion vectors to Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.demo.delete import NAME
from delvec.cli.demo.stage import yes_or_no
from delvec.delta.table import DeltaTable
from delvec.report.figures import counted, size

if TYPE_CHECKING:
    from delvec.cli.demo.stage import Stage
    from delvec.conversion.report import ConversionReport

__all__ = ["TARGET", "show_conversion"]

TARGET: Final = f"lake.demo.{NAME}"
"""The Iceberg table."""

_MODES: Final = {"full": "full", "incremental": "new only"}
_MORE: Final = "id % 10 = 8"


def show_conversion(stage: Stage) -> dict[str, Any]:
    """Convert a table, delete once more, convert what is new; stock Iceberg reads both."""
    from delvec.conversion.convert import convert  # noqa: PLC0415

    tell = stage.teller
    tell.begin(
        "The Delta table as Iceberg: data files shared, vectors copied as bytes.",
        f'delvec.convert(spark, table, "{TARGET}")',
        f'table.delete("{_MORE}"); delvec.convert(...)   # what is new',
        f'spark.table("{TARGET}").count()   # stock Iceberg',
    )
    table = DeltaTable.for_path(stage.spark, stage.path(NAME))
    reports = [convert(stage.spark, table, TARGET)]
    shown = [_compared(stage, table, reports[0])]
    table.delete(_MORE)
    reports.append(convert(stage.spark, table, TARGET))
    shown.append(_compared(stage, table, reports[1]))
    titles = {
        "mode": "conversion",
        "files": "files",
        "vectors": "vectors",
        "delta": "Delta",
        "iceberg": "Iceberg",
        "same": "same",
    }
    tell.table(titles, [{**each, "mode": _MODES[each["mode"]]} for each in shown])
    shared = _shared(stage, table)
    tell.fact(
        f"{shared[0]} of {counted(shared[1], 'data file')} of the Iceberg table are Delta's own;"
        f" {size(sum(report.vector_bytes for report in reports))} of vectors"
    )
    tell.why("One copy of the data for both formats; a conversion costs what changed.")
    return {
        "target": TARGET,
        "reports": [report.to_json() for report in reports],
        "rows": shown,
        "shared_files": shared[0],
        "files": shared[1],
    }


def _compared(stage: Stage, table: DeltaTable, report: ConversionReport) -> dict[str, Any]:
    """Return what a conversion did, and whether stock Iceberg reads the rows of the source."""
    from delvec.spark.row_sums import row_sums  # noqa: PLC0415

    target = stage.spark.table(TARGET)
    delta, iceberg = (row_sums(side, target.schema) for side in (table.to_df(), target))
    return {
        "mode": report.mode,
        "files": report.files_added,
        "vectors": report.vectors_added + report.vectors_replaced,
        "delta": delta[0],
        "iceberg": iceberg[0],
        "same": yes_or_no(value=delta == iceberg),
    }


def _shared(stage: Stage, table: DeltaTable) -> tuple[int, int]:
    """Return how many data files of the target are in the source's folder, and how many it has."""
    found = stage.spark.table(f"{TARGET}.data_files").select("file_path").collect()
    own = set(table.arrow_files()["path"].to_pylist())
    shared = sum(any(row["file_path"].endswith(f"/{NAME}/{path}") for path in own) for row in found)
    return shared, len(found)
