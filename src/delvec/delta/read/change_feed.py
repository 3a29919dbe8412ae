"""The change feed: which rows versions inserted, updated and deleted, as files to read for them.

A version with change data files (`cdc`) is described by these alone. In others, every row of a file
that was added is an insert, and every row left in a file that was removed is a delete. Of a file
that was removed and added again with another vector, the changed rows are those where the two
vectors differ.

Only the commits of the range are read, many at a time. Memory grows with the files that these name,
and with the vectors of those among them that already had one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.actions import (
    VECTOR,
    JsonActions,
    Kind,
    adds_schema,
    conform_struct,
    from_json_of_all,
)
from delvec.delta.log.file_set import FileSet, LooseEntries
from delvec.delta.log.history import CommitTimes, commit_times, read_commit_info
from delvec.delta.log.paths import canonicalize_paths
from delvec.delta.log.replay import read_log_files
from delvec.delta.log.segment import LogFile, find_segment
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.read.vectors import LazyVectors, load_vectors
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.types import ArrayType, DataType, MapType, StructType
from delvec.errors import FormatError, InvalidArgumentError, add_location
from delvec.storage import Storage
from delvec.storage.listed_files import open_listed_file
from delvec.vector import Bitmap

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
FEED_COLUMNS: Final = pa.schema(
    [
        (CHANGE_TYPE, pa.string()),
        (COMMIT_VERSION, pa.int64()),
        (COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
    ]
)
_BYTES_AT_ONCE: Final = 32 << 20
_ROWS_CHANGED: Final = tuple(f"numTargetRows{what}" for what in ("Inserted", "Updated", "Deleted"))
_KINDS: Final[tuple[Kind, ...]] = ("cdc", "add", "remove")


@dataclass(frozen=True)
class ChangeFeed:
    """The changes of some versions."""

    snapshot: Snapshot  # the last version, by whose columns all files are read
    whole: FeedPart  # files of which all rows that no vector has were inserted or deleted
    partial: FeedPart  # files of which the rows that a vector has were inserted or deleted
    # Files that hold changes, with the type of each in the column `_change_type`.
    recorded: FeedPart


def change_feed(storage: Storage, start: int, end: int | None = None) -> ChangeFeed:
    """Plan the reading of the changes that versions made, both ends included."""
    newest = find_segment(storage)
    last = newest.version if end is None else min(end, newest.version)
    if start > newest.version:
        raise InvalidArgumentError(
            f"{storage.root} has no version {start}; the newest is {newest.version}",
            hint="`delvec history` lists the versions",
        )
    if end is not None and end < start:
        raise InvalidArgumentError(f"the range of versions ends before it starts: {start} to {end}")
    first = open_snapshot(storage, start)
    snapshot = open_snapshot(storage, last)
    times = commit_times(snapshot, start, last)
    commits = [commit for commit in times.commits if commit.first >= start]
    known = {commit.first for commit in commits}
    missing = next((version for version in range(start, last + 1) if version not in known), None)
    if missing is not None:
        raise InvalidArgumentError(
            f"the changes of version {missing} of {storage.root} cannot be read any more: its"
            " commit was cleaned up",
            hint="start at a later version; `delvec history` lists those that are there",
        )
    read = read_log_files(storage, [file.key for file in commits])
    require_recorded(storage.root, first, snapshot, read)
    collector = _Collector(snapshot)
    for batch in batched([FeedCommit.of(*each, times) for each in zip(commits, read, strict=True)]):
        collector.take(batch)
    return collector.feed()


@dataclass(frozen=True)
class FeedPart:
    """Files whose rows are changes."""

    files: FileSet  # one entry for each version and change; a file may be in here several times
    # What holds for all rows of an entry: type of the change, version, timestamp.
    constants: pa.Table
    # Vectors by the number of the entry; they are loaded at the first use.
    marks: Mapping[int, Bitmap]


class PartBuilder:
    """Collects the entries of one part, piece by piece."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        stats = pa.field("stats", pa.string())
        self._schema = pa.schema([*adds_schema(snapshot.partition_names), stats, *FEED_COLUMNS])
        self._pieces: list[pa.Table] = [self._schema.empty_table()]

    def __len__(self) -> int:
        return sum(piece.num_rows for piece in self._pieces)

    def add(self, entries: pa.Table, change: str | None) -> None:
        types = pa.repeat(pa.scalar(change, pa.string()), entries.num_rows)
        entries = entries.append_column(CHANGE_TYPE, types)
        self._pieces.append(entries.select(self._schema.names))

    def extend(self, other: PartBuilder, mask: pa.Array | None = None) -> None:
        table = other.table
        self._pieces.append(table if mask is None else table.filter(mask))

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self._pieces).combine_chunks()

    def part(self) -> FeedPart:
        """Return the part, without vectors."""
        table, snapshot = self.table, self._snapshot
        paths, stats = (table[name].combine_chunks() for name in ("path", "stats"))
        columns = table.drop_columns(["path", "stats", *FEED_COLUMNS.names])
        files = FileSet.of_one(
            LooseEntries(stats), snapshot.metadata, snapshot.table, paths, columns
        )
        return FeedPart(files, table.select(FEED_COLUMNS.names), {})


