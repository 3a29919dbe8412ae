"""The union of a file's deletion vector with rows that were found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.errors import PlanError

if TYPE_CHECKING:
    from delvec.vector.bitmap import Bitmap

__all__ = ["unite"]


def unite(old: Bitmap | None, found: Bitmap, *, rows: int, path: str) -> Bitmap:
    """Return the new vector of a data file: the rows deleted before, and those found now.

    Positions that cannot be right are refused here, before they delete other rows.

    >>> from delvec.vector import Bitmap
    >>> unite(Bitmap([1]), Bitmap([3]), rows=4, path="part-0.parquet").to_numpy().tolist()
    [1, 3]

    Args:
        old: The vector that the file has, None without one.
        found: The rows to delete; a scan of live rows finds none that is deleted already.
        rows: All rows of the file, deleted ones included.
        path: The file, for the error.

    Raises:
        PlanError: A position is past the end of the file, or deleted already.
    """
    if old is not None and not old.isdisjoint(found):
        raise PlanError(f"rows of {path} were found that are deleted already")
    united = found if old is None else old | found
    last = united.max
    if last is not None and last >= rows:
        raise PlanError(
            f"row {last} of {path} was found, and the log says that it has {rows} rows",
            hint="the statistics of the file are wrong; rewrite it with the engine that made it",
        )
    return united
