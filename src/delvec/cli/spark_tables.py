"""Tables with and without Spark, for the commands, and the output of reports."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.table_kinds import require_name, require_path
from delvec.errors import TableNotFoundError
from delvec.report.figures import visible
from delvec.storage import Storage
from delvec.storage.fence import ALLOWED_PATHS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.cli.output import Output
    from delvec.conversion.report import ConversionReport
    from delvec.delta.table import DeltaTable
    from delvec.delta.write.report import WriteReport
    from delvec.iceberg.table import IcebergTable

__all__ = [
    "allowed_paths",
    "delta_storage",
    "delta_table",
    "on_spark",
    "opened",
    "opened_iceberg",
    "show_alteration",
    "show_report",
    "without_catalog",
]

# A failure is reported once, not also in the logs of tasks.
_SETTINGS: Final = {"spark.ui.enabled": "false", "spark.log.level": "FATAL"}


def allowed_paths() -> Sequence[str] | None:
    """Return what `delvec --allow-path PREFIX` allows; None if it is not given."""
    context = click.get_current_context(silent=True)
    given = context.find_root().params.get("allow_paths") if context is not None else ()
    return given or None


def delta_table(table: str, options: Mapping[str, str]) -> DeltaTable:
    """Open a Delta table without Spark."""
    from delvec.delta.table import DeltaTable  # noqa: PLC0415

    require_path(table)
    return DeltaTable.for_path(None, table, options, allow_paths=allowed_paths())


@contextmanager
def delta_storage(table: str, options: Mapping[str, str]) -> Iterator[Storage]:
    """Open the storage of a Delta table, for a block that reads its log alone."""
    require_path(table)
    storage = Storage.open(table, options, allow_paths=[allowed_paths()])
    try:
        yield storage
    except TableNotFoundError as error:
        from delvec.delta.table.missing import explain_missing  # noqa: PLC0415

        raise explain_missing(storage, table, error) from None


@contextmanager
def on_spark(
    output: Output,
    table: str,
    iceberg: Mapping[str, Any] | None = None,
    session: Mapping[str, Any] | None = None,
) -> Iterator[SparkSession]:
    """Start Spark for the block, with its progress shown and its errors as delvec's.

    Args:
        output: Where progress is shown.
        table: The table, for errors to name.
        iceberg: Arguments of `delvec.session` for a start with Iceberg; None starts without.
        session: Arguments of `delvec.session` for a start without Iceberg.
    """
    from delvec.spark.engine import SparkEngine  # noqa: PLC0415
    from delvec.spark.progress import watched  # noqa: PLC0415
    from delvec.spark.session.session import session as started  # noqa: PLC0415

    with output.progress() as show:
        if show is not None:
            show("starting Spark", 0, 0)
        given = dict(session or {}) if iceberg is None else dict(iceberg)
        conf = {**_SETTINGS, **given.pop("conf", {})}
        if (allowed := allowed_paths()) is not None:
            conf[ALLOWED_PATHS] = json.dumps([allowed])  # a path may have a comma
        spark = started(iceberg=iceberg is not None, conf=conf, **given)
        with SparkEngine(spark).explained(table):
            if show is None:
                yield spark
                return
            with watched(spark, show):
                yield spark


@contextmanager
def opened(
    output: Output,
    table: str,
    options: Mapping[str, str],
    iceberg: Mapping[str, Any] | None = None,
    session: Mapping[str, Any] | None = None,
) -> Iterator[tuple[SparkSession, DeltaTable]]:
    """Open a Delta table on Spark; see `on_spark`."""
    from delvec.delta.table import DeltaTable  # noqa: PLC0415

    require_path(table)
    # A missing table is noticed before a JVM starts; but a bucket's keys may be the session's.
    if "://" not in Storage.open(table, options).root:
        DeltaTable.for_path(None, table, options)
    with on_spark(output, table, iceberg, session) as spark:
        yield spark, DeltaTable.for_path(spark, table, options)


@contextmanager
def opened_iceberg(
    output: Output, table: str, iceberg: Mapping[str, Any]
) -> Iterator[tuple[SparkSession, IcebergTable]]:
    """Open an Iceberg table by its name; see `on_spark`."""
    require_name(table)
    with on_spark(output, table, iceberg) as spark:
        from delvec.iceberg.table import IcebergTable  # noqa: PLC0415

        yield spark, IcebergTable.for_name(spark, table)


def without_catalog(iceberg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a session for a Delta table, of those for a table of either format."""
    return {name: iceberg[name] for name in ("master", "packages", "conf")}


def show_report(output: Output, report: WriteReport | ConversionReport | Any) -> None:  # noqa: ANN401
    """Print a report."""
    output.draw(report)
    output.result(report.to_json())


def show_alteration(output: Output, report: WriteReport, name: str, what: str) -> None:
    """Print the report of a change without rows, which does not tell by itself what changes.

    Args:
        output: Where to.
        report: The report.
        name: What is changed, such as a column.
        what: How, as in `added`.
    """
    output.draw(report)
    if report.dry_run or report.version is not None:
        output.note(f"  {visible(name)}: {'would be ' if report.dry_run else ''}{visible(what)}")
    output.result(report.to_json())
