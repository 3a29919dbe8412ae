"""Which rows the versions of a table inserted, updated and deleted: the files to read for them.

A version with files of change rows says it all by these. In others, every row of a file that was
added is an insert, every row left of one that was removed is a delete, and of a file that was
removed and added again, with another vector, those rows are in which the vectors differ.

Only the commits of the range are read. Memory grows with the files that these name, and with the
vectors of those among them that already had one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.action_columns import conformed, from_json
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.history import CommitTimes
from delvec.delta.log.json_actions import VECTOR, JsonActions, adds_schema
from delvec.delta.log.paths import canonical
from delvec.delta.log.segment import find_segment, list_commits
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.change_feed_schema import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    FEED_COLUMNS,
    require_recorded,
)
from delvec.delta.read.load_vectors import load_vectors
from delvec.errors import FormatError, InvalidArgumentError
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.action_columns import Kind
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import Storage

__all__ = ["ChangeFeed", "Changes", "change_feed"]

# A commit's time depends on those before it if clocks went wrong; this many are looked at.
_BEFORE: Final = 100
_BYTES_AT_ONCE: Final = 32 << 20
_KINDS: Final[tuple[Kind, ...]] = ("cdc", "add", "remove")
_ROWS_CHANGED: Final = tuple(f"numTargetRows{what}" for what in ("Inserted", "Updated", "Deleted"))


@dataclass(frozen=True)
class Changes:
    """Files whose rows are changes.

    Attributes:
        files: One entry for each version and change; a file may be in here several times.
        constants: What holds for all rows of an entry: kind of the change, version, time.
        marks: Vectors by the number of the entry; they are loaded at the first use.
    """

    files: FileSet
    constants: pa.Table
    marks: Mapping[int, Bitmap]


@dataclass(frozen=True)
class ChangeFeed:
    """The changes of some versions.

    Attributes:
        snapshot: The last version, by whose columns all files are read.
        whole: Files of which all rows that no vector has were inserted or deleted.
        partial: Files of which the rows that a vector has were inserted or deleted.
        recorded: Files that hold changes, with the kind of each in the column `_change_type`.
    """

    snapshot: Snapshot
    whole: Changes
    partial: Changes
    recorded: Changes


def change_feed(storage: Storage, start: int, end: int | None = None) -> ChangeFeed:
    """Plan the reading of the changes that versions made, both ends included.

    Args:
        storage: The table.
        start: The first version.
        end: The last one, by default the newest; one that is not there yet is taken for that.

    Raises:
        InvalidArgumentError: The range is empty or not there any more, a version of it did not
            record its changes, or its columns cannot be read as those of the last.
        FormatError: The log is damaged.
    """
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
    listed = list_commits(storage, max(0, start - _BEFORE))
    commits = [commit for commit in listed if start <= commit.first <= last]
    missing = sorted(set(range(start, last + 1)) - {commit.first for commit in commits})
    if missing:
        raise InvalidArgumentError(
            f"the changes of version {missing[0]} of {storage.root} cannot be read any more: its"
            " commit was cleaned up",
            hint="start at a later version; `delvec history` lists those that are there",
        )
    read = gather(lambda commit: _read(storage, commit), commits)
    require_recorded(storage.root, first, snapshot, read)
    times = CommitTimes(snapshot, [commit for commit in listed if commit.last <= last])
    collected = _Collected(snapshot)
    for batch in _batches(commits, read):
        collected.take([_Commit.of(commit, actions, times) for commit, actions in batch])
    return collected.feed()


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit of the range; the time is in microseconds since 1970."""

    actions: JsonActions
    version: int
    time: int
    changes_rows: bool

    @classmethod
    def of(cls, commit: LogFile, actions: JsonActions, times: CommitTimes) -> _Commit:
        info = _info(actions)
        moment = times.of_read(commit, info) * 1000
        return cls(actions, commit.first, moment, not _changes_nothing(info))


def _batches(
    commits: Sequence[LogFile], read: Sequence[JsonActions]
) -> Iterator[list[tuple[LogFile, JsonActions]]]:
    """Put small commits together: to parse one takes milliseconds, however small it is."""
    batch: list[tuple[LogFile, JsonActions]] = []
    size = 0
    for commit, actions in zip(commits, read, strict=True):
        if batch and size + len(actions.data) > _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append((commit, actions))
        size += len(actions.data)
    yield batch


def _read(storage: Storage, commit: LogFile) -> JsonActions:
    return JsonActions(storage.uri_of(commit.key), storage.read(commit.key))


