"""The parts of an inspection's report, numbers, names and times, whatever the table's format."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from delvec.documents import EPOCH
from delvec.report.rendering import doc, documented, required

_UNITS: Final = {"year": 365 * 86_400, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}


@documented()
class Share:
    """How much of a file, a partition or a group of files is deleted."""

    name: str = required("The path of the file, or the values of the partition; empty for a group.")
    files: int = required("How many files it is.")
    rows: int | None = required("Their rows, deleted ones included; None if not known of all.")
    deleted: int = required(
        "How many of these rows are deleted by vectors; with position delete files of this file"
        " alone, so many at most."
    )
    bytes: int = required("The size of the files.")

    @property
    def ratio(self) -> float:
        """The deleted share of the rows, from 0 to 1; 0 if the rows are not known."""
        return min(self.deleted / self.rows, 1.0) if self.rows else 0.0


@documented()
class Ranking:
    """Those with the most deleted rows, and all others as one."""

    shown: tuple[Share, ...] = doc("The first, most deleted rows first.", ())
    rest: Share | None = doc("The sum of the others; None if there are none.", None)
    others: int = doc("How many others there are.", 0)

    @property
    def has_deleted(self) -> bool:
        return any(each.deleted for each in self.shown)


@documented()
class AgeClass:
    """How many vectors are of an age."""

    label: str = required("The range.")
    vectors: int = required("How many vectors.")


@documented()
class SizeClass:
    """How many data files are smaller than a limit, and not smaller than the one before."""

    label: str = required("The range.")
    files: int = required("How many files.")
    bytes: int = required("Their size.")


@documented()
class VectorFigures:
    """The deletion vectors of a table."""

    count: int = doc("How many data files have one.", 0)
    rows: int = doc("The rows that they delete.", 0)
    bytes: int = doc("Their size.", 0)
    kinds: Mapping[str, int] = doc("How many of each kind: `u`, `p`, `i` (Delta), `puffin`.", dict)
    stored_in: int = doc("How many files hold them.", 0)
    oldest_ms: int | None = doc(
        "When the oldest was committed, in milliseconds since 1970; None if not known.", None
    )
    newest_ms: int | None = doc("When the newest was committed, of those that are known.", None)
    ages: tuple[AgeClass, ...] = doc("How many of each age.", ())


@documented()
class PositionFigures:
    """The position delete files of an Iceberg table."""

    files: int = doc("How many there are.", 0)
    positions: int = doc(
        "The positions in them. As many rows are deleted at most: several files may name the"
        " same row, and some a data file that is gone.",
        0,
    )
    bytes: int = doc("Their size.", 0)
    oldest_ms: int | None = doc("When the oldest was committed; None if not known.", None)


@documented()
class StagingBranch:
    """A staging branch of delvec's in an Iceberg table."""

    name: str = required("Its name.")
    snapshots: int = required("Its snapshots with changes that `main` has not taken over.")
    keys: int | None = required(
        "The equality deletes at its newest snapshot, by the summary; None if that lacks them."
    )
    problem: str | None = doc("Why it cannot be told what waits; None if it can.", None)


@documented()
class EqualityFigures:
    """The equality deletes of an Iceberg table, which wait to be resolved."""

    files: int = doc("Equality delete files.", 0)
    vectors: int = doc("Equality delete vectors (EDVs) that stand for themselves.", 0)
    keys: int = doc("The keys in both.", 0)
    bytes: int = doc("Their size.", 0)
    oldest_ms: int | None = doc("When the oldest was committed; None if not known.", None)
    columns: tuple[tuple[str, ...], ...] = doc('The key columns of each kind, as `("id",)`.', ())
    staging: tuple[StagingBranch, ...] = doc("The staging branches, with what waits there.", ())


@documented()
class Moment:
    """The state after one commit."""

    at: int = required("The version (Delta) or the id of the snapshot (Iceberg).")
    time_ms: int = required("When it was committed.")
    operation: str = required("What was done.")
    files: int | None = required("Data files; None if not known.")
    vectors: int | None = required("Deletion vectors of Delta; all delete files of Iceberg.")
    deleted: int | None = required("Rows that are deleted by vectors or position deletes.")
    keys: int | None = doc("Keys of equality deletes.", None)


