"""What the target calls the data files of the source."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.storage.listed_files import is_absolute, require_same_store, spark_path

__all__ = ["target_paths"]


def target_paths(root: str, paths: pa.Array) -> pa.Array:
    """Name files as Iceberg's manifests shall have them: in full, with a scheme, unescaped.

    Args:
        root: The table's path or URI.
        paths: Decoded, as a `FileSet` has them.

    Raises:
        FormatError: The table names a file on another kind of store.
    """
    start = spark_path(root, "x")[:-1]
    relative = pc.binary_join_element_wise(pa.scalar(start), paths, pa.scalar(""))
    # A colon or a leading slash is rare, so few names are looked at one by one.
    suspects = pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, "://"))
    rows = np.flatnonzero(suspects.to_numpy(zero_copy_only=False))
    if not len(rows):
        return relative
    names = []
    for path in paths.take(pa.array(rows)).to_pylist():
        if is_absolute(path):
            require_same_store(root, path)
        names.append(spark_path(root, path))
    return pc.replace_with_mask(relative, suspects, pa.array(names, pa.string()))
