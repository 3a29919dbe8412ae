"""Commands that go on until a signal: their options, the lines that they print, their metrics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from delvec.cli.exits import ended_by_sigterm, stopped_by_signals
from delvec.cli.options import FOLLOW, Decorator, interval, option, together
from delvec.errors import DelvecError
from delvec.report.format import escape_controls

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.spark.service import ServiceMetrics

_T = TypeVar("_T")
_HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Following:
    """How a command goes on: how often it looks, and where it serves its metrics, if anywhere."""

    interval: float
    host: str
    port: int | None


def following(seconds: float) -> Decorator:
    """Return the options of a command that may go on, as `following`: None if it does not."""

    def check(given: dict[str, Any]) -> None:
        follow, every, port, host = (
            given.pop(name) for name in ("follow", "interval", "metrics_port", "metrics_host")
        )
        for value, name in ((every, "--interval"), (port, "--metrics-port")):
            if value is not None and not follow:
                raise click.UsageError(f"{name} needs --follow")
        if host is not None and port is None:
            raise click.UsageError("--metrics-host needs --metrics-port")
        every = seconds if every is None else every
        given["following"] = Following(every, host or _HOST, port) if follow else None

    return together(
        FOLLOW,
        interval(seconds),
        option(
            "--metrics-port PORT",
            "Serve /metrics in Prometheus' format there; 0 for any port.",
            type=click.IntRange(0, 65535),
        ),
        option(
            "--metrics-host ADDRESS",
            f"Where to serve it: {_HOST}, to this machine only, if absent; 0.0.0.0 in a container.",
        ),
        check=check,
    )


class Service:
    """A service as the command shows it; `listeners` and `stop` are arguments of `follow`."""

    def __init__(self, output: Output, given: Following, metrics: ServiceMetrics) -> None:
        self.output = output
        self.given = given
        self.metrics = metrics
        self.stop = Event()

    def arguments(self) -> dict[str, Any]:
        return {
            "stop": self.stop,
            "interval": self.given.interval,
            "metrics": self.metrics,
            "on_metrics": self._keep,
            "on_idle": self._show_idle,
            "on_report": lambda report: self.output.cycle(report, metrics=self.metrics.to_json()),
            "on_retry": lambda error, seconds: self.output.retry(
                error, seconds, metrics=self.metrics.to_json()
            ),
        }

    def run(
        self,
        opened: AbstractContextManager[_T],
        title: Callable[[_T], str],
        follow: Callable[[_T], object],
    ) -> None:
        """Open a table and follow it until a signal; what was done is shown at the end."""
        # Deferred: a command that does not go on needs no server.
        from delvec.spark.service import served  # noqa: PLC0415

        output, given, port = self.output, self.given, None
        output.begin_lines()
        with ExitStack() as stack:
            if given.port is not None:  # a port that is taken is noticed before a JVM starts
                port = stack.enter_context(served(self._metrics_text, given.port, given.host))
            with ended_by_sigterm():  # there is no cycle yet that could be completed
                table = stack.enter_context(opened)
            output.note((escape_controls(title(table)), "bold"), f", every {given.interval:g} s")
            if port is not None:
                output.note(f"metrics: http://{given.host}:{port}/metrics")
                output.result({"metrics_port": port})
            with stopped_by_signals(self.stop):
                try:
                    follow(table)
                except DelvecError:
                    self._show_end()
                    raise
        self._show_end()

    def _keep(self, metrics: ServiceMetrics) -> None:
        self.metrics = metrics

    def _metrics_text(self) -> str:
        return self.metrics.to_prometheus()

    def _show_idle(self, metrics: ServiceMetrics) -> None:
        self.output.timed(f"nothing to do; {escape_controls(metrics.brief())}")
        self.output.result({"idle": True, "metrics": metrics.to_json()})

    def _show_end(self) -> None:
        self.output.timed(f"stopped after {escape_controls(self.metrics.brief())}")
        self.output.result({"stopped": True, **self.metrics.to_json()})
