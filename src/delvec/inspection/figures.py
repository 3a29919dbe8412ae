"""The parts of an inspection's report: numbers and names, whatever the format of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Advice",
    "AgeClass",
    "EqualityFigures",
    "Freed",
    "LogFigures",
    "Moment",
    "PositionFigures",
    "Ranking",
    "Rewritten",
    "Share",
    "SizeClass",
    "SmallFiles",
    "StagingBranch",
    "VectorFigures",
]


@dataclass(frozen=True)
class Share:
    """How much of a file, a partition or a group of files is deleted.

    Attributes:
        name: The path of the file, or the values of the partition; empty for a group.
        files: How many files it is.
        rows: Their rows, deleted ones included; None if not known of all.
        deleted: How many of these rows are deleted by vectors; with position delete files of this
            file alone, so many at most.
        bytes: The size of the files.
    """

    name: str
    files: int
    rows: int | None
    deleted: int
    bytes: int

    @property
    def ratio(self) -> float:
        """The deleted share of the rows, from 0 to 1; 0 if the rows are not known."""
        return min(self.deleted / self.rows, 1.0) if self.rows else 0.0


@dataclass(frozen=True)
class Ranking:
    """Those with the most deleted rows, and all others as one.

    Attributes:
        shown: The first, most deleted rows first.
        rest: The sum of the others; None if there are none.
        others: How many others there are.
    """

    shown: tuple[Share, ...] = ()
    rest: Share | None = None
    others: int = 0


@dataclass(frozen=True)
class AgeClass:
    """How many vectors are of an age."""

    label: str
    vectors: int


@dataclass(frozen=True)
class SizeClass:
    """How many data files are smaller than a limit, and not smaller than the one before.

    Attributes:
        label: The range.
        files: How many files.
        bytes: Their size.
    """

    label: str
    files: int
    bytes: int


@dataclass(frozen=True)
class VectorFigures:
    """The deletion vectors of a table.

    Attributes:
        count: How many data files have one.
        rows: The rows that they delete.
        bytes: Their size.
        kinds: How many of each kind: `u`, `p` and `i` of Delta, `puffin` of Iceberg.
        stored_in: How many files hold them.
        oldest_ms: When the oldest was committed, in milliseconds since 1970; None if not known.
        newest_ms: When the newest was committed, of those whose commit is known.
        ages: How many of each age.
    """

    count: int = 0
    rows: int = 0
    bytes: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    stored_in: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    ages: tuple[AgeClass, ...] = ()


@dataclass(frozen=True)
class PositionFigures:
    """The position delete files of an Iceberg table.

    Attributes:
        files: How many there are.
        positions: The positions in them. As many rows are deleted at most: several files may name
            the same row, and some a data file that is gone.
        bytes: Their size.
        oldest_ms: When the oldest was committed; None if not known.
    """

    files: int = 0
    positions: int = 0
    bytes: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True)
class StagingBranch:
    """A staging branch of delvec's in an Iceberg table.

    Attributes:
        name: Its name.
        snapshots: Its snapshots with changes that `main` has not taken over.
        keys: The equality deletes at its newest snapshot, by the summary; None if that lacks them.
        problem: Why it cannot be told what waits; None if it can.
    """

    name: str
    snapshots: int
    keys: int | None
    problem: str | None = None


@dataclass(frozen=True)
class EqualityFigures:
    """The equality deletes of an Iceberg table, which wait to be resolved.

    Attributes:
        files: Equality delete files.
        vectors: Equality delete vectors (EDVs) that stand for themselves.
        keys: The keys in both.
        bytes: Their size.
        oldest_ms: When the oldest was committed; None if not known.
        columns: The key columns of each kind of delete, such as `("id",)`.
        staging: The staging branches, with what waits there.
    """

    files: int = 0
    vectors: int = 0
    keys: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    columns: tuple[tuple[str, ...], ...] = ()
    staging: tuple[StagingBranch, ...] = ()


@dataclass(frozen=True)
class Moment:
    """The state after one commit.

    Attributes:
        at: The version (Delta) or the id of the snapshot (Iceberg).
        time_ms: When it was committed.
        operation: What was done.
        files: Data files; None if not known.
        vectors: Deletion vectors of Delta; delete files of all kinds of Iceberg.
        deleted: Rows that are deleted by vectors or position deletes.
        keys: Keys of equality deletes.
    """

    at: int
    time_ms: int
    operation: str
    files: int | None
    vectors: int | None
    deleted: int | None
    keys: int | None = None


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite of files without their deleted rows does to the table's size.

    Files that are replaced stay until a vacuum, or until their snapshots expire, so the table is
    larger by `written` first, and smaller by `freed` in the end.

    Attributes:
        files: Files that are replaced.
        replaced: Their size.
        written: The size of the new files, estimated by the share of live rows.
    """

    files: int = 0
    replaced: int = 0
    written: int = 0

    @property
    def freed(self) -> int:
        """The bytes that are freed when the replaced files are gone."""
        return max(0, self.replaced - self.written)


