"""The row counts of data files, from footers where the log lacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from delvec.delta.parquet.footer_statistics import row_count
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

__all__ = ["physical_rows", "row_counts"]


def row_counts(
    storage: Storage, files: FileSet, indexes: Sequence[int] | NDArray[np.int64]
) -> list[int]:
    """Return the rows of some files, deleted ones included.

    Where the log lacks the count, the footer is read: one request for each such file, 16 at a time.
    """
    chosen = [int(index) for index in indexes]
    counts: list[int | None] = files.row_counts.take(chosen).to_pylist() if chosen else []
    unknown = [index for index, count in zip(chosen, counts, strict=True) if count is None]
    footers = iter(_footer_counts(storage, files, unknown))
    return [next(footers) if count is None else count for count in counts]


def physical_rows(
    storage: Storage, files: FileSet, places: NDArray[np.int64], known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows of all files, deleted ones included, as an array.

    Where neither the log nor the target has a count, the footer is read, see `row_counts`.

    Args:
        storage: The Delta table.
        files: Its files.
        places: The index of each in the target; -1 for those that it does not have.
        known: The rows of the files of the target.
    """
    counts = files.row_counts
    unknown_to_log = counts.is_null().to_numpy(zero_copy_only=False)
    rows: NDArray[np.int64] = counts.fill_null(0).to_numpy(zero_copy_only=False).copy()
    held = unknown_to_log & (places >= 0)
    rows[held] = known[places[held]]
    unknown = np.flatnonzero(unknown_to_log & (places < 0)).tolist()
    if unknown:
        rows[unknown] = _footer_counts(storage, files, unknown)
    return rows


def _footer_counts(storage: Storage, files: FileSet, indexes: Sequence[int]) -> list[int]:
    def count(index: int) -> int:
        place, key = open_listed_file(storage, files.paths[index].as_py())
        return row_count(place, key, int(files.sizes[index]))

    return gather(count, indexes)
