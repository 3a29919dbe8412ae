"""Which equality deletes of a branch can be merged, and which have nothing left to delete.

A delete applies to data files of lower sequence numbers, in its partition or, if its partition spec
has no fields, in all; nothing else about data files matters. One of number a can become part of one
of b > a only if no live data file in its scope has a number from a to b - 1: it would then apply to
rows that were written after it. So deletes are merged between the numbers of data files:

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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import EqualityDeleteFile, snapshot_table
from delvec.iceberg.client.metadata import TableMetadata

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
    """Deletes that become one, which gets this data sequence number."""

    kind: Kind
    files: tuple[EqualityDeleteFile, ...]
    sequence_number: int

    @property
    def record_count(self) -> int:
        """Keys in the files; those of several files are counted for each."""
        return sum(each.record_count for each in self.files)

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def has_vectors(self) -> bool:
        """Whether some of the files are equality delete vectors."""
        return any(each.is_vector for each in self.files)


_Sized = TypeVar("_Sized", EqualityDeleteFile, DeleteGroup)


@dataclass(frozen=True)
class Apart:
    """How many deletes of a kind stay several, and why, in a few words."""

    kind: Kind
    deletes: int
    reason: str


@dataclass(frozen=True)
class DeletePlan:
    """What becomes of the equality deletes of a branch; dangling ones apply to no data file."""

    groups: tuple[DeleteGroup, ...] = ()
    dangling: tuple[EqualityDeleteFile, ...] = ()
    apart: tuple[Apart, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.groups and not self.dangling

    @property
    def removed(self) -> list[EqualityDeleteFile]:
        return [*self.dangling, *(file for group in self.groups for file in group.files)]


def plan_deletes(
    deletes: Iterable[EqualityDeleteFile],
    sequences: DataSequences,
    *,
    staging: bool,
    unwritable: Mapping[tuple[int, ...], str],
) -> DeletePlan:
    """Return which deletes to merge and which to remove."""
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


@dataclass(frozen=True)
class DataSequences:
    """Distinct sequence numbers of live data files, in ascending order.

    Of all of them; and by the path of an equality delete of one partition, of those there.
    """

    everywhere: tuple[int, ...] = ()
    by_delete: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, delete: EqualityDeleteFile) -> tuple[int, ...]:
        """Return those of the data files in the scope of a delete, whatever their numbers are."""
        return self.by_delete.get(delete.path, self.everywhere)


def data_sequences(
    table: LoadedTable, snapshot_id: int, deletes: Sequence[EqualityDeleteFile]
) -> DataSequences:
    """Return the sequence numbers of the data files in the scope of each delete.

    Spark reads all manifests, and groups their entries by partition; the driver gets the numbers,
    8 bytes for each commit whose data files are left in a partition.
    """
    scoped = {each.path for each in deletes if not is_global(table.metadata, each.spec_id)}
    with translate_errors(str(table.name)):
        live = snapshot_table(table, "entries", snapshot_id).where("status < 2")
        everywhere: tuple[int, ...] = ()
        if len(scoped) < len(deletes):
            data = live.where("data_file.content = 0").select("sequence_number").distinct()
            everywhere = tuple(sorted(row[0] for row in data.collect()))
        by_delete = _by_delete(live, scoped) if scoped else {}
    if missing := scoped - by_delete.keys():
        # It must not pass for a delete that applies to nothing.
        raise PlanError(f"{min(missing)} is not a delete file of snapshot {snapshot_id}")
    return DataSequences(everywhere, by_delete)


def is_global(metadata: TableMetadata, spec_id: int) -> bool:
    """Tell whether equality deletes of a partition spec apply to all partitions."""
    fields = metadata.specs[spec_id]["fields"]
    return all(each["transform"] == "void" for each in fields)


def _between(
    files: Sequence[EqualityDeleteFile], sequences: DataSequences
) -> dict[int, list[EqualityDeleteFile]]:
    """Return deletes of one kind by how many numbers of data files are below theirs, ascending."""
    found = defaultdict[int, list[EqualityDeleteFile]](list)
    for each in sorted(files, key=lambda file: file.sequence_number):
        below = bisect_left(sequences.of(each), each.sequence_number)
        found[below].append(each)
    return found


def _groups(
    kind: Kind, files: Sequence[EqualityDeleteFile], *, staging: bool
) -> Iterator[DeleteGroup]:
    """Yield what is merged of deletes without data in between; large files stay as they are."""
    small = [each for each in files if each.size < _LARGE and each.record_count < _MANY]
    if not staging:
        large = [each for each in files if each.is_vector and each not in small]
        yield from (DeleteGroup(kind, (each,), each.sequence_number) for each in large)
    for some in packed(small, 2 * _LARGE, 2 * _MANY):
        vectors = sum(each.is_vector for each in some)
        unreadable = vectors and not staging
        # Keys that a vector can hold, and the others: one file of each cannot become fewer.
        both = len(some) == _PAIR and vectors == 1 and staging
        if unreadable or (len(some) > 1 and not both):
            yield DeleteGroup(kind, tuple(some), max(each.sequence_number for each in some))


def packed(items: Iterable[_Sized], most_bytes: int, most_keys: int) -> list[list[_Sized]]:
    """Split deletes into parts that have no more bytes or keys, unless it is a single one."""
    parts: list[list[_Sized]] = []
    size = keys = 0
    for each in items:
        size, keys = size + each.size, keys + each.record_count
        if not parts or size > most_bytes or keys > most_keys:
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


def _by_delete(live: DataFrame, scoped: set[str]) -> dict[str, tuple[int, ...]]:
    # Spark compares structs by value and null with null. Iceberg distinguishes -0.0 from 0.0: the
    # group is then larger than the partition, and what is done with its deletes less.
    content = F.col("data_file.content")
    groups = (
        live.where(content.isin(0, 2))
        .groupBy("data_file.spec_id", "data_file.partition")
        .agg(
            F.collect_set(F.when(content == 0, F.col("sequence_number"))).alias("numbers"),
            F.collect_list(F.when(content != 0, F.col("data_file.file_path"))).alias("paths"),
        )
        .where("size(paths) > 0")
    )
    # A compaction under way may move rows of other specs here, with the numbers that they have.
    by_spec = {
        row["spec_id"]: set(row["numbers"])
        for row in live.where(content == 0)
        .groupBy("data_file.spec_id")
        .agg(F.collect_set("sequence_number").alias("numbers"))
        .collect()
    }
    found: dict[str, tuple[int, ...]] = {}
    for row in groups.select("spec_id", "numbers", "paths").collect():
        others = [each for spec_id, each in by_spec.items() if spec_id != row["spec_id"]]
        numbers = tuple(sorted(set(row["numbers"]).union(*others)))
        found.update((path, numbers) for path in row["paths"] if path in scoped)
    return found