@dataclass(frozen=True, slots=True)
class FeedCommit:
    """A commit of the feed."""

    actions: JsonActions
    version: int
    time: int  # its timestamp in microseconds since 1970
    changes_rows: bool  # whether its files hold other rows than before

    @classmethod
    def of(cls, commit: LogFile, actions: JsonActions, times: CommitTimes) -> FeedCommit:
        info = read_commit_info(actions)
        moment = times.of_read(commit, info) * 1000
        return cls(actions, commit.first, moment, not _only_copies(info))


def changing_versions(
    commits: Sequence[FeedCommit], kind: Kind, partition_names: Sequence[str]
) -> set[int]:
    """Return the versions that have an action of a kind which changes rows."""
    found, at = from_json_of_all([each.actions for each in commits], kind, partition_names)
    changing = pc.fill_null(pc.struct_field(found, "dataChange"), True)
    places = np.unique(at[changing.to_numpy(zero_copy_only=False)])
    return {commits[place].version for place in places.tolist()}


def changed_files_of(commits: Sequence[FeedCommit], kind: Kind, snapshot: Snapshot) -> pa.Table:
    """Return the files of one kind of action that change rows, with version and time of each."""
    names = snapshot.partition_names
    found, at = from_json_of_all([each.actions for each in commits], kind, names)
    if kind != "cdc":
        changing = pc.fill_null(pc.struct_field(found, "dataChange"), True)
        found, at = found.filter(changing), at[changing.to_numpy(zero_copy_only=False)]
    fields = {field.name: pc.struct_field(found, [field.name]) for field in found.type}
    rows, values = len(found), fields["partitionValues"]
    if kind == "remove" and names and values.null_count:
        index = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise FormatError(
            "a commit removes a file without its partition values, so that the rows that it"
            " deleted cannot be read",
            path=commits[int(at[index])].actions.uri,
            found=repr(fields["path"][index].as_py()),
        )
    columns: dict[str, Any] = {
        "path": canonicalize_paths(fields["path"], snapshot.table),
        "deletionVector": conform_struct(fields["deletionVector"], VECTOR)
        if "deletionVector" in fields
        else pa.nulls(rows, VECTOR),
        "size": fields["size"],
        "modificationTime": fields.get("modificationTime", pa.nulls(rows, pa.int64())),
        "stats": fields.get("stats", pa.nulls(rows, pa.string())),
    }
    if names:
        by_name = [pc.map_lookup(values, name, "first") for name in names]
        columns["partitionValues"] = pa.StructArray.from_arrays(by_name, names)
    versions = np.array([commit.version for commit in commits], dtype=np.int64)
    times = np.array([commit.time for commit in commits], dtype=np.int64)
    columns[COMMIT_VERSION] = pa.array(versions[at])
    columns[COMMIT_TIMESTAMP] = pa.array(times[at]).cast(FEED_COLUMNS.field(COMMIT_TIMESTAMP).type)
    return pa.table(columns)


