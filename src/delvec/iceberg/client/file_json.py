"""Files as Iceberg's `ContentFileParser` reads them, built column by column without row objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["data_file_json", "delete_file_json", "joined", "json_arrays", "json_strings"]

_STRING: Final = pa.large_string()
_FILE_PATH_ID: Final = 2147483546  # of the column `file_path` in files of position deletes
_FILES_PER_ARRAY: Final = 10_000  # some megabytes in one call to Java


def data_file_json(
    paths: pa.Array,
    sizes: NDArray[np.int64],
    row_counts: pa.Array,
    spec_id: int,
    partitions: pa.Array,
    metrics: pa.Array,
) -> pa.Array:
    """Return a JSON object for each data file.

    Args:
        paths: As the manifest is to have them.
        sizes: In bytes.
        row_counts: Physical row counts, deleted rows included.
        spec_id: The partition spec of all files.
        partitions: A JSON array of partition values for each file.
        metrics: More members of the JSON object of each file; may be empty.
    """
    comma = pc.if_else(pc.greater(pc.binary_length(metrics), 0), ",", "")
    return joined(
        f'{{"spec-id":{spec_id},"content":"data","file-format":"parquet","file-path":',
        json_strings(paths),
        ',"partition":',
        partitions,
        ',"file-size-in-bytes":',
        _numbers(sizes),
        ',"record-count":',
        _numbers(row_counts),
        comma,
        metrics,
        "}",
    )


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

    Args:
        paths: As the manifest is to have them.
        sizes: Bytes of the whole file.
        row_counts: How many rows each deletes.
        data_paths: The data file of each.
        spec_id: The partition spec of the data files.
        partitions: The partition of each data file: readers refuse a table where the two differ.
        frames: Offset and length of each vector in its Puffin file; None for Parquet files.
    """
    kind = "parquet" if frames is None else "puffin"
    content: tuple[str | pa.Array, ...]
    if frames is None:
        bound = _hexadecimal(data_paths)
        keys = f'{{"keys":[{_FILE_PATH_ID}],"values":["'
        content = (f',"lower-bounds":{keys}', bound, f'"]}},"upper-bounds":{keys}', bound, '"]}')
    else:
        offsets, lengths = map(_numbers, frames)
        content = (',"content-offset":', offsets, ',"content-size-in-bytes":', lengths)
    return joined(
        f'{{"spec-id":{spec_id},"content":"position-deletes","file-format":"{kind}","file-path":',
        json_strings(paths),
        ',"partition":',
        partitions,
        ',"file-size-in-bytes":',
        _numbers(sizes),
        ',"record-count":',
        _numbers(row_counts),
        ',"referenced-data-file":',
        json_strings(data_paths),
        *content,
        "}",
    )


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


def _numbers(values: NDArray[np.int64] | pa.Array) -> pa.Array:
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(_STRING)


def _hexadecimal(values: pa.Array) -> pa.Array:
    return pa.array([value.encode().hex().upper() for value in values.to_pylist()], _STRING)
