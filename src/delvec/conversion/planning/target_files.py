"""The data files of a target and the vector of each, and how the target names files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column

from delvec.conversion.files.copies import resolve_paths
from delvec.conversion.files.vector_places import PLANNED, delete_file_keys
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.files import snapshot_files
from delvec.storage.listed_files import are_absolute, spark_path

_POSITION_DELETES: Final = 1  # the `content` of such a file in a manifest


@dataclass(frozen=True, eq=False)
class TargetFiles:
    """Data files in columns, one row each.

    Strays are keys of delete files that belong to no data file, to several, or to one that has
    another delete file; a conversion writes none.
    """

    paths: pa.Array
    rows: NDArray[np.int64]  # physical
    sizes: NDArray[np.int64]  # bytes
    deleted: NDArray[np.int64]  # rows
    keys: pa.Array  # of the delete file, see `delete_file_keys`; null without one
    ids: pa.Array  # the source's, of the vector; null without one, and if its origin is unknown
    strays: pa.Array

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, chosen: NDArray[np.bool_]) -> TargetFiles:
        """Return some of the data files, without the strays."""
        mask = pa.array(chosen)
        return TargetFiles(
            self.paths.filter(mask),
            self.rows[chosen],
            self.sizes[chosen],
            self.deleted[chosen],
            self.keys.filter(mask),
            self.ids.filter(mask),
            _NO_STRINGS,
        )

    def joined(self, other: TargetFiles) -> TargetFiles:
        return TargetFiles(
            pa.concat_arrays([self.paths, other.paths]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.sizes, other.sizes]),
            np.concatenate([self.deleted, other.deleted]),
            pa.concat_arrays([self.keys, other.keys]),
            pa.concat_arrays([self.ids, other.ids]),
            pa.concat_arrays([self.strays, other.strays]),
        )

    def resolved(self, location: str, run: str) -> TargetFiles:
        """Return the files with the names of new copies, see `copies.resolve_paths`."""
        return replace(
            self,
            paths=resolve_paths(self.paths, location, run),
            keys=resolve_paths(self.keys, location, run, prefix=PLANNED),
        )

    def same_files(self, other: TargetFiles) -> bool:
        mine, theirs = (
            set(zip(each.paths.to_pylist(), each.keys.to_pylist(), strict=True))
            for each in (self, other)
        )
        return mine == theirs and set(self.strays.to_pylist()) == set(other.strays.to_pylist())


_NO_STRINGS: Final = pa.array([], pa.string())
_NO_NUMBERS: Final = np.empty(0, dtype=np.int64)
NO_FILES: Final = TargetFiles(
    _NO_STRINGS, _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_STRINGS, _NO_STRINGS, _NO_STRINGS
)


def target_paths(root: str, paths: pa.Array) -> pa.Array:
    """Return the paths of data files as manifests have them: absolute, with a scheme, unescaped."""
    prefix = spark_path(root, "x")[:-1]
    relative = pc.binary_join_element_wise(pa.scalar(prefix), paths, pa.scalar(""))
    suspects = are_absolute(paths)
    names = [spark_path(root, path) for path in paths.filter(suspects).to_pylist()]
    return pc.replace_with_mask(relative, suspects, pa.array(names, pa.string()))


def list_target_files(
    table: LoadedTable,
    snapshot_id: int,
    paths: pa.Array | None,
    vector_ids: Callable[[pa.Table], pa.Array],
    compared_by: Callable[[Column], Column] | None = None,
) -> TargetFiles:
    """Return the files of a snapshot; takes about 500 bytes of memory for each."""
    files = snapshot_files(table, snapshot_id, paths, compared_by)
    data, deletes = files.data.combine_chunks(), files.deletes.combine_chunks()
    names = data.column("file_path").combine_chunks()
    at = pc.index_in(deletes.column("referenced_data_file").combine_chunks(), value_set=names)
    places = pc.fill_null(at, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    attached = (places >= 0) & (deletes.column("content").to_numpy() == _POSITION_DELETES)
    first = np.zeros(len(places), dtype=np.bool_)
    first[np.unique(np.where(attached, places, -1), return_index=True)[1]] = True
    attached &= first
    keys = delete_file_keys(
        deletes.column("file_path").combine_chunks(),
        deletes.column("content_offset").combine_chunks(),
    )
    entries = deletes.filter(pa.array(attached))
    order = np.full(len(data), -1, dtype=np.int64)
    order[places[attached]] = np.arange(attached.sum())
    indexes = pa.array(order, mask=order < 0)
    deleted = np.zeros(len(data), dtype=np.int64)
    deleted[places[attached]] = entries.column("record_count").to_numpy()
    return TargetFiles(
        names,
        data.column("record_count").to_numpy(),
        data.column("file_size_in_bytes").to_numpy(),
        deleted,
        keys.filter(pa.array(attached)).take(indexes),
        vector_ids(entries).take(indexes),
        keys.filter(pa.array(~attached)),
    )


def without_ids(deletes: pa.Table) -> pa.Array:
    """Return null for the id of each vector, where ids do not matter."""
    return pa.nulls(len(deletes), pa.string())
