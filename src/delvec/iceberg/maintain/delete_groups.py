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
from functools import partial, reduce
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from delvec.errors import FormatError, PlanError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import read_key_files
from delvec.iceberg.client.files import EqualityDeleteFile, snapshot_table
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.deletes import key_columns
from delvec.iceberg.deletes.key_vectors import read_key_vector
from delvec.identifiers import quote
from delvec.report.hints import call, format_hint
from delvec.spark.engine import open_storage
from delvec.spark.input.key_values import KeyColumn, convert, from_numbers, is_key_type
from delvec.spark.input.keys import Keys
from delvec.storage.listed_files import local_path
from delvec.storage.parallel import gather

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


_MOST_KEYS: Final = 2_000_000  # of the groups that one job reads, and the driver holds
_MOST_BYTES: Final = 16 << 20  # of their files
_GROUP: Final = "__delvec_group"
_PATH: Final = "__delvec_path"


def why_unwritable(table: LoadedTable, ids: Sequence[int]) -> str | None:
    """Return why no file with these key columns can be written; None if one can."""
    try:
        columns = group_columns(table, ids)
    except (UnsupportedFeatureError, FormatError) as error:
        return error.describe()
    for each in columns:
        if each.type.startswith("fixed"):
            return f"column {each.name} is {each.type}: readers need a file for each such key"
    return None


def group_columns(table: LoadedTable, ids: Sequence[int]) -> tuple[KeyColumn, ...]:
    """Return key columns by field id, as the table has them or had them when they were dropped."""
    schema = _schema(table, ids)
    paths, types = key_columns.key_paths(schema), key_columns.key_types(schema)
    required = {field["id"] for field in schema["fields"] if field["required"]}
    found = []
    for field_id in ids:
        [name, *inner] = paths[field_id]
        kind = types[field_id]
        if inner:
            raise UnsupportedFeatureError(
                f"the key column {'.'.join(paths[field_id])} is a field of a struct",
                feature="keys inside of structs",
            )
        if not is_key_type(kind):
            raise UnsupportedFeatureError(
                f"the key column {name} is {kind}", feature=f"keys of type {kind}"
            )
        found.append(KeyColumn(field_id, name, kind, field_id in required))
    return tuple(found)


def group_keys(
    table: LoadedTable, snapshot_id: int, groups: Sequence[DeleteGroup]
) -> Iterator[tuple[DeleteGroup, Keys | DataFrame]]:
    """Yield each group with its keys.

    Small groups are read together, by one job for 2 million keys, which the driver holds. The keys
    of a large group are a DataFrame; those of its vectors go through the driver, 8 bytes each.
    """
    by_ids: dict[tuple[int, ...], list[DeleteGroup]] = {}
    for group in groups:
        by_ids.setdefault(group.kind.ids, []).append(group)
    for ids, alike in by_ids.items():
        columns = group_columns(table, ids)
        for some in packed(alike, _MOST_BYTES, _MOST_KEYS):
            is_large = some[0].record_count > _MOST_KEYS or some[0].size > _MOST_BYTES
            if is_large:  # which is alone
                yield some[0], _as_frame(table, snapshot_id, some[0], columns)
            else:
                yield from _collected(table, snapshot_id, some, columns)


def _collected(
    table: LoadedTable,
    snapshot_id: int,
    groups: Sequence[DeleteGroup],
    columns: Sequence[KeyColumn],
) -> Iterator[tuple[DeleteGroup, Keys]]:
    ordinary = [
        (each, place)
        for place, group in enumerate(groups)
        for each in group.files
        if not each.is_vector
    ]
    parts: list[list[list[pa.Array]]] = [[[] for _ in columns] for _ in groups]
    if ordinary:
        parts = _read(table, snapshot_id, ordinary, columns, len(groups))
    for group, arrays in zip(groups, parts, strict=True):
        vectors = [each for each in group.files if each.is_vector]
        if vectors:
            arrays[0].append(_vector_keys(table, vectors, columns[0].type))
        whole = [
            pa.chunked_array(chunks, column.arrow)
            for chunks, column in zip(arrays, columns, strict=True)
        ]
        yield group, Keys.of_arrays(whole, columns)


