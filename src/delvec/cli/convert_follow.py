"""`delvec convert --follow`: convert new versions until a signal ends it."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

from delvec.cli.following import now, one_line, stopped_by_signals
from delvec.cli.output import visible
from delvec.cli.spark_tables import opened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output
    from delvec.conversion.options import Verify
    from delvec.conversion.report import ConversionReport
    from delvec.errors import DelvecError

__all__ = ["run"]


def run(
    output: Output,
    source: str,
    target: str,
    options: Mapping[str, str],
    iceberg: Mapping[str, Any],
    interval: float,
    verify: Verify,
    choices: Mapping[str, Any],
) -> None:
    """Keep the target current; at the end, print its version."""
    from delvec.conversion.follow import follow  # noqa: PLC0415

    stop = Event()
    output.begin_lines()

    def show_report(report: ConversionReport) -> None:
        output.note((now(), "dim"), report.brief())
        for note in report.notes:
            output.note((f"Note: {visible(note)}", "yellow"))
        output.result(report.to_json())

    def show_retry(error: DelvecError, seconds: float) -> None:
        output.note((now(), "dim"), (f"again in {seconds:g} s: ", "yellow"), one_line(error))
        facts = {"type": type(error).__name__, "message": error.describe()}
        output.result({"retry_in": seconds, "error": facts})

    with stopped_by_signals(stop), opened(output, source, options, iceberg) as (spark, table):
        output.note((visible(table.storage.root), "bold"), " -> ", (visible(target), "bold"))
        with stopped_by_signals(stop):  # Spark has installed handlers of its own
            last = follow(
                spark,
                table,
                target,
                stop=stop,
                on_report=show_report,
                on_retry=show_retry,
                interval=interval,
                verify=verify,
                **choices,
            )
    version = None if last is None else last.version
    output.note(
        (now(), "dim"),
        f"stopped: {visible(target)} is "
        + ("as it was" if version is None else f"at version {version:,}"),
    )
    output.result({"stopped": True, "source": source, "target": target, "version": version})
