"""`delvec convert --follow`: convert new versions until a signal ends it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from delvec.cli.output import visible
from delvec.cli.spark_tables import opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.cli.output import Output
    from delvec.conversion.options import Verify
    from delvec.conversion.report import ConversionReport
    from delvec.errors import DelvecError

__all__ = ["now", "one_line", "run", "stopped_by_signals"]


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


@contextmanager
def stopped_by_signals(stop: Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set an event; a second signal has its previous effect."""
    before: dict[int, Any] = {}
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, before[number])
        # Not in this thread: it may hold the lock of the event, and would deadlock.
        Thread(target=stop.set, daemon=True).start()

    for number in numbers:
        before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def now() -> str:
    """Return the time of day, to begin a line with."""
    return f"{datetime.now().astimezone():%H:%M:%S}  "


def one_line(error: DelvecError) -> str:
    """Return the first line of an error, without control characters."""
    return visible(error.describe().partition("\n")[0])
