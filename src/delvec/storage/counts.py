"""Counts of requests, and the facts that a store has about a file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from threading import Lock
from typing import NamedTuple

__all__ = ["Counter", "FileInfo", "RequestCounts"]


@dataclass(frozen=True)
class RequestCounts:
    """The number of requests that a `Storage` has made, and the bytes they transferred.

    On local disk an opened file counts as a GET, a scanned folder as a LIST, a removed file as a
    DELETE. Retries inside obstore are not counted.

    >>> RequestCounts(gets=3, bytes_read=10) - RequestCounts(gets=1, bytes_read=4)
    RequestCounts(gets=2, heads=0, puts=0, lists=0, deletes=0, bytes_read=6, bytes_written=0)
    """

    gets: int = 0
    heads: int = 0
    puts: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __add__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        )

    def __sub__(self, earlier: RequestCounts) -> RequestCounts:
        names = [f.name for f in fields(self)]
        return RequestCounts(*(getattr(self, name) - getattr(earlier, name) for name in names))


class FileInfo(NamedTuple):
    """The facts about an object that a listing or a HEAD returns."""

    key: str
    size: int
    modified_ms: int
    etag: str | None


class Counter:
    """A `RequestCounts` that threads can add to."""

    def __init__(self) -> None:
        self.counts = RequestCounts()
        self._lock = Lock()

    def add(self, **more: int) -> None:
        """Add to the counts, by the names of `RequestCounts`."""
        with self._lock:
            self.counts += RequestCounts(**more)
