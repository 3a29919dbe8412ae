"""A stored object as a Python file object, and ranges of it merged into few reads."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from delvec.errors import InvalidArgumentError
from delvec.storage.backend import translate_errors

if TYPE_CHECKING:
    Span = tuple[int, int]


class Source(NamedTuple):
    """An open object: its size, and functions that read (start, end) spans of it and close it."""

    size: int
    read_spans: Callable[[Sequence[Span]], Sequence[bytes]]
    close: Callable[[], None]


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
        with translate_errors(self._uri):
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
        with translate_errors(self._uri):
            return self._source.read_spans([(start, end)])[0]

    def readall(self) -> bytes:
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
        return self._source.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if not self.closed:
            self._fetched = []
            self._source.close()
        super().close()


def merge(spans: Iterable[Span], gap: int) -> Sequence[Span]:
    """Merge (start, end) spans that overlap or are at most a gap apart.

    >>> merge([(5_000_000, 5_000_001), (0, 4), (100, 104)], 1000)
    [(0, 104), (5000000, 5000001)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def cut(merged: Sequence[Span], blocks: Sequence[bytes], span: Span) -> bytes:
    """Return the bytes of a span, from the merged span that contains it."""
    index = bisect_right(merged, span[0], key=lambda block: block[0]) - 1
    start = merged[index][0]
    return blocks[index][span[0] - start : span[1] - start]


def _holds(block: tuple[int, bytes], span: tuple[int, int]) -> bool:
    start, data = block
    return start <= span[0] and span[1] <= start + len(data)
