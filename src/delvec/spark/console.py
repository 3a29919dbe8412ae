"""A quiet start of Spark's JVM.

A JVM that resolves packages prints some fifty lines before it says anything of interest, and it
writes straight to the process's standard error. Here its output goes through a pipe: what comes
before the session is up is held back and shown only if the start fails; what comes later passes.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from threading import Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["quiet_start"]

_STDERR = 2
_HELD_AT_MOST = 1 << 20


class _Relay:
    """Carries what the JVM writes to where standard error was, from `open` on."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._held = bytearray()
        self._open = False
        self._lock = Lock()
        # A daemon: it lives as long as the JVM does, which is as long as this process.
        Thread(target=self._run, name="delvec-jvm-stderr", daemon=True).start()

    def _run(self) -> None:
        while chunk := os.read(self._source, 1 << 16):
            with self._lock:
                if self._open:
                    os.write(self._target, chunk)
                else:
                    self._held += chunk
                    del self._held[:-_HELD_AT_MOST]

    def open(self, *, show_held: bool) -> None:
        with self._lock:
            if show_held:
                os.write(self._target, self._held)
            self._held.clear()
            self._open = True


@contextmanager
def quiet_start() -> Iterator[None]:
    """Hold back what a JVM prints that is started in the block; show it if the block fails.

    Does nothing where there is no standard error to speak of, as in some GUI hosts.
    """
    try:
        sys.stderr.flush()
        original = os.dup(_STDERR)
    except (AttributeError, OSError, ValueError):
        yield
        return
    source, sink = os.pipe()
    os.dup2(sink, _STDERR)
    os.close(sink)
    relay = _Relay(source, original)
    try:
        yield
    except BaseException:
        os.dup2(original, _STDERR)
        relay.open(show_held=True)
        raise
    os.dup2(original, _STDERR)
    relay.open(show_held=False)