def _read(
    table: LoadedTable,
    snapshot_id: int,
    files: Sequence[tuple[EqualityDeleteFile, int]],
    columns: Sequence[KeyColumn],
    count: int,
) -> list[list[list[pa.Array]]]:
    """Return the chunks of each key column, of the ordinary files of each of so many groups."""
    rows = _rows(table, snapshot_id, [each for each, _ in files], columns)
    names = [f"k{place}" for place in range(len(columns))]
    keys = [
        F.col(quote(column.name)).alias(name) for column, name in zip(columns, names, strict=True)
    ]
    paths, places = [each.path for each, _ in files], [place for _, place in files]
    known = pa.table({_PATH: pa.array(paths, pa.string()), _GROUP: pa.array(places, pa.int32())})
    with translate_errors(str(table.name)):
        marks = F.broadcast(table.spark.createDataFrame(known))
        # Selected first: Spark 4.0 joins by no metadata column that is not.
        named = rows.select(*keys, "_file")
        marked = named.join(marks, F.col("_file") == F.col(_PATH), "left")
        found = marked.select(*names, _GROUP).toArrow()
    expected = sum(each.record_count for each, _ in files)
    if found.num_rows != expected or found.column(_GROUP).null_count:
        raise FormatError(
            f"{len(files)} equality-delete files of {table.name} do not have the rows that their"
            " manifests say",
            expected=expected,
            found=found.num_rows,
            hint=format_hint("{} says which", call("check")),
        )
    ordered = found.sort_by(_GROUP)
    numbers = ordered.column(_GROUP).to_numpy()
    ends = np.searchsorted(numbers, np.arange(count + 1))
    whole = [
        convert(ordered.column(name), column) for name, column in zip(names, columns, strict=True)
    ]
    return [
        [values.slice(start, end - start).chunks for values in whole]
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]


def _as_frame(
    table: LoadedTable, snapshot_id: int, group: DeleteGroup, columns: Sequence[KeyColumn]
) -> DataFrame:
    """Return the keys of a group as a DataFrame with the key columns; lazy."""
    ordinary = [each for each in group.files if not each.is_vector]
    vectors = [each for each in group.files if each.is_vector]
    names = [quote(column.name) for column in columns]
    parts = []
    if ordinary:
        parts.append(_rows(table, snapshot_id, ordinary, columns).select(*names))
    if vectors:
        keys = _vector_keys(table, vectors, columns[0].type)
        schema = StructType([StructField(columns[0].name, columns[0].spark)])
        parts.append(table.spark.createDataFrame(pa.table({columns[0].name: keys}), schema))
    return reduce(DataFrame.unionAll, parts)


def _rows(
    table: LoadedTable,
    snapshot_id: int,
    files: Sequence[EqualityDeleteFile],
    columns: Sequence[KeyColumn],
) -> DataFrame:
    ids = [column.id for column in columns]
    schema = key_columns.key_schema(_schema(table, ids), ids)
    return read_key_files(table, snapshot_id, schema, files)


def _schema(table: LoadedTable, ids: Sequence[int]) -> Mapping[str, Any]:
    metadata, name = table.metadata, str(table.name)
    return key_columns.add_dropped_key_columns(metadata, metadata.schema, ids, name)


def _vector_keys(table: LoadedTable, files: Sequence[EqualityDeleteFile], kind: str) -> pa.Array:
    """Return the keys of vectors as values of their column."""
    storage = open_storage(table.spark, local_path(table.metadata.location))
    keys = reduce(lambda one, other: one | other, gather(partial(read_key_vector, storage), files))
    return from_numbers(keys.to_numpy(), kind)
