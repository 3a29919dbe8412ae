"""What becomes of commits, in both formats: for the log, and for a caller that is interrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_LOG: Final = logging.getLogger("delvec")
_LISTENERS: Final[list[Callable[[str], None]]] = []


def announce(message: str, *values: object, level: int = logging.INFO) -> None:
    """Log what became of a commit, and tell it to those who listen."""
    for listener in _LISTENERS:
        listener(message % values)
    _LOG.log(level, message, *values, stacklevel=2)


@contextmanager
def announced() -> Iterator[list[str]]:
    """List what is announced in the block, by any thread."""
    found: list[str] = []
    listener = found.append
    _LISTENERS.append(listener)
    try:
        yield found
    finally:
        _LISTENERS.remove(listener)
