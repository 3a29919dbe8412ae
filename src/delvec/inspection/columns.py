"""Figures from columns of files: which have the most deleted rows, how large and how old they are.

All work is on Arrow and numpy columns: no object is made for a file that is not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.inspection.figures import AgeClass, Ranking, Share, SizeClass
from delvec.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = [
    "SHOWN",
    "FileColumns",
    "ages",
    "partition_word",
    "ranked_files",
    "ranked_partitions",
    "size_classes",
]

SHOWN: Final = 20
"""Files and partitions that a report names; the others are one figure."""

_LIMITS: Final = tuple(1 << shift for shift in (16, 18, 20, 22, 24, 26, 28, 30))
_DAY_MS: Final = 86_400_000
_AGES: Final = (
    ("under a day", _DAY_MS),
    ("under a week", 7 * _DAY_MS),
    ("under 30 days", 30 * _DAY_MS),
)
_OLDER: Final = "older"
_UNKNOWN: Final = "before the history that was read"


@dataclass(frozen=True)
class FileColumns:
    """One row for each data file.

    Attributes:
        paths: The paths.
        rows: All rows of each, deleted ones included; null where that is not known.
        deleted: Rows that are deleted by vectors, or by position delete files of this file alone.
        bytes: The sizes.
    """

    paths: pa.Array
    rows: pa.Array
    deleted: NDArray[np.int64]
    bytes: NDArray[np.int64]


def ranked_files(files: FileColumns, shown: int = SHOWN) -> Ranking:
    """Return the files with the most deleted rows, and the sum of the others."""
    order = _order(files.deleted, shown)
    named = [
        Share(path, 1, rows, int(files.deleted[index]), int(files.bytes[index]))
        for index, path, rows in zip(
            order.tolist(),
            files.paths.take(order).to_pylist(),
            files.rows.take(order).to_pylist(),
            strict=True,
        )
    ]
    left = np.ones(len(files.paths), dtype=np.bool_)
    left[order] = False
    others = int(left.sum())
    if not others:
        return Ranking(tuple(named))
    rest = Share(
        "",
        others,
        _sum(files.rows.filter(pa.array(left))),
        int(files.deleted[left].sum()),
        int(files.bytes[left].sum()),
    )
    return Ranking(tuple(named), rest, others)


def ranked_partitions(
    files: FileColumns, keys: Mapping[str, pa.Array], shown: int = SHOWN
) -> Ranking:
    """Return the partitions with the most deleted rows, and the sum of the others.

    Args:
        files: The files.
        keys: The partition values of each file, by the column's name; none if there are none.
        shown: How many are named.
    """
    if not keys:
        return Ranking()
    names = [f"key{number}" for number in range(len(keys))]
    table = pa.table(
        [*keys.values(), files.rows, pa.array(files.deleted), pa.array(files.bytes)],
        names=[*names, "rows", "deleted", "bytes"],
    )
    skipped = pc.ScalarAggregateOptions(skip_nulls=False)  # one unknown count: unknown in all
    sums: list[Any] = [("rows", "sum", skipped), ("deleted", "sum"), ("bytes", "sum")]
    sums.append(("deleted", "count", pc.CountOptions(mode="all")))
    groups = table.group_by(names, use_threads=False).aggregate(sums).combine_chunks()
    found = FileColumns(
        groups.column(0),
        _joined(groups.column("rows_sum")),
        _joined(groups.column("deleted_sum")).to_numpy(),
        _joined(groups.column("bytes_sum")).to_numpy(),
    )
    counts = _joined(groups.column("deleted_count")).to_numpy()
    order = _order(found.deleted, shown)
    values = groups.select(names).take(order).to_pylist()
    rows = found.rows.take(order).to_pylist()
    named = [
        Share(
            _partition(list(keys), list(value.values())),
            int(counts[index]),
            rows[at],
            int(found.deleted[index]),
            int(found.bytes[index]),
        )
        for at, (index, value) in enumerate(zip(order.tolist(), values, strict=True))
    ]
    left = np.ones(groups.num_rows, dtype=np.bool_)
    left[order] = False
    if not left.any():
        return Ranking(tuple(named))
    rest = Share(
        "",
        int(counts[left].sum()),
        _sum(found.rows.filter(pa.array(left))),
        int(found.deleted[left].sum()),
        int(found.bytes[left].sum()),
    )
    return Ranking(tuple(named), rest, int(left.sum()))


def size_classes(sizes: NDArray[np.int64]) -> tuple[SizeClass, ...]:
    """Return how many files are of each size, from the smallest class to the largest that has one.

    >>> [(each.label, each.files) for each in size_classes(np.array([10, 70_000, 80_000]))]
    [('under 64.0 KiB', 1), ('64.0 KiB to 256.0 KiB', 2)]
    """
    places = np.searchsorted(_LIMITS, sizes, side="right")
    if not len(sizes):
        return ()
    first, last = int(places.min()), int(places.max())
    return tuple(
        SizeClass(_label(place), int(chosen.sum()), int(sizes[chosen].sum()))
        for place in range(first, last + 1)
        for chosen in (places == place,)
    )


def _label(place: int) -> str:
    if place == 0:
        return f"under {size(_LIMITS[0])}"
    if place == len(_LIMITS):
        return f"{size(_LIMITS[-1])} and more"
    return f"{size(_LIMITS[place - 1])} to {size(_LIMITS[place])}"


def ages(times_ms: NDArray[np.int64], now_ms: int) -> tuple[AgeClass, ...]:
    """Return how many vectors are of each age; a time of -1 is not known.

    >>> [(each.label, each.vectors) for each in ages(np.array([0, 86_399_999, -1]), 86_400_000)]
    [('under a day', 1), ('under a week', 1), ('before the history that was read', 1)]
    """
    known = times_ms[times_ms >= 0]
    places = np.searchsorted([limit for _, limit in _AGES], now_ms - known, side="right")
    labels = [*(label for label, _ in _AGES), _OLDER]
    counts = {label: int((places == place).sum()) for place, label in enumerate(labels)}
    counts[_UNKNOWN] = len(times_ms) - len(known)
    return tuple(AgeClass(label, count) for label, count in counts.items() if count)


def _order(deleted: NDArray[np.int64], shown: int) -> NDArray[np.int64]:
    """Return the places of the largest, in order; equal ones in the order of the table."""
    chosen = np.arange(len(deleted))
    if len(deleted) > shown:
        least = np.partition(deleted, len(deleted) - shown)[len(deleted) - shown]
        above = np.flatnonzero(deleted > least)
        chosen = np.concatenate(
            [above, np.flatnonzero(deleted == least)[: max(0, shown - len(above))]]
        )
    return chosen[np.lexsort((chosen, -deleted[chosen]))]


def _sum(counts: pa.Array) -> int | None:
    return None if counts.null_count else int(pc.sum(counts, min_count=0).as_py())


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _partition(names: list[str], values: list[str | None]) -> str:
    """Return the values of a partition in words; a column without a name has them in words."""
    pairs = zip(names, values, strict=True)
    return ", ".join(
        f"{name}={partition_word(value)}" if name else str(value) for name, value in pairs
    )


def partition_word(value: str | None) -> str:
    """Return a value of a partition, with NULL told from a string of these letters.

    >>> [partition_word(each) for each in (None, "null", "NULL", "", "2026-01-31")]
    ['NULL', "'null'", "'NULL'", "''", '2026-01-31']
    """
    if value is None:
        return "NULL"
    return f"'{value}'" if value.lower() in ("null", "") else value
