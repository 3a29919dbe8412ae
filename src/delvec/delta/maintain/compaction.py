"""Which files are rewritten together: small ones, and those with many deleted rows.

Files are measured by their live bytes: their size, less the share of deleted rows. Those of one
partition are taken in the order of their age, so that rows that came together stay together, and
cut into bins of at most the wanted size. Reads the log only; time and memory grow with its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from delvec.delta.schema.properties import TARGET_FILE_SIZE
from delvec.errors import InvalidArgumentError
from delvec.report.figures import parsed_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.schema.metadata import Metadata

__all__ = ["CompactionRule", "compaction_bins", "live_bytes", "purge_bins"]

_TARGET: Final = 256 << 20


@dataclass(frozen=True)
class CompactionRule:
    """Which files are worth rewriting, and how large the new ones are.

    Attributes:
        target_size: The most live bytes of the files that become one.
        min_size: Files with fewer live bytes are put together.
        max_deleted_ratio: Files with a larger share of deleted rows are rewritten, even alone.
    """

    target_size: int
    min_size: int
    max_deleted_ratio: float

    @classmethod
    def of(
        cls,
        metadata: Metadata,
        target_size: int | None = None,
        min_size: int | None = None,
        max_deleted_ratio: float = 0.05,
    ) -> CompactionRule:
        """Check a rule, with defaults: 256 MiB or `delta.targetFileSize`, and half of it.

        Raises:
            InvalidArgumentError: A number is out of range.
        """
        target = _default_target(metadata) if target_size is None else target_size
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
    files: FileSet, chosen: NDArray[np.bool_], rule: CompactionRule
) -> list[NDArray[np.int64]]:
    """Return the numbers of files that become one file each, by a rule.

    Args:
        files: The files of a version.
        chosen: Which of them may be rewritten.
        rule: Which of those are.
    """
    live, mostly_deleted = live_bytes(files), _mostly_deleted(files, rule.max_deleted_ratio)
    wanted = chosen & ((live < rule.min_size) | mostly_deleted)
    bins = _bins(files, wanted, live, rule.target_size)
    return [each for each in bins if len(each) > 1 or mostly_deleted[each[0]]]


def purge_bins(
    files: FileSet, chosen: NDArray[np.bool_], rule: CompactionRule
) -> list[NDArray[np.int64]]:
    """Return the numbers of files with vectors; small ones become one file, as in a compaction."""
    wanted = chosen & files.has_vector
    return list(_bins(files, wanted, live_bytes(files), rule.target_size))


def live_bytes(files: FileSet) -> NDArray[np.int64]:
    """Return the bytes of each file's live rows, by their share; all where that is unknown."""
    counts = files.row_counts.fill_null(0).to_numpy()
    deleted = np.minimum(files.deleted_rows, counts)
    share = np.divide(counts - deleted, counts, out=np.ones(len(files)), where=counts > 0)
    left: NDArray[np.int64] = (files.sizes * share).astype(np.int64)
    return left


def _mostly_deleted(files: FileSet, ratio: float) -> NDArray[np.bool_]:
    """Return which files have a larger share of deleted rows, or one that nobody knows."""
    known = files.row_counts.is_valid().to_numpy(zero_copy_only=False)
    counts = files.row_counts.fill_null(0).to_numpy()
    over: NDArray[np.bool_] = files.has_vector & (~known | (files.deleted_rows > ratio * counts))
    return over


def _bins(
    files: FileSet, wanted: NDArray[np.bool_], live: NDArray[np.int64], target: int
) -> Iterator[NDArray[np.int64]]:
    numbers = np.flatnonzero(wanted)
    names = [field.physical_name for field in files.metadata.partition_fields]
    columns = [files.partition_strings(name).take(numbers).to_pylist() for name in names]
    groups: dict[tuple[str | None, ...], list[int]] = {}
    keys = zip(*columns, strict=True) if columns else ((),) * len(numbers)
    for number, key in zip(numbers.tolist(), keys, strict=True):
        groups.setdefault(key, []).append(number)
    ages = files.modification_times
    for members in groups.values():
        members.sort(key=lambda number: int(ages[number]))
        start, size = 0, 0
        for place, number in enumerate(members):
            if place > start and size + int(live[number]) > target:
                yield np.array(sorted(members[start:place]), dtype=np.int64)
                start, size = place, 0
            size += int(live[number])
        if members[start:]:
            yield np.array(sorted(members[start:]), dtype=np.int64)


def _default_target(metadata: Metadata) -> int:
    found = parsed_size(metadata.configuration.get(TARGET_FILE_SIZE, ""))
    return _TARGET if found is None else max(1, found)
