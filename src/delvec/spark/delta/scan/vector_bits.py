"""Deletion vectors as the bits that a scan tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from delvec.delta.read.load_vectors import load_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage
    from delvec.vector import Bitmap

__all__ = ["ScanPart", "load_bits", "vector_bits"]

_SMALL: Final = 1 << 16


class ScanPart(NamedTuple):
    """The files of one scan.

    Attributes:
        files: A part of a version's files.
        numbers: The number of each file, by which rows name it.
        vectors: Vectors in memory by the number of their file, instead of those that the log names.
    """

    files: FileSet
    numbers: NDArray[np.int64]
    vectors: Mapping[int, Bitmap]


def vector_bits(vector: Bitmap) -> bytes:
    """Return a vector as 64-bit words, big-endian, up to its last position."""
    last = vector.max
    if last is None:
        return b""
    if last < _SMALL:  # a third of the time that words of any size take
        mask = np.zeros((last // 64 + 1) * 64, dtype=np.bool_)
        mask[vector.to_numpy()] = True
        return np.packbits(mask, bitorder="little").view("<u8").astype(">u8").tobytes()
    return vector.to_words(last + 1).astype(">u8").tobytes()


def load_bits(storage: Storage, part: ScanPart) -> list[bytes]:
    """Return the vector of each file as bits: the one in memory, else the one of the log.

    Reads the stored vectors that it needs; a file without a vector has no bits.
    """
    numbers = part.numbers.tolist()
    stored = [index for index, number in enumerate(numbers) if number not in part.vectors]
    loaded = iter(load_vectors(storage, part.files.data_files(stored)) if stored else ())
    vectors = [part.vectors[each] if each in part.vectors else next(loaded) for each in numbers]
    return [b"" if vector is None else vector_bits(vector) for vector in vectors]
