"""What a consolidation of equality deletes did, or would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, listed, size
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["ConsolidateReport", "UnmergedDeletes"]

_SHOWN = 10


@dataclass(frozen=True)
class UnmergedDeletes:
    """Equality deletes of the same key and scope that stay apart.

    Attributes:
        columns: The key columns.
        scope: The partition that they apply to, or `global`.
        deletes: How many are left.
        reason: Why, in a few words.
    """

    columns: tuple[str, ...]
    scope: str
    deletes: int
    reason: str


@dataclass(frozen=True)
class ConsolidateReport(Rendered):
    """What a consolidation of equality deletes did.

    >>> print(ConsolidateReport("lake.db.orders", "main", 7, files_before=40, files_after=1))
    CONSOLIDATE DELETES of lake.db.orders: snapshot 7 of main
      equality-delete files  40 -> 1

    Attributes:
        table: The name of the table.
        branch: The branch.
        snapshot_id: The snapshot that was committed; None if there was nothing to do.
        dry_run: Whether nothing was written. What is `after` is then expected, and the bytes and
            keys of merged deletes are not known.
        files_before: Ordinary equality-delete files.
        files_after: Those that are left.
        vectors_before: Equality delete vectors in the manifests.
        vectors_after: Those that are left.
        keys_before: Keys in all of these; those of several deletes are counted for each.
        keys_after: Keys that are left; None in a dry run.
        bytes_before: The size of the files.
        bytes_after: The size of what is left; None in a dry run.
        merged: Deletes that became fewer.
        repaired: Vectors that became ordinary files, since stock readers cannot read them and
            the branch is not a staging branch.
        dangling: Deletes that were removed since they apply to no data file.
        unmerged: Deletes of the same key and scope that stay apart.
        forms: In which form keys were written and why, in sentences.
        conflicts: Concurrent commits after which it was planned anew.
        phases: Seconds by phase.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    dry_run: bool = False
    files_before: int = 0
    files_after: int = 0
    vectors_before: int = 0
    vectors_after: int = 0
    keys_before: int = 0
    keys_after: int | None = 0
    bytes_before: int = 0
    bytes_after: int | None = 0
    merged: int = 0
    repaired: int = 0
    dangling: int = 0
    unmerged: tuple[UnmergedDeletes, ...] = ()
    forms: tuple[str, ...] = ()
    conflicts: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return {**document(self), "unmerged": [asdict(each) for each in self.unmerged]}

    def _lines(self) -> Iterator[Line]:
        details = [*self.forms[:_SHOWN]]
        for each in self.unmerged[:_SHOWN]:
            key = ", ".join(each.columns)
            many = counted(each.deletes, "delete")
            details.append(f"{many} by {key} ({each.scope}) stay apart: {each.reason}")
        if left := max(len(self.unmerged) - _SHOWN, 0) + max(len(self.forms) - _SHOWN, 0):
            details.append(f"… and {left:,} more")
        counts = {"merged": self.merged, "dangling": self.dangling, "made readable": self.repaired}
        return Summary(
            f"CONSOLIDATE DELETES of {self.table}: {self._outcome()}",
            {
                "equality-delete files": _change(self.files_before, self.files_after),
                "vectors": _change(self.vectors_before, self.vectors_after),
                "keys": _change(self.keys_before, self.keys_after),
                "size": _sizes(self.bytes_before, self.bytes_after),
                "deletes": listed(**counts),
                "concurrent commits": f"{self.conflicts}" if self.conflicts else "",
            },
            self.phases,
            details=tuple(details),
        ).lines()

    def _outcome(self) -> str:
        if self.dry_run:
            return f"{self.branch}, dry run, nothing was written"
        if self.snapshot_id is None:
            return f"{self.branch}, nothing to do"
        return f"snapshot {self.snapshot_id} of {self.branch}"


def _change(before: int, after: int | None) -> str:
    if after is None or (not before and not after):
        return f"{before:,}" if before else ""
    return f"{before:,} -> {after:,}"


def _sizes(before: int, after: int | None) -> str:
    if not before:
        return ""
    return size(before) if after is None else f"{size(before)} -> {size(after)}"
