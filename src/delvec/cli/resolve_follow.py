"""`delvec resolve --follow`: resolve again and again until a signal ends it."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, Any

from delvec.cli.following import now, one_line, stopped_by_signals
from delvec.cli.output import visible
from delvec.cli.spark_tables import opened_iceberg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output
    from delvec.errors import DelvecError
    from delvec.iceberg.resolve.metrics import Metrics
    from delvec.iceberg.resolve.report import ResolveReport

__all__ = ["run"]


def run(
    output: Output,
    name: str,
    iceberg: Mapping[str, Any],
    choices: Mapping[str, Any],
    interval: float,
    metrics_port: int | None,
) -> None:
    """Resolve in each interval; at the end, print what was done in all."""
    from delvec.iceberg.resolve.follow import follow  # noqa: PLC0415
    from delvec.iceberg.resolve.metrics import Metrics, served  # noqa: PLC0415

    stop = Event()
    output.begin_lines()
    current = Metrics(name, choices["target"], choices["staging"])

    def show_report(report: ResolveReport) -> None:
        output.note((now(), "dim"), report.brief())
        for note in report.notes:
            output.note((f"Note: {visible(note)}", "yellow"))
        age = current.oldest_unresolved_age_seconds
        output.result({**report.to_json(), "oldest_unresolved_age_seconds": age})

    def show_retry(error: DelvecError, seconds: float) -> None:
        output.note((now(), "dim"), (f"again in {seconds:.3g} s: ", "yellow"), one_line(error))
        facts = {"type": type(error).__name__, "message": error.describe()}
        output.result({"retry_in": seconds, "error": facts})

    def keep(metrics: Metrics) -> None:
        nonlocal current
        current = metrics

    def text() -> str:
        return current.to_prometheus()

    with ExitStack() as stack:
        # A port that is taken is noticed before a JVM starts.
        port = None if metrics_port is None else stack.enter_context(served(text, metrics_port))
        stack.enter_context(stopped_by_signals(stop))
        _, table = stack.enter_context(opened_iceberg(output, name, iceberg))
        output.note((visible(table.name), "bold"), f", every {interval:g} s")
        if port is not None:
            output.note(f"metrics: http://127.0.0.1:{port}/metrics")
            output.result({"metrics_port": port})
        with stopped_by_signals(stop):  # Spark has installed handlers of its own
            current = follow(
                lambda: table.resolve(**choices),
                stop=stop,
                on_report=show_report,
                on_retry=show_retry,
                on_metrics=keep,
                interval=interval,
                metrics=current,
            )
    output.note(
        (now(), "dim"),
        f"stopped after {current.cycles:,} cycles: {current.commits:,} commits,"
        f" {current.keys:,} keys, {current.rows_deleted:,} rows deleted",
    )
    output.result({"stopped": True, **current.to_json()})
