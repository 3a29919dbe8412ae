"""Values in Iceberg's binary form for bounds, in hexadecimal, a column at a time.

Specification: https://iceberg.apache.org/spec/#binary-single-value-serialization
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["hexadecimal"]

_DIGITS: Final = np.frombuffer(
    "".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16
)  # two characters for each byte, taken at once


def hexadecimal(values: pa.Array) -> pa.Array:
    """Return the bytes of each value in hexadecimal; null for null.

    Takes three bytes of memory for each byte of the values.

    >>> hexadecimal(pa.array([1, -1, None], pa.int32())).to_pylist()
    ['01000000', 'FFFFFFFF', None]
    >>> hexadecimal(pa.array(["zoë"])).to_pylist()
    ['7A6FC3AB']
    """
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_bytes(kind):
        content, ends = _bytes(values)
    elif pa.types.is_decimal(kind):
        content, ends = _decimals(values)
    else:
        content, ends = _numbers(values)
    digits = _DIGITS[content]
    return pa.LargeStringArray.from_buffers(
        len(values),
        pa.py_buffer(ends * 2),
        pa.py_buffer(digits),
        pa.array(values.is_valid().to_numpy(zero_copy_only=False)).buffers()[1],
        values.null_count,
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _bytes(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return strings in UTF-8, and bytes as they are."""
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())  # Arrow has no cast to the next type
    strings = pc.fill_null(values.cast(pa.large_binary()), b"")
    _, offsets, content = strings.buffers()
    ends = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    # An array of empty strings may have no content buffer.
    everything = np.frombuffer(content, np.uint8) if content else np.empty(0, np.uint8)
    return everything[ends[0] : ends[-1]], ends - ends[0]


def _numbers(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return numbers in little-endian order; dates count days, times their unit."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    elif pa.types.is_integer(values.type) and not pa.types.is_int64(values.type):
        values = values.cast(pa.int32())
    zero = pa.scalar(0, pa.int8()).cast(values.type)
    numbers = pc.fill_null(values, zero).to_numpy(zero_copy_only=False)
    little = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("<")))
    width = little.dtype.itemsize
    return little.view(np.uint8), np.arange(len(values) + 1, dtype=np.int64) * width


def _decimals(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the unscaled numbers in big-endian order, in as few bytes as possible."""
    whole = pc.fill_null(values, pa.scalar(0, values.type))
    buffer = whole.buffers()[1]
    start = whole.offset * 16
    little = np.frombuffer(buffer, np.uint8)[start : start + len(whole) * 16]
    big = little.reshape(-1, 16)[:, ::-1]
    negative = big[:, 1:] >= 0x80
    spare = np.where(negative, big[:, :-1] == 0xFF, big[:, :-1] == 0)
    needed = np.ones(big.shape, np.bool_)
    needed[:, :-1] = ~np.logical_and.accumulate(spare, axis=1)
    ends = np.concatenate([[0], np.cumsum(needed.sum(axis=1))]).astype(np.int64)
    return big[needed], ends
