"""How many rows data files have, where the log does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from delvec.delta.parquet.footer_statistics import row_count
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

__all__ = ["physical_rows"]


def physical_rows(
    storage: Storage, files: FileSet, places: NDArray[np.int64], known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Count all rows of files, deleted ones too.

    Where the log is silent and the target does not know either, the footer is read: one request
    for each such file, 16 side by side.

    Args:
        storage: The Delta table.
        files: Its files.
        places: Where the target knows them; -1 for where it does not.
        known: The rows of the files of the target.
    """
    counts = files.row_counts
    silent = counts.is_null().to_numpy(zero_copy_only=False)
    rows: NDArray[np.int64] = counts.fill_null(0).to_numpy(zero_copy_only=False).copy()
    held = silent & (places >= 0)
    rows[held] = known[places[held]]
    wanted = np.flatnonzero(silent & (places < 0)).tolist()
    if not wanted:
        return rows

    def count(index: int) -> int:
        place, key = open_listed_file(storage, files.paths[index].as_py())
        return row_count(place, key, int(files.sizes[index]))

    rows[wanted] = gather(count, wanted)
    return rows
