"""The time that each phase of an operation takes."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = ["Stopwatch"]


class Stopwatch:
    """Seconds by phase, in the order in which the phases first ended.

    >>> stopwatch = Stopwatch()
    >>> with stopwatch.phase("plan"):
    ...     pass
    >>> stopwatch.add("commit", 0.5)
    >>> list(stopwatch.seconds)
    ['plan', 'commit']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, phase: str, seconds: float) -> None:
        """Add to the time of a phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @contextmanager
    def phase(
        self, name: str, describe: AbstractContextManager[object] | None = None
    ) -> Iterator[None]:
        """Add the time of the block to a phase, also if the block fails.

        Args:
            name: The phase.
            describe: Is entered around the block, e.g. to describe its jobs in the engine's own
                user interface (`delvec.spark.progress.described`).
        """
        start = time.perf_counter()
        try:
            with nullcontext() if describe is None else describe:
                yield
        finally:
            self.add(name, time.perf_counter() - start)
