"""Files as Iceberg's JSON parser takes them, made column by column: no Python object per file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["data_file_texts", "delete_file_texts", "in_arrays"]

_AT_ONCE: Final = 10_000  # files in one text to Java: some megabytes


def data_file_texts(
    paths: pa.Array,
    sizes: NDArray[np.int64],
    row_counts: pa.Array,
    spec_id: int,
    partitions: pa.Array,
    metrics: pa.Array,
) -> pa.Array:
    """Describe data files, a JSON object each.

    Args:
        paths: As the manifest shall have them.
        sizes: Bytes.
        row_counts: All rows, deleted ones too.
        spec_id: The partition spec of all of them.
        partitions: A JSON array for each, of the partition's values.
        metrics: More members of the JSON object for each; may be empty.
    """
    comma = pc.if_else(pc.greater(pc.binary_length(metrics), 0), ",", "")
    return _joined(
        f'{{"spec-id":{spec_id},"content":"data","file-format":"parquet","file-path":',
        json_texts(paths),
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


def delete_file_texts(
    paths: pa.Array,
    sizes: NDArray[np.int64],
    row_counts: NDArray[np.int64],
    data_paths: pa.Array,
    spec_id: int,
    partitions: pa.Array,
    *,
    frames: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
) -> pa.Array:
    """Describe files of position deletes, each for one data file.

    Args:
        paths: As the manifest shall have them.
        sizes: Bytes of the whole file.
        row_counts: How many rows each deletes.
        data_paths: Of whose rows.
        spec_id: The partition spec of that data file.
        partitions: Its partition: readers refuse a table where the two differ.
        frames: Offset and length of the vector in a Puffin file; None for Parquet.
    """
    kind = "parquet" if frames is None else "puffin"
    place: tuple[str | pa.Array, ...] = ()
    if frames is not None:
        offsets, lengths = map(_numbers, frames)
        place = (',"content-offset":', offsets, ',"content-size-in-bytes":', lengths)
    return _joined(
        f'{{"spec-id":{spec_id},"content":"position-deletes","file-format":"{kind}","file-path":',
        json_texts(paths),
        ',"partition":',
        partitions,
        ',"file-size-in-bytes":',
        _numbers(sizes),
        ',"record-count":',
        _numbers(row_counts),
        ',"referenced-data-file":',
        json_texts(data_paths),
        *place,
        "}",
    )


def in_arrays(texts: pa.Array) -> Iterator[str]:
    """Give JSON arrays of some objects each."""
    for start in range(0, len(texts), _AT_ONCE):
        yield f"[{','.join(texts[start : start + _AT_ONCE].to_pylist())}]"


def json_texts(texts: pa.Array) -> pa.Array:
    """Give texts as JSON; mostly this is only a matter of quotes."""
    texts = texts.cast(pa.large_string())
    if pc.any(pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')).as_py():
        return pa.array([json.dumps(text) for text in texts.to_pylist()], pa.large_string())
    return _joined('"', texts, '"')


def _numbers(values: NDArray[np.int64] | pa.Array) -> pa.Array:
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(pa.large_string())


def _joined(*parts: str | pa.Array) -> pa.Array:
    columns = [
        pa.scalar(part, pa.large_string())
        if isinstance(part, str)
        else part.cast(pa.large_string())
        for part in parts
    ]
    return pc.binary_join_element_wise(*columns, pa.scalar("", pa.large_string()))
