"""What the commands share that go on until a signal ends them."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from delvec.cli.output import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.errors import DelvecError

__all__ = ["now", "one_line", "stopped_by_signals"]


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
