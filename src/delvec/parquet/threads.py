"""Whether Arrow decodes a Parquet file by threads of its own."""

from __future__ import annotations

from typing import Final

__all__ = ["wants_threads"]

_BYTES: Final = 8 << 20


def wants_threads(size: int) -> bool:
    """Return whether so many bytes are worth threads.

    Arrow's threads release the bytes that Python read for them after the read has returned. If the
    process ends meanwhile, Python ends such a thread, and that aborts the process (SIGABRT) though
    all is done. After a large read there is work that takes longer than this moment.
    """
    return size > _BYTES
