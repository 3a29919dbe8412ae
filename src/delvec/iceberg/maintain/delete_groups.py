"""Which equality deletes of a branch can be merged, and which have nothing left to delete.

A delete of sequence number a can become part of one of b > a only if no live data file in its scope
has a number from a to b - 1: the delete would then apply to rows that were written after it. So
deletes are merged between the numbers of data files:

    data      2           5
    deletes      3  4  5     6  7        3, 4 and 5 become one of 5; 6 and 7 become one of 7

Numbers of data files that come later do not matter. Those of new rows are higher. A compaction that
runs meanwhile may add files of lower numbers, but only with rows of files that are live now, to
which it has applied the same deletes. (Stock Iceberg drops equality deletes that were committed
during a compaction if that replaces all data files and somebody has committed since, whatever that
was: https://github.com/apache/iceberg/issues/10312.)
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.iceberg.maintain.data_sequences import DataSequences

__all__ = ["Apart", "DeleteGroup", "DeletePlan", "Kind", "plan_deletes"]

# Together twice of these at most, the size up to which `encode_files` writes one file.
_LARGE: Final = 32 << 20  # bytes
_MANY: Final = 10_000_000  # keys
_PAIR: Final = 2


@dataclass(frozen=True)
class Kind:
    """What deletes must have in common to be merged: key columns, and scope."""

    ids: tuple[int, ...]
    spec_id: int
    partition_json: str


@dataclass(frozen=True)
class DeleteGroup:
    """Deletes that become one.

    Attributes:
        kind: What they have in common.
        files: The files that are replaced.
        sequence_number: The data sequence number of what replaces them.
    """

    kind: Kind
    files: tuple[EqualityDeleteFile, ...]
    sequence_number: int

    @property
    def keys(self) -> int:
        """Keys in the files; those of several files are counted for each."""
        return sum(each.record_count for each in self.files)

    @property
    def size(self) -> int:
        """The size of the files."""
        return sum(each.size for each in self.files)

    @property
    def has_vectors(self) -> bool:
        """Whether some of the files are equality delete vectors."""
        return any(each.is_vector for each in self.files)


@dataclass(frozen=True)
class Apart:
    """Deletes that are not merged.

    Attributes:
        kind: What they have in common.
        deletes: How many there are.
        reason: Why, in a few words.
    """

    kind: Kind
    deletes: int
    reason: str


@dataclass(frozen=True)
class DeletePlan:
    """What is to be done with the equality deletes of a branch.

    Attributes:
        groups: Those that become fewer.
        dangling: Those that apply to no data file.
        apart: Those of one kind that stay several.
    """

    groups: tuple[DeleteGroup, ...] = ()
    dangling: tuple[EqualityDeleteFile, ...] = ()
    apart: tuple[Apart, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.groups and not self.dangling

    @property
    def removed(self) -> list[EqualityDeleteFile]:
        """All files that are removed."""
        return [*self.dangling, *(file for group in self.groups for file in group.files)]


def plan_deletes(
    deletes: Iterable[EqualityDeleteFile],
    sequences: DataSequences,
    *,
    staging: bool,
    unwritable: Mapping[tuple[int, ...], str],
) -> DeletePlan:
    """Return which deletes to merge and which to remove.

    Args:
        deletes: The equality deletes of a snapshot.
        sequences: Of the data files in their scopes.
        staging: Whether the snapshot is of a staging branch of delvec's; elsewhere equality delete
            vectors become ordinary files, even single ones.
        unwritable: Why no file of some key columns can be written, by their field ids in ascending
            order.
    """
    kinds: dict[Kind, list[EqualityDeleteFile]] = {}
    dangling = []
    for each in deletes:
        kind = Kind(tuple(sorted(each.equality_ids)), each.spec_id, each.partition_json)
        if staging or bisect_left(sequences.of(each), each.sequence_number):
            kinds.setdefault(kind, []).append(each)
        else:
            dangling.append(each)
    groups: list[DeleteGroup] = []
    apart: list[Apart] = []
    for kind, files in kinds.items():
        if reason := unwritable.get(kind.ids):
            if len(files) > 1 or (files[0].is_vector and not staging):
                apart.append(Apart(kind, len(files), reason))
            continue
        between = _between(files, sequences)
        for some in between.values():
            groups += _groups(kind, some, staging=staging)
        if len(between) > 1:
            apart.append(Apart(kind, len(between), _reason(between, sequences.of(files[0]))))
    return DeletePlan(tuple(groups), tuple(dangling), tuple(apart))


def _between(
    files: Sequence[EqualityDeleteFile], sequences: DataSequences
) -> dict[int, list[EqualityDeleteFile]]:
    """Return deletes of one kind by how many numbers of data files are below theirs, ascending."""
    found: dict[int, list[EqualityDeleteFile]] = {}
    for each in sorted(files, key=lambda file: file.sequence_number):
        below = bisect_left(sequences.of(each), each.sequence_number)
        found.setdefault(below, []).append(each)
    return found


def _groups(
    kind: Kind, files: Sequence[EqualityDeleteFile], *, staging: bool
) -> Iterator[DeleteGroup]:
    """Yield what is merged of deletes without data in between; large files stay as they are."""
    small = [each for each in files if each.size < _LARGE and each.record_count < _MANY]
    if not staging:
        large = [each for each in files if each.is_vector and each not in small]
        yield from (DeleteGroup(kind, (each,), each.sequence_number) for each in large)
    for some in _packed(small):
        vectors = sum(each.is_vector for each in some)
        unreadable = vectors and not staging
        # Keys that a vector can hold, and the others: one file of each cannot become fewer.
        both = len(some) == _PAIR and vectors == 1 and staging
        if unreadable or (len(some) > 1 and not both):
            yield DeleteGroup(kind, tuple(some), max(each.sequence_number for each in some))


def _packed(files: Sequence[EqualityDeleteFile]) -> list[list[EqualityDeleteFile]]:
    """Split files into parts each of which makes one file that is not too large."""
    parts: list[list[EqualityDeleteFile]] = []
    size = keys = 0
    for each in files:
        size, keys = size + each.size, keys + each.record_count
        if not parts or size > 2 * _LARGE or keys > 2 * _MANY:
            parts.append([])
            size, keys = each.size, each.record_count
        parts[-1].append(each)
    return parts


def _reason(between: Mapping[int, Sequence[EqualityDeleteFile]], numbers: Sequence[int]) -> str:
    """Return why deletes stay apart: data files that only the later ones apply to."""
    first, second = list(between.values())[:2]
    low, high = first[-1].sequence_number, second[0].sequence_number
    number = numbers[bisect_left(numbers, low)]
    return (
        f"there is data in between, such as of sequence number {number}, to which the delete of"
        f" {high} applies and that of {low} does not"
    )