def batched(commits: Sequence[FeedCommit]) -> Iterator[list[FeedCommit]]:
    """Yield small commits together, see `from_json_of_all`."""
    batch: list[FeedCommit] = []
    size = 0
    for commit in commits:
        if batch and size + len(commit.actions.data) > _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(commit)
        size += len(commit.actions.data)
    yield batch


def require_recorded(
    table: str, first: Snapshot, last: Snapshot, commits: Sequence[JsonActions]
) -> None:
    """Refuse a range without recorded changes, or with other changes of columns than new ones."""
    require_feed_names(table, last.metadata.schema)
    for version, metadata in _metadata_of(first, commits):
        if not metadata.is_on(Property.ENABLE_CHANGE_DATA_FEED):
            raise InvalidArgumentError(
                f"version {version} of {table} did not record its changes:"
                f" {Property.ENABLE_CHANGE_DATA_FEED} was not true",
                hint="start at a version after the property was set; `delvec history` shows when",
            )
        if metadata.partition_columns != last.metadata.partition_columns or not readable_as(
            metadata.schema, last.metadata.schema
        ):
            raise InvalidArgumentError(
                f"the columns of {table} at version {version} cannot be read as those of version"
                f" {last.version}: {metadata.schema}, then {last.metadata.schema}",
                hint="read the versions before and after the change of columns one by one",
            )


def require_feed_names(table: str, schema: StructType) -> None:
    """Refuse a table with columns that the feed has too."""
    taken = [name for name in schema.names if name.lower() in FEED_COLUMNS.names]
    if taken:
        raise InvalidArgumentError(
            f"{table} has a column {taken[0]}, as the change feed has", hint="rename the column"
        )


