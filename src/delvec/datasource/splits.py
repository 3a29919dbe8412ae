"""Splits: the files of a version, divided into parts of similar size, one for each task."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from delvec.delta.parquet.data_file import open_data_file
from delvec.delta.schema.types import StructType
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delvec.delta.log.file_set import DataFile
    from delvec.storage import Storage

__all__ = ["MAX_SPLIT_BYTES", "Piece", "pack", "plan_splits"]

MAX_SPLIT_BYTES: Final = 128 << 20  # Spark's spark.sql.files.maxPartitionBytes
OPEN_COST: Final = 4 << 20  # and its spark.sql.files.openCostInBytes

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file, or some of its row groups."""

    file: DataFile
    row_groups: tuple[int, ...] | None
    bytes: int


def plan_splits(
    storage: Storage, files: Sequence[DataFile], split_bytes: int | None
) -> list[list[Piece]]:
    """Return the pieces of each task: small files combined, large ones split at row groups.

    Only the footers of files above the limit are read.

    Args:
        storage: The table's.
        files: The files to read.
        split_bytes: The limit of one task; by default as in Spark, by the number of cores.
    """
    limit = split_bytes or _default_limit(files)
    cut = gather(lambda file: _cut(storage, file, limit), files)
    pieces = [piece for some in cut for piece in some]
    # A limit given by the user counts bytes alone.
    return pack(pieces, lambda piece: piece.bytes, limit, cost=0 if split_bytes else OPEN_COST)


def pack(
    items: Sequence[Item], weight: Callable[[Item], int], limit: int, *, cost: int = 0
) -> list[list[Item]]:
    """Return groups of items whose weight is at most a limit, or of one item; heaviest first.

    Args:
        items: The items.
        weight: Returns the weight of an item.
        limit: The weight of a group.
        cost: Added to the weight of each item but the last of a group.

    >>> pack([1, 9, 5, 3, 2], int, 6)
    [[9], [5], [3, 2, 1]]
    """
    groups: list[list[Item]] = []
    held = 0
    for item in sorted(items, key=weight, reverse=True):
        if not groups or held + weight(item) > limit:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held += weight(item) + cost
    return groups


def _default_limit(files: Sequence[DataFile]) -> int:
    total = sum(file.size + OPEN_COST for file in files)
    return min(MAX_SPLIT_BYTES, max(OPEN_COST, total // (os.cpu_count() or 1)))


def _cut(storage: Storage, file: DataFile, limit: int) -> Iterator[Piece]:
    if file.size <= limit:
        return iter([Piece(file, None, file.size)])
    with open_data_file(storage, file, StructType(()), mapping_mode="none") as data:
        metadata = data.parquet.metadata
        sizes = [_group_bytes(metadata.row_group(i)) for i in range(metadata.num_row_groups)]
    return iter(list(_runs(file, sizes, limit)))


def _group_bytes(group: object) -> int:
    columns = range(group.num_columns)  # type: ignore[attr-defined]
    return sum(group.column(i).total_compressed_size for i in columns)  # type: ignore[attr-defined]


def _runs(file: DataFile, sizes: Sequence[int], limit: int) -> Iterator[Piece]:
    """Yield pieces of adjacent row groups."""
    start, held = 0, 0
    for group, size in enumerate(sizes):
        if held and held + size > limit:
            yield Piece(file, tuple(range(start, group)), held)
            start, held = group, 0
        held += size
    if start < len(sizes):
        yield Piece(file, tuple(range(start, len(sizes))), held)
