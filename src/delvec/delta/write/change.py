"""A change of a table before it is a commit: files added and removed, new vectors, metadata.

Memory grows with the files that change: their entries in the log, and the bitmaps of new vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from delvec.delta.pruning.predicate import Always

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from delvec.delta.log.file_set import FileEntry, FileSet
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol as TableProtocol
    from delvec.vector import Bitmap, Descriptor

__all__ = [
    "AppTransaction",
    "Change",
    "PlainListing",
    "ReadSet",
    "Rewrite",
    "RowMap",
    "SourceRead",
    "VectorUpdate",
]


@dataclass(frozen=True)
class VectorUpdate:
    """A new deletion vector for a live file that keeps some of its rows.

    Attributes:
        file: The file, with its old vector.
        rows: Its physical rows.
        vector: All deleted rows, earlier deletes included; None if only storage has the vector.
        descriptor: Where the new vector is stored; None before.
    """

    file: FileEntry
    rows: int
    vector: Bitmap | None
    descriptor: Descriptor | None = None

    @property
    def cardinality(self) -> int:
        """The number of deleted rows, earlier deletes included."""
        if self.vector is not None:
            return self.vector.cardinality
        if self.descriptor is None:
            raise AssertionError("a vector is in memory or stored")
        return self.descriptor.cardinality


class RowMap(Protocol):
    """Where rows of rewritten files went."""

    def moved(self, path: str, positions: Bitmap) -> Bitmap | None:
        """Return the positions of rows in the new file; None if they cannot be told for sure.

        Args:
            path: One of the rewritten files.
            positions: Rows of it that were live when it was read.
        """


@dataclass(frozen=True)
class Rewrite:
    """Files that one new file replaces, with the same rows.

    Attributes:
        files: The files.
        added: The new file; None if they have no live rows.
        rows: How many rows the new file has.
        places: Where the rows went, for deletes that others commit meanwhile; None if unknown.
        deleted: The vector of the new file, if rows of it were deleted meanwhile.
    """

    files: tuple[FileEntry, ...]
    added: FileEntry | None
    rows: int
    places: RowMap | None = None
    deleted: VectorUpdate | None = None


@dataclass(frozen=True)
class PlainListing:
    """Files of a table's folder that a source lists by itself, as `spark.read.parquet` does.

    Attributes:
        table: The table, in the spelling of the other names.
        roots: The files and folders that it was given.
        names: The full names of the files that it found there, unescaped.
    """

    table: str
    roots: tuple[str, ...]
    names: frozenset[str]


@dataclass(frozen=True)
class SourceRead:
    """What a source of rows has read of the very table that these are written to.

    Attributes:
        version: The version.
        files: The files of that version; None if they are not known, or if it is certain only that
            it has read this version or a later one.
        predicate: Returns which rows it uses, of these files; called if a commit has to be
            compared with it.
        time_zone: The time zone of timestamps that name none.
        is_fixed: Whether it reads this version for good; else it reads the newest one each time.
        listing: The files that it reads as plain files, if the log has not told it which.
    """

    version: int
    files: FileSet | None = None
    predicate: Callable[[], Predicate] = Always
    time_zone: str = "UTC"
    is_fixed: bool = True
    listing: PlainListing | None = None


@dataclass(frozen=True)
class ReadSet:
    """The rows and files that a change depends on, for the detection of conflicts.

    Attributes:
        predicate: The rows that it searched for; None if it read none, as an append.
        files: Paths of the files that it read; only needed where `row_wise` is false.
        row_wise: Whether the change stays valid if other rows of these files are deleted. True
            where each row is changed independently of the others. False where unchanged rows
            matter, as in a MERGE that does not insert a source row because it matches one.
        time_zone: The time zone of timestamps that name none.
        sources: What its own source has read of the table, as in a MERGE of a table with rows of
            the same table.
        version: Whether it depends on the version that it becomes: any other commit is a conflict.
        is_known: Whether it is known what was read: a data source is not told where the rows that
            it writes come from, so that they may come from the table itself.
    """

    predicate: Predicate | None = None
    files: frozenset[str] = frozenset()
    row_wise: bool = True
    time_zone: str = "UTC"
    sources: tuple[SourceRead, ...] = ()
    version: bool = False
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
class Change:
    """What one commit does to a table.

    Attributes:
        operation: Its name in the history, such as `DELETE`.
        parameters: Its parameters in the history.
        metrics: Its counts in the history, by Delta's names.
        reads: What it depends on.
        vector_updates: Files that get a new vector.
        vector_files: The sizes of the files that hold the new vectors, by path.
        removed: Files to remove.
        added: Bodies of the add actions of new files.
        change_files: Bodies of the cdc actions of new change files.
        protocol: The new protocol, if it changes.
        metadata: The new metadata, if it changes.
        transaction: The transaction identifier of the writing application.
        user_metadata: A string of the user for the history.
        keeps_row_ids: Whether copied rows keep their row ids.
        data_change: Whether rows change; if not, added and removed files say so to streams.
        rewrites: Files whose rows are moved to new ones, as they are; none of these files is in
            `added` and `removed`.
        entered_anew: Bodies of add actions of live files that keep path and vector, and get
            other statistics.
        restores: Whether files come back with the vectors that they had; so vectors may delete
            fewer rows than before, and may be of any form.
        domains: New configurations of domains by name; None removes a domain.
        tombstones: Bodies of remove actions of files that are no data files, such as those of
            vectors: others than delvec shall keep them until they expire.
    """

    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: ReadSet = ReadSet()
    vector_updates: tuple[VectorUpdate, ...] = ()
    vector_files: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[FileEntry, ...] = ()
    added: tuple[Mapping[str, Any], ...] = ()
    change_files: tuple[Mapping[str, Any], ...] = ()
    protocol: TableProtocol | None = None
    metadata: Metadata | None = None
    transaction: AppTransaction | None = None
    user_metadata: str | None = None
    keeps_row_ids: bool = True
    data_change: bool = True
    rewrites: tuple[Rewrite, ...] = ()
    entered_anew: tuple[Mapping[str, Any], ...] = ()
    restores: bool = False
    domains: Mapping[str, str | None] = field(default_factory=dict)
    tombstones: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds rows and has read none."""
        changes = (self.vector_updates, self.gone_files, self.metadata, self.entered_anew)
        return self.reads.is_empty and not any(changes)

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