def readable_as(old: DataType, new: DataType) -> bool:
    """Tell whether files of one type can be read as another: the same, apart from new fields."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        by_name = {field.name: field for field in new.fields}
        return all(
            (other := by_name.get(field.name)) is not None
            and other.physical_name == field.physical_name
            and (other.nullable or not field.nullable)
            and readable_as(field.type, other.type)
            for field in old.fields
        )
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return readable_as(old.element, new.element)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return readable_as(old.key, new.key) and readable_as(old.value, new.value)
    return old == new


def _metadata_of(first: Snapshot, commits: Sequence[JsonActions]) -> Iterator[tuple[int, Metadata]]:
    yield first.version, first.metadata
    for version, actions in enumerate(commits, first.version):
        for action in actions.others() if version > first.version else ():
            if isinstance(value := action.get("metaData"), dict):
                with add_location(actions.uri):
                    yield version, Metadata.from_json(value)


def _only_copies(info: Mapping[str, Any]) -> bool:
    """Tell whether a MERGE only copied rows, which its actions do not show."""
    metrics = info.get("operationMetrics")
    return (
        info.get("operation") == "MERGE"
        and isinstance(metrics, dict)
        and all(metrics.get(name) == "0" for name in _ROWS_CHANGED)
    )


class _Collector:
    """The changed files of all versions, by how they are read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._whole, self._recorded = PartBuilder(snapshot), PartBuilder(snapshot)
        # Files whose only vector came or went, and the two sides of those that changed theirs.
        self._gone, self._back = PartBuilder(snapshot), PartBuilder(snapshot)
        self._before, self._after = PartBuilder(snapshot), PartBuilder(snapshot)

    def take(self, commits: Sequence[FeedCommit]) -> None:
        recorded, adds, removes = (
            changed_files_of(commits, kind, self._snapshot) for kind in _KINDS
        )
        self._recorded.add(recorded, None)
        unchanged = [commit.version for commit in commits if not commit.changes_rows]
        done = pa.array([*unchanged, *recorded[COMMIT_VERSION].to_pylist()], pa.int64())
        adds, removes = (
            side.filter(pc.invert(pc.is_in(side[COMMIT_VERSION], value_set=done)))
            for side in (adds, removes)
        )
        in_adds = pc.index_in(_keys(removes), value_set=_keys(adds))
        again = in_adds.is_valid()
        pairs_of = in_adds.drop_null()
        alone = np.ones(adds.num_rows, dtype=np.bool_)
        alone[pairs_of.to_numpy()] = False
        self._whole.add(adds.filter(pa.array(alone)), "insert")
        self._whole.add(self._sized(removes.filter(pc.invert(again))), "delete")
        self._take_pairs(removes.filter(again), adds.take(pairs_of))

    def _take_pairs(self, removes: pa.Table, after: pa.Table) -> None:
        """Take files that were removed and added again, side by side."""
        # Statistics and the size are those of the add; a remove need not have any.
        place = after.column_names.index("deletionVector")
        before = after.set_column(place, "deletionVector", removes["deletionVector"])
        had, has = (side["deletionVector"].combine_chunks().is_valid() for side in (before, after))
        neither = after.filter(pc.invert(pc.or_(had, has)))
        if neither.num_rows:
            raise FormatError(
                f"version {neither[COMMIT_VERSION][0]} adds and removes the same file with the"
                " same vector",
                path=self._snapshot.table,
                found=repr(neither["path"][0].as_py()),
            )
        self._gone.add(after.filter(pc.invert(had)), "delete")
        self._back.add(before.filter(pc.invert(has)), "insert")
        both = pc.and_(had, has)
        self._before.add(before.filter(both), "insert")
        self._after.add(after.filter(both), "delete")

    def _sized(self, entries: pa.Table) -> pa.Table:
        """Ask the store for the sizes that the log lacks; removes need not have any."""
        sizes = entries["size"].to_pylist()
        if None not in sizes:
            return entries
        for number, path in enumerate(entries["path"].to_pylist()):
            if sizes[number] is None:
                storage, key = open_listed_file(self._snapshot.storage, path)
                sizes[number] = storage.size(key)
        place = entries.column_names.index("size")
        return entries.set_column(place, "size", pa.array(sizes, pa.int64()))

    def feed(self) -> ChangeFeed:
        storage, whole = self._snapshot.storage, self._whole.part()
        numbers = np.flatnonzero(whole.files.has_vector).tolist()
        whole = replace(whole, marks=LazyVectors(storage, whole.files, numbers))
        return ChangeFeed(self._snapshot, whole, self._partial(), self._recorded.part())

    def _partial(self) -> FeedPart:
        """Join the entries of vectors that came, went or changed.

        Where both sides have one, both are loaded now: as a rule one side of the difference is
        empty, and finding that out costs less than reading the file in vain.
        """
        storage = self._snapshot.storage
        old, new = (
            [vector or Bitmap() for vector in load_vectors(storage, side.part().files.data_files())]
            for side in (self._before, self._after)
        )
        gone = [later - earlier for earlier, later in zip(old, new, strict=True)]
        back = [earlier - later for earlier, later in zip(old, new, strict=True)]
        joined = PartBuilder(self._snapshot)
        for side in (self._gone, self._back):
            joined.extend(side)
        lazy = len(joined)
        marks: list[Bitmap] = []
        for side, vectors in ((self._after, gone), (self._before, back)):
            marked = [bool(vector) for vector in vectors]
            joined.extend(side, pa.array(marked, pa.bool_()))
            marks += [vector for vector in vectors if vector]
        part = joined.part()
        known = {lazy + number: vector for number, vector in enumerate(marks)}
        return replace(part, marks=LazyVectors(storage, part.files, range(lazy), known))


def _keys(entries: pa.Table) -> pa.Array:
    version = entries[COMMIT_VERSION].combine_chunks().cast(pa.string())
    return pc.binary_join_element_wise(version, entries["path"].combine_chunks(), "\0")
