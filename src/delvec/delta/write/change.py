"""A change of a table before it is a commit: files added and removed, new vectors, metadata.

`Base` is the version that it is based on, `Operation` how the history shows it.

Memory grows with the files that change: their entries in the log, and the bitmaps of new vectors.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delvec.delta.log.actions import JsonActions
from delvec.delta.log.paths import commit_key
from delvec.delta.schema.metadata import Property
from delvec.delta.skipping.predicate import Always, Predicate
from delvec.delta.write.row_tracking import ROW_TRACKING_DOMAIN, high_water_mark
from delvec.documents import LONG_MAX

if TYPE_CHECKING:
    from delvec.delta.log.file_set import FileEntry, FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.delta.write.conflicts import Winner
    from delvec.storage import Storage
    from delvec.vector import Bitmap, Descriptor


@dataclass(frozen=True)
class VectorUpdate:
    """A new deletion vector for a live file that keeps some of its rows."""

    file: FileEntry  # with its old vector
    rows: int  # the physical ones
    vector: Bitmap | None  # earlier deletes included; None if only storage has the vector
    descriptor: Descriptor | None = None  # where the new vector is stored; None before

    @property
    def cardinality(self) -> int:
        """The number of deleted rows, earlier deletes included."""
        if self.vector is not None:
            return self.vector.cardinality
        if self.descriptor is None:
            raise AssertionError("a vector is in memory or stored")
        return self.descriptor.cardinality


class RowMap(typing.Protocol):
    """Where rows of rewritten files went."""

    def moved(self, path: str, positions: Bitmap) -> Bitmap | None:
        """Return the positions of rows in the new file; None if they cannot be told for sure."""


@dataclass(frozen=True)
class Rewrite:
    """Files that one new file replaces, with the same rows."""

    files: tuple[FileEntry, ...]
    added: FileEntry | None  # None if they have no live rows
    rows: int  # of the new file
    places: RowMap | None = None  # for deletes that others commit meanwhile; None if unknown
    deleted: VectorUpdate | None = None  # of the new file, if rows were deleted meanwhile


@dataclass(frozen=True)
class PlainListing:
    """Files of a table's folder that a source lists by itself, as `spark.read.parquet` does."""

    table: str  # in the spelling of the other names
    roots: tuple[str, ...]  # the files and folders that it was given
    names: frozenset[str]  # full names of the files that it found there, unescaped


@dataclass(frozen=True)
class SourceRead:
    """What a source of rows has read of the very table that these are written to.

    `files` are those of the version; None if they are not known, or if it is certain only that it
    has read this version or a later one. `predicate` returns which of their rows it uses; it is
    called if a commit has to be compared with it.
    """

    version: int
    files: FileSet | None = None
    predicate: Callable[[], Predicate] = Always
    time_zone: str = "UTC"  # of timestamps that name none
    is_fixed: bool = True  # else it reads the newest version each time
    listing: PlainListing | None = None  # files that it reads without the log


@dataclass(frozen=True)
class ReadSet:
    """The rows and files that a change depends on, for the detection of conflicts.

    With `row_wise`, the change stays valid if other rows of these files are deleted: each row is
    changed independently of the others. Without, unchanged rows matter, as in a MERGE that does not
    insert a source row because it matches one. What was read is not known (`is_known`) to a data
    source: the rows that it writes may come from the table itself.
    """

    predicate: Predicate | None = None  # the rows that it searched for; None for an append
    files: frozenset[str] = frozenset()  # paths; only needed where `row_wise` is false
    row_wise: bool = True
    time_zone: str = "UTC"  # of timestamps that name none
    sources: tuple[SourceRead, ...] = ()  # what its own source has read of the very table
    version: bool = False  # depends on the version that it becomes: any commit is a conflict
    is_known: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether it is known that nothing of the table was read."""
        return self.is_known and self.predicate is None and not self.sources


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """A transaction identifier (`txn` action): the last version that an application committed."""

    app_id: str
    version: int


@dataclass(frozen=True)
class Operation:
    """How the history shows a commit, and what decides whether others conflict with it."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)  # what the caller asked for
    metrics: Mapping[str, int] = field(default_factory=dict)  # by Delta's names
    reads: ReadSet = ReadSet()
    keeps_row_ids: bool = True  # of copied rows
    transaction: AppTransaction | None = None
    user_metadata: str | None = None


