"""Which files are rewritten together: small ones, and those with many deleted rows.

Files are measured by their live bytes: their size, less the share of deleted rows. Those of one
partition are taken in the order of their age, so that rows that came together stay together, and
cut into bins of at most the wanted size. Reads the log only; time and memory grow with its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from delvec.delta.log.file_set import FileSet
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.partition_values import partition_column
from delvec.documents import size_bytes
from delvec.errors import InvalidArgumentError
from delvec.inspection.figures import Rewritten

_TARGET: Final = 256 << 20
_SPELLED: Final = re.compile(r"timestamp$|decimal")


@dataclass(frozen=True)
class CompactionRule:
    """Which files are worth rewriting, and how large the new ones are."""

    target_size: int  # the most live bytes of the files that become one
    min_size: int  # files with fewer live bytes are put together
    max_deleted_ratio: float  # files with a larger share of deleted rows are rewritten, even alone

    @classmethod
    def of(
        cls,
        metadata: Metadata,
        target_size: int | None = None,
        min_size: int | None = None,
        max_deleted_ratio: float = 0.05,
    ) -> CompactionRule:
        """Check a rule, with defaults: 256 MiB or `delta.targetFileSize`, and half of it."""
        asked = size_bytes(metadata.configuration.get(Property.TARGET_FILE_SIZE, ""))
        default = _TARGET if asked is None else max(1, asked)
        target = default if target_size is None else target_size
        least = target // 2 if min_size is None else min_size
        for name, value in (("target_file_size", target), ("min_file_size", least)):
            if type(value) is not int or value < (name == "target_file_size"):
                raise InvalidArgumentError(f"{name} is a number of bytes, got {value!r}")
        if least > target:
            raise InvalidArgumentError(
                f"min_file_size is {least:,} bytes, and target_file_size only {target:,}",
                hint="files that are smaller than the minimum become files of the target size",
            )
        if not 0 <= max_deleted_ratio <= 1:
            raise InvalidArgumentError(
                f"max_deleted_ratio is a share of rows from 0 to 1, got {max_deleted_ratio!r}"
            )
        return cls(target, least, max_deleted_ratio)


def compaction_bins(
    files: FileSet, chosen: NDArray[np.bool_], rule: CompactionRule, time_zone: str = "UTC"
) -> list[NDArray[np.int64]]:
    """Return the numbers of files that become one file each, by a rule.

    The zone is that of timestamps that name none, in partition values.
    """
    live, deleted = live_bytes(files), mostly_deleted(files, rule.max_deleted_ratio)
    wanted = chosen & ((live < rule.min_size) | deleted)
    bins = _bins(files, wanted, live, rule.target_size, time_zone)
    return [each for each in bins if len(each) > 1 or deleted[each[0]]]


def purge_bins(
    files: FileSet, wanted: NDArray[np.bool_], rule: CompactionRule, time_zone: str = "UTC"
) -> list[NDArray[np.int64]]:
    """Return the numbers of all wanted files; small ones become one file, as in a compaction."""
    return list(_bins(files, wanted, live_bytes(files), rule.target_size, time_zone))


def compaction_sums(files: FileSet, rule: CompactionRule) -> tuple[Rewritten, int]:
    """Return what `compaction_bins` of all files would replace, and about how many it would write.

    Memory grows with columns alone.
    """
    live, deleted = live_bytes(files), mostly_deleted(files, rule.max_deleted_ratio)
    wanted = (live < rule.min_size) | deleted
    numbers, starts = _cut(files, wanted, live, rule.target_size)
    if not len(numbers):
        return Rewritten(), 0
    lengths = np.diff(np.append(starts, len(numbers)))
    worth = (lengths > 1) | deleted[numbers[starts]]
    chosen = numbers[np.repeat(worth, lengths)]
    sizes, left = int(files.sizes[chosen].sum()), int(live[chosen].sum())
    return Rewritten(len(chosen), sizes, left), int(worth.sum())


def live_bytes(files: FileSet) -> NDArray[np.int64]:
    """Return the bytes of each file's live rows, by their share; all where that is unknown."""
    counts = files.row_counts.fill_null(0).to_numpy()
    deleted = np.minimum(files.deleted_rows, counts)
    share = np.divide(counts - deleted, counts, out=np.ones(len(files)), where=counts > 0)
    left: NDArray[np.int64] = np.minimum(files.sizes * share, 2.0**62).astype(np.int64)
    return left


def mostly_deleted(files: FileSet, ratio: float) -> NDArray[np.bool_]:
    """Return which files have a larger share of deleted rows, or one that nobody knows."""
    known = files.row_counts.is_valid().to_numpy(zero_copy_only=False)
    counts = files.row_counts.fill_null(0).to_numpy()
    over: NDArray[np.bool_] = files.has_vector & (~known | (files.deleted_rows > ratio * counts))
    return over


def _bins(
    files: FileSet, wanted: NDArray[np.bool_], live: NDArray[np.int64], target: int, time_zone: str
) -> Iterator[NDArray[np.int64]]:
    numbers, starts = _cut(files, wanted, live, target, time_zone)
    for start, end in pairwise([*starts.tolist(), len(numbers)]):
        yield np.sort(numbers[start:end])


def _cut(
    files: FileSet,
    wanted: NDArray[np.bool_],
    live: NDArray[np.int64],
    target: int,
    time_zone: str | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return files by partition and age, and where each bin begins.

    A file goes into the bin of the one before if both are of one partition and fit it. No object is
    made for a file: the loop is over bins of partitions that do not fit one.
    """
    numbers = np.flatnonzero(wanted)
    groups = _partition_numbers(files, numbers, time_zone)
    order = np.lexsort((numbers, files.modification_times[numbers], groups))
    numbers, groups = numbers[order], groups[order]
    ends_after = np.concatenate([[0], np.cumsum(live[numbers])])
    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    lasts = np.append(firsts[1:], len(numbers))[: len(firsts)]
    is_large = ends_after[lasts] - ends_after[firsts] > target
    cuts: list[int] = []
    for first, last in zip(firsts[is_large].tolist(), lasts[is_large].tolist(), strict=True):
        start = first
        while start < last:
            cuts.append(start)
            fitting = int(np.searchsorted(ends_after, ends_after[start] + target, "right")) - 1
            start = max(fitting, start + 1)
    starts = np.sort(np.concatenate([firsts[~is_large], np.array(cuts, dtype=np.int64)]))
    return numbers, starts


def _partition_numbers(
    files: FileSet, numbers: NDArray[np.int64], time_zone: str | None
) -> NDArray[np.int64]:
    """Return the partition of each file as a number, in the order in which they appear.

    Writers spell timestamps and decimals differently: with a zone they are compared as values.
    """
    found = np.zeros(len(numbers), dtype=np.int64)
    for field in files.metadata.partition_fields:
        values = files.partition_strings(field.physical_name).take(pa.array(numbers))
        if time_zone is not None and _SPELLED.match(str(field.type)):
            values = partition_column(values, field.type, time_zone)
        codes = values.dictionary_encode(null_encoding="encode")
        both = found * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
        _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        found = rank[inverse]
    return found
