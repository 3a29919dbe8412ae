"""Keys by which delete files and vectors are compared, as columns.

delete file of the target     `path@offset` for a vector in a Puffin file, else the path
delete file of a later step   `planned:` and the path of its data file
vector of a data file         path and id with a NUL character between
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PLANNED", "delete_file_keys", "planned_keys", "vector_keys"]

PLANNED: Final = "planned:"
"""Prefix of the key of a delete file that an earlier step of the same plan will write."""


def delete_file_keys(paths: pa.Array, offsets: pa.Array) -> pa.Array:
    """Return the keys of delete files.

    >>> delete_file_keys(pa.array(["a.puffin", "b.parquet"]), pa.array([4, None])).to_pylist()
    ['a.puffin@4', 'b.parquet']
    """
    at_offset = pc.binary_join_element_wise(paths, offsets.cast(pa.string()), "@")
    return pc.coalesce(at_offset, paths)


def planned_keys(data_paths: pa.Array) -> pa.Array:
    """Return the keys of delete files that are not written yet, by the paths of data files."""
    return pc.binary_join_element_wise(pa.scalar(PLANNED), data_paths, pa.scalar(""))


def vector_keys(paths: pa.Array, ids: pa.Array) -> pa.Array:
    """Return keys of data files with their vectors; a null id is a file without one."""
    return pc.binary_join_element_wise(paths, ids, "\0", null_handling="skip")