def _info(actions: JsonActions) -> dict[str, Any]:
    found = (action.get("commitInfo") for action in actions.others())
    return next((info for info in found if isinstance(info, dict)), {})


def _changes_nothing(info: Mapping[str, Any]) -> bool:
    """Tell whether a MERGE only copied rows, which it does without saying so in its actions."""
    metrics = info.get("operationMetrics")
    return (
        info.get("operation") == "MERGE"
        and isinstance(metrics, dict)
        and all(metrics.get(name) == "0" for name in _ROWS_CHANGED)
    )


class _Collected:
    """The entries of all versions, by how they are read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._names = snapshot, snapshot.partition_names
        self._whole, self._recorded = _Entries(snapshot), _Entries(snapshot)
        self._gone, self._back = _Entries(snapshot), _Entries(snapshot)
        self._before, self._after = _Entries(snapshot), _Entries(snapshot)

    def take(self, commits: Sequence[_Commit]) -> None:
        """Take the changes of some versions."""
        recorded, adds, removes = (self._actions(commits, kind) for kind in _KINDS)
        self._recorded.add(recorded, None)
        silent = [commit.version for commit in commits if not commit.changes_rows]
        said = pa.array([*silent, *recorded[COMMIT_VERSION].to_pylist()], pa.int64())
        adds, removes = (
            side.filter(pc.invert(pc.is_in(side[COMMIT_VERSION], value_set=said)))
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
        had, has = (_array(side["deletionVector"]).is_valid() for side in (before, after))
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
        """Ask the store for sizes that the log does not have; removes need not say them."""
        sizes = entries["size"].to_pylist()
        if None not in sizes:
            return entries
        for number, path in enumerate(entries["path"].to_pylist()):
            if sizes[number] is None:
                storage, key = open_listed_file(self._snapshot.storage, path)
                sizes[number] = storage.size(key)
        place = entries.column_names.index("size")
        return entries.set_column(place, "size", pa.array(sizes, pa.int64()))

    def _actions(self, commits: Sequence[_Commit], kind: Kind) -> pa.Table:
        """Give the files of one kind of action that change rows, with partition values by name."""
        found, at = self._parsed(commits, kind)
        if kind != "cdc":
            changing = pc.fill_null(pc.struct_field(found, "dataChange"), True)
            found, at = found.filter(changing), at[changing.to_numpy(zero_copy_only=False)]
        fields = {field.name: pc.struct_field(found, field.name) for field in found.type}
        rows, texts = len(found), fields["partitionValues"]
        if kind == "remove" and self._names and texts.null_count:
            index = int(np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))[0])
            raise FormatError(
                "a commit removes a file without its partition values, so that the rows that it"
                " deleted cannot be read",
                path=commits[int(at[index])].actions.uri,
                found=repr(fields["path"][index].as_py()),
            )
        columns: dict[str, Any] = {
            "path": canonical(fields["path"], self._snapshot.table),
            "deletionVector": conformed(fields["deletionVector"], VECTOR)
            if "deletionVector" in fields
            else pa.nulls(rows, VECTOR),
            "size": fields["size"],
            "modificationTime": fields.get("modificationTime", pa.nulls(rows, pa.int64())),
            "stats": fields.get("stats", pa.nulls(rows, pa.string())),
        }
        if self._names:
            values = [pc.map_lookup(texts, name, "first") for name in self._names]
            columns["partitionValues"] = pa.StructArray.from_arrays(values, self._names)
        versions = np.array([commit.version for commit in commits], dtype=np.int64)
        times = np.array([commit.time for commit in commits], dtype=np.int64)
        columns[COMMIT_VERSION] = pa.array(versions[at])
        columns[COMMIT_TIMESTAMP] = pa.array(times[at]).cast(
            FEED_COLUMNS.field(COMMIT_TIMESTAMP).type
        )
        return pa.table(columns)

    def _parsed(
        self, commits: Sequence[_Commit], kind: Kind
    ) -> tuple[pa.StructArray, NDArray[np.int64]]:
        """Parse the actions of one kind of all commits together; tell of which each is."""
        whole = JsonActions(
            commits[0].actions.uri, b"\n".join(commit.actions.data for commit in commits)
        )
        try:
            found, lines = from_json(whole, kind, self._names)
        except FormatError:
            for commit in commits:  # for the error to name the right file
                from_json(commit.actions, kind, self._names)
            raise
        counts = [commit.actions.line_count for commit in commits]
        return found, np.repeat(np.arange(len(commits)), counts)[lines]

    def feed(self) -> ChangeFeed:
        storage, whole = self._snapshot.storage, self._whole.changes()
        numbers = np.flatnonzero(whole.files.has_vector).tolist()
        whole = replace(whole, marks=_Loaded(storage, whole.files, numbers))
        recorded = self._recorded.changes()
        return ChangeFeed(self._snapshot, whole, self._partial(), recorded)

    def _partial(self) -> Changes:
        """Join the entries of vectors that came, went or changed.

        Where both sides have one, both are loaded now: as a rule one side of the difference is
        empty, and to find that out costs less than to read the file for nothing.
        """
        storage = self._snapshot.storage
        befores, afters = (side.changes() for side in (self._before, self._after))
        old, new = (
            [vector or Bitmap() for vector in load_vectors(storage, side.files.data_files())]
            for side in (befores, afters)
        )
        gone = [later - earlier for earlier, later in zip(old, new, strict=True)]
        back = [earlier - later for earlier, later in zip(old, new, strict=True)]
        joined = _Entries(self._snapshot)
        for side in (self._gone, self._back):
            joined.extend(side)
        lazy = len(joined)
        marks: list[Bitmap] = []
        for side, vectors in ((self._after, gone), (self._before, back)):
            marked = [bool(vector) for vector in vectors]
            joined.extend(side, pa.array(marked, pa.bool_()))
            marks += [vector for vector in vectors if vector]
        changes = joined.changes()
        known = {lazy + number: vector for number, vector in enumerate(marks)}
        return replace(changes, marks=_Loaded(storage, changes.files, range(lazy), known))


class _Entries:
    """Entries that are gathered piece by piece."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        kinds = [
            *adds_schema(snapshot.partition_names),
            pa.field("stats", pa.string()),
            *FEED_COLUMNS,
        ]
        self._schema = pa.schema(kinds)
        self._pieces: list[pa.Table] = [self._schema.empty_table()]

    def __len__(self) -> int:
        return sum(piece.num_rows for piece in self._pieces)

    def add(self, entries: pa.Table, change: str | None) -> None:
        kinds = pa.repeat(pa.scalar(change, pa.string()), entries.num_rows)
        entries = entries.append_column(CHANGE_TYPE, kinds)
        self._pieces.append(entries.select(self._schema.names))

    def extend(self, other: _Entries, mask: pa.Array | None = None) -> None:
        table = other.table
        self._pieces.append(table if mask is None else table.filter(mask))

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self._pieces).combine_chunks()

    def changes(self) -> Changes:
        table, snapshot = self.table, self._snapshot
        constants = table.select(FEED_COLUMNS.names)
        paths, stats = (_array(table[name]) for name in ("path", "stats"))
        files = FileSet(
            snapshot.metadata,
            snapshot.table,
            paths,
            table.drop_columns(["path", "stats", *FEED_COLUMNS.names]),
            (_Statistics(stats),),
            np.zeros(table.num_rows, dtype=np.int32),
            np.arange(table.num_rows, dtype=np.int64),
        )
        return Changes(files, constants, {})


