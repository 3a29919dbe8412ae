"""Figures from columns of files: which have the most deleted rows, how large and how old they are.

All work is on Arrow and numpy columns: no object is made for a file that is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.inspection.figures import AgeClass, Ranking, Share, SizeClass
from delvec.report.format import format_size

SHOWN: Final = 20
"""Files and partitions that a report names; the others are one figure."""
_LIMITS: Final = tuple(1 << shift for shift in (16, 18, 20, 22, 24, 26, 28, 30))
_DAY_MS: Final = 86_400_000
_AGES: Final = {"under a day": _DAY_MS, "under a week": 7 * _DAY_MS, "under 30 days": 30 * _DAY_MS}


@dataclass(frozen=True)
class FileColumns:
    """One row for each data file.

    `rows` are all rows, null where that is not known; `deleted` those that are deleted by vectors,
    or by position delete files of this file alone.
    """

    paths: pa.Array
    rows: pa.Array
    deleted: NDArray[np.int64]
    bytes: NDArray[np.int64]


def ranked_files(files: FileColumns) -> Ranking:
    one_each = np.ones(len(files.paths), dtype=np.int64)
    return _ranked(files, one_each, lambda order: files.paths.take(order).to_pylist())


def ranked_partitions(files: FileColumns, keys: Mapping[str, pa.Array]) -> Ranking:
    """Return the partitions with the most deleted rows, and the sum of the others."""
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
        groups.column("rows_sum").combine_chunks(),
        groups.column("deleted_sum").to_numpy(),
        groups.column("bytes_sum").to_numpy(),
    )
    counts = groups.column("deleted_count").to_numpy()

    def named(order: NDArray[np.int64]) -> list[str]:
        values = groups.select(names).take(order).to_pylist()
        return [_partition(list(keys), list(value.values())) for value in values]

    return _ranked(found, counts, named)


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


def ages(times_ms: NDArray[np.int64], now_ms: int) -> tuple[AgeClass, ...]:
    """Return how many vectors are of each age; a time of -1 is not known.

    >>> [(each.label, each.vectors) for each in ages(np.array([0, 86_399_999, -1]), 86_400_000)]
    [('under a day', 1), ('under a week', 1), ('before the history that was read', 1)]
    """
    known = times_ms[times_ms >= 0]
    places = np.searchsorted(list(_AGES.values()), now_ms - known, side="right")
    labels = (*_AGES, "older")
    counts = {label: int((places == place).sum()) for place, label in enumerate(labels)}
    counts["before the history that was read"] = len(times_ms) - len(known)
    return tuple(AgeClass(label, count) for label, count in counts.items() if count)


def partition_word(value: str | None) -> str:
    """Return a value of a partition, with NULL told from a string of these letters.

    >>> [partition_word(each) for each in (None, "null", "NULL", "", "2026-01-31")]
    ['NULL', "'null'", "'NULL'", "''", '2026-01-31']
    """
    if value is None:
        return "NULL"
    return f"'{value}'" if value.lower() in ("null", "") else value


def _label(place: int) -> str:
    if place == 0:
        return f"under {format_size(_LIMITS[0])}"
    if place == len(_LIMITS):
        return f"{format_size(_LIMITS[-1])} and more"
    return f"{format_size(_LIMITS[place - 1])} to {format_size(_LIMITS[place])}"


def _ranked(
    found: FileColumns, counts: NDArray[np.int64], named: Callable[[NDArray[np.int64]], list[str]]
) -> Ranking:
    """Return those with the most deleted rows by their names, and the sum of the others."""
    order = _order(found.deleted)
    columns = (order.tolist(), named(order), found.rows.take(order).to_pylist())
    first = tuple(
        Share(name, int(counts[at]), rows, int(found.deleted[at]), int(found.bytes[at]))
        for at, name, rows in zip(*columns, strict=True)
    )
    left = np.ones(len(counts), dtype=np.bool_)
    left[order] = False
    if not left.any():
        return Ranking(first)
    files, deleted, size = (int(x[left].sum()) for x in (counts, found.deleted, found.bytes))
    rows = found.rows.filter(pa.array(left))
    in_all = None if rows.null_count else int(pc.sum(rows, min_count=0).as_py())
    return Ranking(first, Share("", files, in_all, deleted, size), int(left.sum()))


def _order(deleted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of the largest, in order; equal ones in the order of the table."""
    chosen = np.arange(len(deleted))
    if len(deleted) > SHOWN:
        least = np.partition(deleted, len(deleted) - SHOWN)[len(deleted) - SHOWN]
        above = np.flatnonzero(deleted > least)
        equal = np.flatnonzero(deleted == least)[: max(0, SHOWN - len(above))]
        chosen = np.concatenate([above, equal])
    return chosen[np.lexsort((chosen, -deleted[chosen]))]


def _partition(names: list[str], values: list[str | None]) -> str:
    """Return the values of a partition in words; a column without a name has them in words."""
    pairs = zip(names, values, strict=True)
    return ", ".join(
        f"{name}={partition_word(value)}" if name else str(value) for name, value in pairs
    )
