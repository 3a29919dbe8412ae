"""What one commit is to do to a table, before it is a commit.

Memory grows with the files that change: their entries in the log, and the bitmaps of new vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.delta.log.file_set import FileEntry
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.vector import Bitmap, Descriptor

__all__ = ["Change", "Reads", "Transaction", "VectorUpdate"]


@dataclass(frozen=True)
class VectorUpdate:
    """A live file of which more rows are deleted than before, but not all.

    Attributes:
        file: The file and its old vector.
        rows: Its physical rows.
        vector: All rows that are deleted now, the old ones included; None if only storage has it.
        descriptor: Where the new vector is, once it is stored.
    """

    file: FileEntry
    rows: int
    vector: Bitmap | None
    descriptor: Descriptor | None = None

    @property
    def cardinality(self) -> int:
        """How many rows are deleted now."""
        if self.vector is not None:
            return self.vector.cardinality
        if self.descriptor is None:
            raise AssertionError("a vector is in memory or stored")
        return self.descriptor.cardinality


@dataclass(frozen=True)
class Reads:
    """What a change depends on.

    Attributes:
        predicate: The rows that it looked for; None if it looked at no rows at all.
        files: Paths of the files that it looked into, where `row_wise` is false.
        row_wise: Whether a delete of rows that it does not change leaves it as it is: true where
            each row is changed by itself, false where rows that are left alone matter, as the
            partners of source rows that are therefore not inserted.
        time_zone: How timestamps without a zone are read.
    """

    predicate: Predicate | None = None
    files: frozenset[str] = frozenset()
    row_wise: bool = True
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Transaction:
    """A mark by which an application recognises what it has committed already."""

    app_id: str
    version: int


@dataclass(frozen=True)
class Change:
    """A commit to be.

    Attributes:
        operation: Delta's name of it, such as `DELETE`.
        parameters: What the history shows of it.
        metrics: Counts by Delta's names.
        reads: What it depends on.
        vector_updates: Files that get a new vector.
        vector_files: Files of vectors that were written for it, with their bytes.
        removed: Files that go.
        added: Bodies of the add actions of new files.
        change_files: Bodies of the cdc actions of new change files.
        protocol: The new protocol, if it changes.
        metadata: The new metadata, if it changes.
        transaction: The application's mark.
        user_metadata: A text of the user's for the history.
        keeps_row_ids: Whether rows that were copied kept their ids.
        shrinks: Whether vectors may get smaller, as when an old version is restored.
    """

    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: Reads = Reads()
    vector_updates: tuple[VectorUpdate, ...] = ()
    vector_files: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[FileEntry, ...] = ()
    added: tuple[Mapping[str, Any], ...] = ()
    change_files: tuple[Mapping[str, Any], ...] = ()
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transaction: Transaction | None = None
    user_metadata: str | None = None
    keeps_row_ids: bool = True
    shrinks: bool = False

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds rows, whatever the table holds."""
        return self.reads.predicate is None and not (
            self.vector_updates or self.removed or self.metadata
        )