def _keys(entries: pa.Table) -> pa.Array:
    version = _array(entries[COMMIT_VERSION]).cast(pa.string())
    return pc.binary_join_element_wise(version, _array(entries["path"]), "\0")


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


@dataclass
class _Statistics:
    """The statistics of entries, as a source for their bounds."""

    texts: pa.Array

    def json_statistics(self) -> pa.Array | None:
        return self.texts

    def parsed_statistics(self, *path: str) -> pa.Array | None:  # noqa: ARG002
        return None

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        raise AssertionError(f"the entries {rows} are of several versions")

    def pieces(
        self, kind: Kind, partition_names: Sequence[str], more: Sequence[str] = ()
    ) -> Iterator[pa.StructArray]:
        raise AssertionError(f"no {kind} of {partition_names} {more} is written from changes")


class _Loaded(Mapping[int, Bitmap]):
    """Vectors by number: some known, the others loaded together when the first is asked for."""

    def __init__(
        self,
        storage: Storage,
        files: FileSet,
        numbers: Sequence[int],
        known: Mapping[int, Bitmap] | None = None,
    ) -> None:
        self._storage, self._files, self._numbers = storage, files, numbers
        self._known = dict(known or {})
        self._all = dict.fromkeys([*numbers, *self._known])

    @cached_property
    def _vectors(self) -> dict[int, Bitmap]:
        loaded = load_vectors(self._storage, self._files.data_files(self._numbers))
        pairs = zip(self._numbers, loaded, strict=True)
        return {number: vector or Bitmap() for number, vector in pairs} | self._known

    def __getitem__(self, number: int) -> Bitmap:
        return self._vectors[number]

    def __contains__(self, number: object) -> bool:
        return number in self._all

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)