@dataclass(frozen=True)
class SmallFiles:
    """Data files that are small, and what putting them together would do.

    Attributes:
        count: Files below the limit.
        below: The limit in bytes.
        before: Files that a compaction would rewrite.
        after: Files that it would write, about.
        alone: What that does to the table's size.
        with_deleted: What it does if it rewrites all files with deleted rows as well; for Delta.
    """

    count: int = 0
    below: int = 0
    before: int = 0
    after: int = 0
    alone: Rewritten = field(default_factory=Rewritten)
    with_deleted: Rewritten = field(default_factory=Rewritten)


@dataclass(frozen=True)
class Freed:
    """Bytes that maintenance would free.

    Attributes:
        rewrite: By a rewrite of all files with deleted rows, once what it replaces is deleted.
        vacuum: By deleting files that nothing needs any more, now; None if it was not looked for.
        vacuum_files: How many files these are.
        later: By deleting files that are there and still retained, when that time is over; None if
            it was not looked for.
        retention_hours: That time.
        first_kept: The oldest version that a vacuum leaves whole: versions before it lose files;
            None if no version does, or if it was not looked for.
        first_kept_ms: When that version was committed.
        why_unknown: Why it was not looked for.
    """

    rewrite: Rewritten = field(default_factory=Rewritten)
    vacuum: int | None = None
    vacuum_files: int = 0
    later: int | None = None
    retention_hours: float | None = None
    first_kept: int | None = None
    first_kept_ms: int | None = None
    why_unknown: str | None = None


@dataclass(frozen=True)
class LogFigures:
    """What opening a table has to read, and how far back it reaches.

    Attributes:
        versions: Commits that are in the log up to this version (Delta; older ones may have been
            cleaned up), or retained snapshots (Iceberg).
        oldest: The version of the oldest of these commits of Delta.
        checkpoint: The version of the newest checkpoint of Delta; None if there is none.
        since_checkpoint: Commits after it.
        interval: After how many commits the table wants a checkpoint.
        oldest_ms: When the oldest retained snapshot of Iceberg was committed.
        max_age_ms: The age at which snapshots of Iceberg expire.
    """

    versions: int = 0
    oldest: int | None = None
    checkpoint: int | None = None
    since_checkpoint: int = 0
    interval: int = 0
    oldest_ms: int | None = None
    max_age_ms: int | None = None


@dataclass(frozen=True)
class Advice:
    """Something to run next.

    Attributes:
        action: What it is, in a word.
        why: Why, with the numbers and the limit that was passed.
        arguments: The arguments of the command `delvec` that does it; those that say how the table
            is reached, such as `--warehouse`, are not among them.
        call: The same in Python, for a table `t`.
        command: The command line that does it, as a shell takes it. `delvec inspect` gives it, with
            the options that it was called with; empty in Python.
    """

    action: str
    why: str
    arguments: tuple[str, ...]
    call: str
    command: str = ""
