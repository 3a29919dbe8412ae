"""A quiet start of Spark's JVM.

A JVM that resolves packages prints some fifty lines before anything of interest. Its standard error
goes through a pipe: output before the session is up is held back, and shown only if the start
fails; later output is passed on to standard error.
"""

from __future__ import annotations

import os
from select import select
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["QuietStart"]

_STDERR = 2
_HELD_AT_MOST = 1 << 16
_LAST_LINES = 15


class QuietStart:
    """Provides a `sink` for the standard error of a process that is started in the block.

    What the process writes is held until the block ends, and then shown only if the block failed.
    The thread that reads the pipe lives as long as the process: a JVM whose pipe is full stops.
    """

    def __init__(self) -> None:
        self._source, self.sink = os.pipe()
        try:
            self._target: int | None = os.dup(_STDERR)
        except OSError:
            self._target = None  # no standard error, as in some GUI hosts
        self._held = bytearray()
        self._is_open = False
        self._drained, self._ended = Event(), Event()
        self._lock = Lock()
        self._reader = Thread(target=self._relay, name="delvec-jvm-stderr", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close_sink()
        with self._lock:
            if error is not None:
                self._pass_on(bytes(self._held))
            self._held.clear()
            self._is_open = True
        self._ended.set()

    def last_lines(self) -> str:
        """Return the last lines of a process that has ended; the block will not show them."""
        self._close_sink()
        self._drained.wait(timeout=5)
        with self._lock:
            lines = self._held.decode(errors="replace").splitlines()
            self._held.clear()
        return "\n".join(lines[-_LAST_LINES:])

    def _close_sink(self) -> None:
        """Close our end of the pipe, so that the reader ends when the process closes its own."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1

    def _relay(self) -> None:
        while chunk := os.read(self._source, 1 << 16):
            with self._lock:
                if self._is_open:
                    self._pass_on(chunk)
                else:
                    self._held += chunk
                    del self._held[:-_HELD_AT_MOST]
        os.close(self._source)
        self._drained.set()
        self._ended.wait()  # the block may still show what was held
        if self._target is not None:
            os.close(self._target)

    def _pass_on(self, chunk: bytes) -> None:
        """Write a chunk to standard error, waiting if that is full; drop it if that is closed."""
        while chunk and self._target is not None:
            try:
                chunk = chunk[os.write(self._target, chunk) :]
            except BlockingIOError:  # noqa: PERF203  (a pipe that is non-blocking)
                select([], [self._target], [])
            except OSError:
                return
