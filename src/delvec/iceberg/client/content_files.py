"""The JSON of data and delete files that Iceberg's `ContentFileParser` reads, built by columns.

No object is made for a row. Bounds are values in Iceberg's binary form, in hexadecimal:
https://iceberg.apache.org/spec/#binary-single-value-serialization
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_STRING: Final = pa.large_string()
_FILE_PATH_ID: Final = 2147483546  # of the column `file_path` in files of position deletes
_FILES_PER_ARRAY: Final = 10_000  # some megabytes in one call to Java
_DIGITS: Final = np.frombuffer(
    "".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16
)  # two characters for each byte, taken at once
_BYTES: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def data_file_json(
    paths: pa.Array,
    sizes: NDArray[np.int64],
    row_counts: pa.Array,
    spec_id: int,
    partitions: pa.Array,
    metrics: pa.Array,
) -> pa.Array:
    comma = pc.if_else(pc.greater(pc.binary_length(metrics), 0), ",", "")
    head = f'"spec-id":{spec_id},"content":"data","file-format":"parquet"'
    return _described(head, paths, partitions, sizes, row_counts, comma, metrics)


def delete_file_json(
    paths: pa.Array,
    sizes: NDArray[np.int64],
    row_counts: NDArray[np.int64],
    data_paths: pa.Array,
    spec_id: int,
    partitions: pa.Array,
    *,
    frames: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
) -> pa.Array:
    """Return a JSON object for each file of position deletes, which applies to one data file.

    The path of the data file is `referenced-data-file`; for Parquet files it is also both bounds of
    the column `file_path`, by which readers assign them that do not know the former. Bounds are not
    truncated: readers compare them with whole paths.
    """
    kind = "parquet" if frames is None else "puffin"
    content: tuple[str | pa.Array, ...]
    if frames is None:
        bound = hexadecimal(data_paths.cast(_STRING))
        keys = f'{{"keys":[{_FILE_PATH_ID}],"values":["'
        content = (f',"lower-bounds":{keys}', bound, f'"]}},"upper-bounds":{keys}', bound, '"]}')
    else:
        offsets, lengths = map(_numbers, frames)
        content = (',"content-offset":', offsets, ',"content-size-in-bytes":', lengths)
    head = f'"spec-id":{spec_id},"content":"position-deletes","file-format":"{kind}"'
    data = ',"referenced-data-file":', json_strings(data_paths)
    return _described(head, paths, partitions, sizes, row_counts, *data, *content)


def json_arrays(objects: pa.Array) -> Iterator[str]:
    """Yield the JSON objects of a column in JSON arrays of limited length."""
    for start in range(0, len(objects), _FILES_PER_ARRAY):
        yield f"[{','.join(objects[start : start + _FILES_PER_ARRAY].to_pylist())}]"


def json_strings(values: pa.Array) -> pa.Array:
    """Return strings as JSON strings; few need more than quotes around them."""
    values = values.cast(_STRING)
    if pc.any(pc.match_substring_regex(values, r'[\x00-\x1f"\\]')).as_py():
        return pa.array([json.dumps(value) for value in values.to_pylist()], _STRING)
    return joined('"', values, '"')


def joined(*parts: str | pa.Array) -> pa.Array:
    """Return the concatenation of constants and columns, row by row; null where a part is null."""
    columns = [
        pa.scalar(part, _STRING) if isinstance(part, str) else part.cast(_STRING) for part in parts
    ]
    return pc.binary_join_element_wise(*columns, pa.scalar("", _STRING))


def hexadecimal(values: pa.Array) -> pa.Array:
    """Return the bytes of each value in hexadecimal; null for null.

    Takes three bytes of memory for each byte of the values.

    >>> hexadecimal(pa.array([1, -1, None], pa.int32())).to_pylist()
    ['01000000', 'FFFFFFFF', None]
    >>> hexadecimal(pa.array(["zoë"])).to_pylist()
    ['7A6FC3AB']
    """
    if any(is_held(values.type) for is_held in _BYTES):
        content, ends = _bytes(values)
    elif pa.types.is_decimal(values.type):
        content, ends = _decimals(values)
    else:
        content, ends = _number_bytes(values)
    return pa.LargeStringArray.from_buffers(
        len(values),
        pa.py_buffer(ends * 2),
        pa.py_buffer(_DIGITS[content]),
        pa.array(values.is_valid().to_numpy(zero_copy_only=False)).buffers()[1],
        values.null_count,
    )


def _described(
    head: str,
    paths: pa.Array,
    partitions: pa.Array,
    sizes: NDArray[np.int64],
    row_counts: NDArray[np.int64] | pa.Array,
    *more: str | pa.Array,
) -> pa.Array:
    return joined(
        f'{{{head},"file-path":',
        json_strings(paths),
        ',"partition":',
        partitions,
        ',"file-size-in-bytes":',
        _numbers(sizes),
        ',"record-count":',
        _numbers(row_counts),
        *more,
        "}",
    )


def _numbers(values: NDArray[np.int64] | pa.Array) -> pa.Array:
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(_STRING)


def _bytes(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())  # Arrow has no cast to the next type
    strings = pc.fill_null(values.cast(pa.large_binary()), b"")
    _, offsets, content = strings.buffers()
    ends = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    # An array of empty strings may have no content buffer.
    everything = np.frombuffer(content, np.uint8) if content else np.empty(0, np.uint8)
    return everything[ends[0] : ends[-1]], ends - ends[0]


def _number_bytes(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
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
