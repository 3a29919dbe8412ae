"""Tables on Spark, for the commands that need it, and the output of reports."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.table import DeltaTable
from delvec.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from delvec.cli.output import Output
    from delvec.conversion.report import ConversionReport
    from delvec.delta.write.report import WriteReport
    from delvec.iceberg.table import IcebergTable

__all__ = ["on_spark", "opened", "opened_iceberg", "show_report"]

# A failure is reported once, not also in the logs of tasks.
_SETTINGS: Final = {"spark.ui.enabled": "false", "spark.log.level": "FATAL"}


@contextmanager
def on_spark(
    output: Output, table: str, iceberg: Mapping[str, Any] | None = None
) -> Iterator[SparkSession]:
    """Start Spark for the block, with its progress shown and its errors as delvec's.

    Args:
        output: Where progress is shown.
        table: The table, for errors to name.
        iceberg: Arguments of `delvec.session` for a start with Iceberg; None starts without.
    """
    from delvec.spark.engine import SparkEngine  # noqa: PLC0415
    from delvec.spark.progress import watched  # noqa: PLC0415
    from delvec.spark.session.session import session  # noqa: PLC0415

    with output.progress() as show:
        if show is not None:
            show("starting Spark", 0, 0)
        given = dict(iceberg or {})
        conf = {**_SETTINGS, **given.pop("conf", {})}
        spark = session(iceberg=iceberg is not None, conf=conf, **given)
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
) -> Iterator[tuple[SparkSession, DeltaTable]]:
    """Open a table on Spark; see `on_spark`."""
    # A missing table is noticed before a JVM starts; but a bucket's keys may be the session's.
    if "://" not in Storage.open(table, options).root:
        DeltaTable.for_path(None, table, options)
    with on_spark(output, table, iceberg) as spark:
        yield spark, DeltaTable.for_path(spark, table, options)


@contextmanager
def opened_iceberg(
    output: Output, table: str, iceberg: Mapping[str, Any]
) -> Iterator[tuple[SparkSession, IcebergTable]]:
    """Open an Iceberg table by its name; see `on_spark`."""
    with on_spark(output, table, iceberg) as spark:
        from delvec.iceberg.table import IcebergTable  # noqa: PLC0415

        yield spark, IcebergTable.for_name(spark, table)


def show_report(output: Output, report: WriteReport | ConversionReport | Any) -> None:  # noqa: ANN401
    """Print a report."""
    output.draw(report)
    output.result(report.to_json())