@dataclass(frozen=True)
class Change:
    """What one commit does to the files and the metadata of a table.

    None of the files of `rewrites`, whose rows are moved to new ones as they are, is in `added` and
    `removed`. A change that `restores` brings files back with the vectors that they had; so vectors
    may delete fewer rows than before, and may be of any form. `tombstones` are of files that are no
    data files, such as those of vectors: others than delvec shall keep them until they expire.
    """

    operation: Operation
    vector_updates: tuple[VectorUpdate, ...] = ()
    vector_files: Mapping[str, int] = field(default_factory=dict)  # sizes of new files by path
    removed: tuple[FileEntry, ...] = ()
    added: tuple[Mapping[str, Any], ...] = ()  # bodies of the add actions of new files
    change_files: tuple[Mapping[str, Any], ...] = ()  # bodies of cdc actions
    protocol: Protocol | None = None  # None if it stays
    metadata: Metadata | None = None  # None if it stays
    data_change: bool = True  # else added and removed files say to streams that no row changes
    rewrites: tuple[Rewrite, ...] = ()
    re_added: tuple[Mapping[str, Any], ...] = ()  # same path and vector, other statistics
    restores: bool = False
    domains: Mapping[str, str | None] = field(default_factory=dict)  # None removes a domain
    tombstones: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds rows and has read none."""
        changes = (self.vector_updates, self.gone_files, self.metadata, self.re_added)
        return self.operation.reads.is_empty and not any(changes)

    @property
    def new_files(self) -> tuple[Mapping[str, Any], ...]:
        """Bodies of the add actions of all new files, without the vectors that some got."""
        return (*self.added, *(file.add for file in self.moved_to))

    @property
    def moved_to(self) -> tuple[FileEntry, ...]:
        """The new files of rewrites."""
        return tuple(each.added for each in self.rewrites if each.added is not None)

    @property
    def gone_files(self) -> tuple[FileEntry, ...]:
        """All files that it removes."""
        return (*self.removed, *(file for each in self.rewrites for file in each.files))

    @property
    def all_vectors(self) -> tuple[VectorUpdate, ...]:
        """All new vectors, those of new files last."""
        moved = (each.deleted for each in self.rewrites if each.deleted is not None)
        return (*self.vector_updates, *moved)

    def with_descriptors(self, descriptors: Sequence[Descriptor | None]) -> Change:
        """Return the change with the places of `all_vectors`, now that they are stored."""
        placed = iter(descriptors)
        updates = tuple(replace(each, descriptor=next(placed)) for each in self.vector_updates)
        rewrites = tuple(
            each
            if each.deleted is None
            else replace(each, deleted=replace(each.deleted, descriptor=next(placed)))
            for each in self.rewrites
        )
        return replace(self, vector_updates=updates, rewrites=rewrites)


@dataclass(frozen=True)
class Base:
    """A version of a table, or -1 before it is created, and what the next commit needs of it."""

    storage: Storage
    version: int
    protocol: Protocol
    metadata: Metadata
    row_id_mark: int = -1  # the high-water mark
    timestamp_ms: int = 0  # the in-commit timestamp; 0 if the table has none

    @classmethod
    def of(cls, snapshot: Snapshot) -> Base:
        """Return a snapshot as a base; reads its commit if that has an in-commit timestamp."""
        storage, key, timestamp = snapshot.storage, commit_key(snapshot.version), 0
        mark = high_water_mark(snapshot.domains.get(ROW_TRACKING_DOMAIN))
        if snapshot.version >= 0 and snapshot.metadata.is_on(Property.ENABLE_IN_COMMIT_TIMESTAMPS):
            timestamp = _timestamp(JsonActions(storage.uri_of(key), storage.read(key)).others())
        state = snapshot.protocol, snapshot.metadata
        return cls(storage, snapshot.version, *state, mark, timestamp)

    def after(self, winner: Winner) -> Base:
        """Return the next version, which another writer committed with the same metadata."""
        marks = [
            high_water_mark(domain.get("configuration"))
            for action in winner.others
            if (domain := action.get("domainMetadata"))
            and domain.get("domain") == ROW_TRACKING_DOMAIN
        ]
        return replace(
            self,
            version=winner.version,
            row_id_mark=max([self.row_id_mark, *marks]),
            timestamp_ms=max(self.timestamp_ms, _timestamp(winner.others)),
        )


def _timestamp(actions: Iterable[dict[str, Any]]) -> int:
    """Return the in-commit timestamp of a commit; 0 if it has none."""
    infos = (action["commitInfo"] for action in actions if action.get("commitInfo"))
    info: dict[str, Any] = next(infos, {})
    value = info.get("inCommitTimestamp")
    return value if type(value) is int and 0 <= value <= LONG_MAX else 0
