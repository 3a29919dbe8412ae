"""The limits beyond which something is to be run, and the reasons that tell which was passed.

docs/inspecting.md lists them. A reason is a function of the report's numbers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.report.figures import counted, percent, size

if TYPE_CHECKING:
    from delvec.inspection.report import InspectReport

__all__ = [
    "DELETED_SHARE",
    "FEWER_FILES",
    "FILE_DELETED_SHARE",
    "FREED_SHARE",
    "LONG_LOG",
    "MANY_EQUALITY_DELETES",
    "MANY_POSITION_DELETES",
    "POSITION_DELETE_SHARE",
    "why_deleted",
    "why_fewer_files",
    "why_position_deletes",
]

DELETED_SHARE: Final = 0.05
"""Purge when a larger share of all rows is deleted: every read loads and skips them."""
FILE_DELETED_SHARE: Final = 0.30
"""Purge when some file has a larger share of deleted rows, and one row of a hundred is deleted."""
FREED_SHARE: Final = 0.10
"""Vacuum, or expire snapshots, when that frees more than this share of the live data."""
FEWER_FILES: Final = 10
"""Put small files together when at least so many fewer are left, and less than half of them."""
LONG_LOG: Final = 3
"""Write a checkpoint when so many times the wanted interval of commits came since the last."""
MANY_EQUALITY_DELETES: Final = 100
"""Consolidate equality deletes from so many on: every reader loads all of them."""
MANY_POSITION_DELETES: Final = 10
"""Rewrite what position delete files delete from so many on, if there are enough for the table."""
POSITION_DELETE_SHARE: Final = 0.10
"""Enough: there are more than this share of the data files."""

_LEAST_SHARE: Final = 0.01  # of all rows, below which a purge is not worth a rewrite


def why_deleted(report: InspectReport) -> str | None:
    """Return why rows are to be rewritten without the deleted ones; None if they need not."""
    deleted, rows = report.vectors.rows + report.positions.positions, report.rows
    if not deleted:
        return None
    share = deleted / rows if rows else None
    if share is not None and share > DELETED_SHARE:
        most = "up to " if report.positions.positions else ""
        limit = f"more than {100 * DELETED_SHARE:g} %"
        return (
            f"{most}{percent(min(deleted, rows or 0), rows or 0)} of the rows are deleted, {limit}"
        )
    worst = max(report.most_deleted.shown, key=lambda each: each.ratio, default=None)
    is_many = share is None or share > _LEAST_SHARE
    # Where the log does not say how many rows there are, one file has to stand for all.
    limit_of_file = DELETED_SHARE if share is None else FILE_DELETED_SHARE
    if worst is not None and worst.ratio > limit_of_file and is_many:
        limit = f"more than {100 * limit_of_file:g} %"
        part = percent(worst.deleted, worst.rows or 0)
        return f"{part} of the rows of a file are deleted, {limit}"
    return None


def why_position_deletes(report: InspectReport) -> str | None:
    """Return why position delete files are too many; None if they are not."""
    found = report.positions
    is_many = found.files > POSITION_DELETE_SHARE * report.files
    if found.files < MANY_POSITION_DELETES or not is_many:
        return None
    what = counted(found.files, "position delete file")
    return (
        f"{what} ({size(found.bytes)}), at least {MANY_POSITION_DELETES} and more than"
        f" {100 * POSITION_DELETE_SHARE:g} % of the data files: readers open each beside its data"
    )


def why_fewer_files(report: InspectReport) -> str | None:
    """Return why small files are to be put together; None if they need not."""
    small = report.small_files
    fewer = small.before - small.after
    if fewer < FEWER_FILES or small.after * 2 >= small.before:
        return None
    return f"{counted(small.before, 'small file')} would become about {small.after:,}"
