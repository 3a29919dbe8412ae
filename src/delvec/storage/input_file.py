"""A stored object as a Python file object, for libraries that need one."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Protocol

from delvec.errors import InvalidArgumentError
from delvec.storage.failures import explained

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["InputFile", "Source"]


class Source(Protocol):
    """One object of a store; errors are the store's own."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    def read_spans(self, spans: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Read (start, end) spans inside the object."""

    def close(self) -> None:
        """Release what is open."""


class InputFile(io.RawIOBase):
    """A seekable, read-only file over an object; made by `Storage.open_input`.

    Every read is a request of its own, except for prefetched bytes. Not safe for threads.
    """

    def __init__(self, source: Source, uri: str) -> None:
        super().__init__()
        self._source = source
        self._uri = uri
        self._position = 0
        self._fetched: list[tuple[int, bytes]] = []

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read (start, length) ranges into memory, in parallel where the store can.

        The next call drops the ranges that it does not contain.
        """
        spans = [(start, start + length) for start, length in ranges if length]
        held = [block for block in self._fetched if any(_holds(block, span) for span in spans)]
        missing = [span for span in spans if not any(_holds(block, span) for block in held)]
        self._fetched = held
        with explained(self._uri):
            blocks = self._source.read_spans(missing) if missing else ()
        self._fetched += [(start, block) for (start, _), block in zip(missing, blocks, strict=True)]

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, fewer only at the end; by default all that remain."""
        self._checkClosed()
        left = max(0, self._source.size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        start, end = self._position, self._position + length
        self._position = end
        for block in self._fetched:
            if _holds(block, (start, end)):
                return block[1][start - block[0] : end - block[0]]
        with explained(self._uri):
            return self._source.read_spans([(start, end)])[0]

    def readall(self) -> bytes:
        """Read all bytes that remain."""
        return self.read()

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Read into a buffer."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a byte; reads beyond the end return nothing."""
        self._checkClosed()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._source.size}
        if whence not in base or base[whence] + offset < 0:
            raise InvalidArgumentError(f"cannot seek to {offset} from {whence} in {self._uri}")
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the byte at which the next read begins."""
        return self._position

    def size(self) -> int:
        """Return the size in bytes."""
        return self._source.size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if not self.closed:
            self._fetched = []
            self._source.close()
        super().close()


def _holds(block: tuple[int, bytes], span: tuple[int, int]) -> bool:
    start, data = block
    return start <= span[0] and span[1] <= start + len(data)