@documented()
class Rewritten:
    """What a rewrite of files without their deleted rows does to the table's size.

    Files that are replaced stay until a vacuum, or until their snapshots expire, so the table is
    larger by `written` first, and smaller by `freed` in the end.
    """

    files: int = doc("Files that are replaced.", 0)
    replaced: int = doc("Their size.", 0)
    written: int = doc("The size of the new files, estimated by the share of live rows.", 0)

    @property
    def freed(self) -> int:
        """The bytes that are freed when the replaced files are gone."""
        return max(0, self.replaced - self.written)


@documented()
class SmallFiles:
    """Data files that are small, and what putting them together would do."""

    count: int = doc("Files below the limit.", 0)
    below: int = doc("The limit in bytes.", 0)
    before: int = doc("Files that a compaction would rewrite.", 0)
    after: int = doc("Files that it would write, about.", 0)
    alone: Rewritten = doc("What that does to the table's size.", Rewritten)
    with_deleted: Rewritten = doc(
        "What it does if it rewrites all files with deleted rows as well; for Delta.", Rewritten
    )


@documented()
class Freed:
    """Bytes that maintenance would free."""

    rewrite: Rewritten = doc("By a rewrite of all files with deleted rows, in the end.", Rewritten)
    vacuum: int | None = doc("By deleting unneeded files now; None if not looked for.", None)
    vacuum_files: int = doc("How many files these are.", 0)
    later: int | None = doc(
        "By deleting files that are still retained, after that time; None if not looked for.", None
    )
    retention_hours: float | None = doc("That time.", None)
    first_kept: int | None = doc(
        "The oldest version that a vacuum leaves whole: versions before it lose files; None if"
        " no version does, or if it was not looked for.",
        None,
    )
    first_kept_ms: int | None = doc("When that version was committed.", None)
    why_unknown: str | None = doc("Why it was not looked for.", None)


@documented()
class LogFigures:
    """What opening a table has to read, and how far back it reaches."""

    versions: int = doc(
        "Commits in the log up to this version (Delta), or retained snapshots (Iceberg).", 0
    )
    oldest: int | None = doc("The version of the oldest of these commits of Delta.", None)
    checkpoint: int | None = doc("The version of Delta's newest checkpoint; None if none.", None)
    since_checkpoint: int = doc("Commits after it.", 0)
    interval: int = doc("After how many commits the table wants a checkpoint.", 0)
    oldest_ms: int | None = doc("When the oldest retained snapshot of Iceberg was committed.", None)
    max_age_ms: int | None = doc("The age at which snapshots of Iceberg expire.", None)


@documented()
class Advice:
    """Something to run next."""

    action: str = required("What it is, in a word.")
    why: str = required("Why, with the numbers and the limit that was passed.")
    arguments: tuple[str, ...] = required(
        "The arguments of the command `delvec` that does it; those that say how the table is"
        " reached, such as `--warehouse`, are not among them."
    )
    call: str = required("The same in Python, for a table `t`.")
    command: str = doc(
        "The command line that does it, as a shell takes it. `delvec inspect` gives it, with"
        " the options that it was called with; empty in Python.",
        "",
    )


def moment(time_ms: int | None) -> str:
    """Return a time in UTC.

    >>> moment(1_700_000_000_000), moment(None)
    ('2023-11-14 22:13 UTC', 'unknown')
    """
    if time_ms is None:
        return "unknown"
    try:
        return f"{EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%d %H:%M} UTC"
    except OverflowError:  # what a broken writer put there
        return "unknown"


def elapsed(since_ms: int, now_ms: int) -> str:
    """Return how long ago a time is, in the largest unit that fits.

    >>> elapsed(0, 90_000), elapsed(0, 86_400_000), elapsed(5, 0)
    ('1 minute', '1 day', 'less than a second')
    """
    seconds = (now_ms - since_ms) // 1000
    for unit, length in _UNITS.items():
        if seconds >= length:
            count = seconds // length
            return f"{count:,} {unit}" + ("" if count == 1 else "s")
    return "less than a second"
