"""What a target holds: its data files, and the vector of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.iceberg.client.files import live_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from delvec.iceberg.client.catalog import IcebergTable

__all__ = ["NOTHING", "Holdings", "hold"]

_POSITIONS: Final = 1  # the content of a file of position deletes


@dataclass(frozen=True, eq=False)
class Holdings:
    """Data files in columns, one row each.

    Attributes:
        paths: Of the data files.
        rows: All rows of each.
        sizes: Bytes of each.
        deleted: How many of them are deleted.
        keys: What names its delete file: path and offset with `@` between, or path; null without.
        ids: Which vector of the source that is; null without, and for one of unknown origin.
        strays: Keys of delete files that belong to no data file, to several, or that are one too
            many; a conversion makes none.
    """

    paths: pa.Array
    rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    deleted: NDArray[np.int64]
    keys: pa.Array
    ids: pa.Array
    strays: pa.Array

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, chosen: NDArray[np.bool_]) -> Holdings:
        """Give some of the data files; strays are left out."""
        mask = pa.array(chosen)
        return Holdings(
            self.paths.filter(mask),
            self.rows[chosen],
            self.sizes[chosen],
            self.deleted[chosen],
            self.keys.filter(mask),
            self.ids.filter(mask),
            _NO_TEXT,
        )

    def joined(self, other: Holdings) -> Holdings:
        """Give the data files of both."""
        return Holdings(
            pa.concat_arrays([self.paths, other.paths]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.sizes, other.sizes]),
            np.concatenate([self.deleted, other.deleted]),
            pa.concat_arrays([self.keys, other.keys]),
            pa.concat_arrays([self.ids, other.ids]),
            pa.concat_arrays([self.strays, other.strays]),
        )

    def same_files(self, other: Holdings) -> bool:
        """Tell whether both have the same data files with the same deletes."""
        mine, theirs = (
            set(zip(each.paths.to_pylist(), each.keys.to_pylist(), strict=True))
            for each in (self, other)
        )
        return mine == theirs and set(self.strays.to_pylist()) == set(other.strays.to_pylist())


_NO_TEXT: Final = pa.array([], pa.string())
_NO_NUMBER: Final = np.empty(0, dtype=np.int64)
NOTHING: Final = Holdings(
    _NO_TEXT, _NO_NUMBER, _NO_NUMBER, _NO_NUMBER, _NO_TEXT, _NO_TEXT, _NO_TEXT
)


def hold(
    table: IcebergTable,
    snapshot_id: int,
    paths: pa.Array | None,
    name_vectors: Callable[[pa.Table], pa.Array],
) -> Holdings:
    """List what a snapshot holds; some 500 bytes of memory for each file that is listed.

    Args:
        table: The target.
        snapshot_id: Of any of its branches.
        paths: Of which data files; None for all.
        name_vectors: Gives the source's ids of the vectors of a listing.
    """
    files = live_files(table, snapshot_id, paths)
    data, deletes = files.data.combine_chunks(), files.deletes.combine_chunks()
    names = data.column("file_path").combine_chunks()
    at = pc.index_in(deletes.column("referenced_data_file").combine_chunks(), value_set=names)
    places = pc.fill_null(at, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    ours = (places >= 0) & (deletes.column("content").to_numpy() == _POSITIONS)
    first = np.zeros(len(places), dtype=np.bool_)
    first[np.unique(np.where(ours, places, -1), return_index=True)[1]] = True
    ours &= first
    keys = _keys(deletes)
    attached = deletes.filter(pa.array(ours))
    order = np.full(len(data), -1, dtype=np.int64)
    order[places[ours]] = np.arange(ours.sum())
    indexes = pa.array(order, mask=order < 0)
    deleted = np.zeros(len(data), dtype=np.int64)
    deleted[places[ours]] = attached.column("record_count").to_numpy()
    return Holdings(
        names,
        data.column("record_count").to_numpy(),
        data.column("file_size_in_bytes").to_numpy(),
        deleted,
        keys.filter(pa.array(ours)).take(indexes),
        name_vectors(attached).take(indexes),
        keys.filter(pa.array(~ours)),
    )


def _keys(deletes: pa.Table) -> pa.Array:
    paths = deletes.column("file_path").combine_chunks()
    offsets = deletes.column("content_offset").combine_chunks().cast(pa.string())
    placed = pc.binary_join_element_wise(paths, offsets, "@")
    return pc.coalesce(placed, paths)
