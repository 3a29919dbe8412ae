"""`delvec resolve --follow`: resolve again and again until a signal ends it."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, Any

from delvec.cli.following import now, one_line, stopped_by_signals
from delvec.cli.output import visible
from delvec.cli.spark_tables import opened_iceberg
from delvec.errors import DelvecError
from delvec.report.figures import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output
    from delvec.iceberg.resolve.metrics import Metrics
    from delvec.iceberg.resolve.report import ResolveReport

__all__ = ["run"]


def run(
    output: Output,
    name: str,
    iceberg: Mapping[str, Any],
    choices: Mapping[str, Any],
    interval: float,
    metrics_at: tuple[str, int] | None,
) -> None:
    """Resolve in each interval; at the end, print what was done in all.

    Args:
        output: Where reports are shown.
        name: The table.
        iceberg: Its catalog, see `opened_iceberg`.
        choices: Arguments of `IcebergTable.resolve`.
        interval: Seconds from the start of one cycle to the start of the next.
        metrics_at: The host and port that serve the metrics; None for no such service.
    """
    from delvec.iceberg.resolve.follow import follow  # noqa: PLC0415
    from delvec.iceberg.resolve.metrics import Metrics, served  # noqa: PLC0415

    stop = Event()
    output.begin_lines()
    current = Metrics(name, choices["target"], choices["staging"])

    def show_report(report: ResolveReport) -> None:
        output.note((now(), "dim"), report.brief())
        for note in report.notes:
            output.note((f"Note: {visible(note)}", "yellow"))
        output.result({**report.to_json(), "metrics": current.to_json()})

    def show_retry(error: DelvecError, seconds: float) -> None:
        output.note((now(), "dim"), (f"again in {seconds:.3g} s: ", "yellow"), one_line(error))
        facts = {"type": type(error).__name__, "message": error.describe()}
        output.result({"retry_in": seconds, "error": facts, "metrics": current.to_json()})

    def keep(metrics: Metrics) -> None:
        nonlocal current
        current = metrics

    def text() -> str:
        return current.to_prometheus()

    def show_end() -> None:
        done = (
            counted(current.commits, "commit"),
            counted(current.keys, "key"),
            f"{counted(current.rows_deleted, 'row')} deleted",
        )
        cycles = counted(current.cycles, "cycle")
        output.note((now(), "dim"), f"stopped after {cycles}: {', '.join(done)}")
        output.result({"stopped": True, **current.to_json()})

    with ExitStack() as stack:
        port = None
        if metrics_at is not None:  # a port that is taken is noticed before a JVM starts
            host, wanted = metrics_at
            port = stack.enter_context(served(text, wanted, host))
        stack.enter_context(stopped_by_signals(stop))
        _, table = stack.enter_context(opened_iceberg(output, name, iceberg))
        output.note((visible(table.name), "bold"), f", every {interval:g} s")
        if port is not None:
            output.note(f"metrics: http://{host}:{port}/metrics")
            output.result({"metrics_port": port})
        with stopped_by_signals(stop):  # Spark has installed handlers of its own
            try:
                current = follow(
                    lambda: table.resolve(**choices),
                    stop=stop,
                    on_report=show_report,
                    on_retry=show_retry,
                    on_metrics=keep,
                    interval=interval,
                    metrics=current,
                )
            except DelvecError:
                show_end()
                raise
    show_end()
