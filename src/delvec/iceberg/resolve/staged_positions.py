"""Rows of the target that a staging branch deletes by position, or by rewriting their data files.

They are named by data file, so the target must still have it; keys would find them anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from delvec.errors import PlanError
from delvec.iceberg.by_condition.position_vectors import earlier_positions
from delvec.iceberg.client.position_deletes import find_position_deletes
from delvec.iceberg.resolve.verify import live_rows
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.resolve.choices import Choices
    from delvec.iceberg.resolve.staged import Staged
    from delvec.vector import Bitmap

__all__ = ["StagedPositions"]


@dataclass(frozen=True, eq=False)
class StagedPositions:
    """What a staging branch says of data files of the target.

    Attributes:
        table: The table.
        head: The newest snapshot of the target.
        staged: The changes of the staging branch.
        choices: The names of the branches.
    """

    table: LoadedTable
    head: int
    staged: Staged
    choices: Choices

    def deleted(self) -> dict[str, Bitmap]:
        """Return the positions that it deletes, by path.

        Raises:
            PlanError: The target has rewritten or removed the data file.
        """
        staged = self.staged
        marked = self._live(staged.marked, "has deletes by position")
        files = find_position_deletes(self.table, staged.head.id, marked)
        new = [
            replace(file, deletes=tuple(each for each in file.deletes if each.key in staged.marks))
            for file in files.values()
        ]
        storage = open_storage(self.table.spark, local_path(self.table.metadata.location))
        return earlier_positions(self.table, staged.head.id, storage, new, complete=True)

    def removed(self, hits: Collection[str]) -> tuple[str, ...]:
        """Return the paths of data files that it has removed.

        Args:
            hits: Data files in which deletes by key of the target itself have found rows.

        Raises:
            PlanError: The target has rewritten or removed the data file, or has deleted rows of one
                that was rewritten.
        """
        removed = self._live(self.staged.removed, "was removed")
        self._require_same_rows(hits, set(removed))
        return removed

    def _require_same_rows(self, hits: Collection[str], live: Collection[str]) -> None:
        """Refuse a rewrite of a data file that rows were deleted of meanwhile: they would be back.

        A rewrite reads what the staging branch knows. Other deletes of the target are new to it.
        """
        rewritten = [path for path in self.staged.rewritten if path in live]
        if not rewritten:
            return
        base = self.staged.snapshots[0].parent_id
        known = (
            find_position_deletes(self.table, base, rewritten)
            if base is not None and base in self.table.metadata.snapshots
            else {}
        )
        for path, file in find_position_deletes(self.table, self.head, rewritten).items():
            before = {each.key for each in known[path].deletes} if path in known else set()
            if path in hits or any(each.key not in before for each in file.deletes):
                raise PlanError(
                    f"{path} was rewritten on branch {self.choices.staging} of {self.table.name},"
                    f" and {self.choices.target} has deleted rows of it, which would be there"
                    " again",
                    hint="write deletes by key, or by position (merge-on-read), to staging"
                    " branches",
                )

    def _live(self, paths: Sequence[str], what: str) -> tuple[str, ...]:
        """Return those of some data files that the target has.

        Others must have no row left on the staging branch: then the target has no row of theirs
        either, since data files without rows are not taken over. Else their rows have moved to
        other files of the target, and are not known there by position.
        """
        if not paths:
            return ()
        live = find_position_deletes(self.table, self.head, paths, require=False)
        gone = [path for path in paths if path not in live]
        base = self.staged.snapshots[0].parent_id
        if gone and not self._are_empty(gone, base):
            raise PlanError(
                f"{gone[0]} {what} on branch {self.choices.staging} of {self.table.name}, and"
                f" {self.choices.target} has rewritten or removed it",
                hint="write deletes by key to staging branches, or resolve before compaction",
            )
        return tuple(path for path in paths if path in live)

    def _are_empty(self, paths: Sequence[str], snapshot_id: int | None) -> bool:
        """Whether data files have no live row in a snapshot; their keys are read."""
        if snapshot_id is None or snapshot_id not in self.table.metadata.snapshots:
            return False
        known = find_position_deletes(self.table, snapshot_id, paths, require=False)
        if len(known) < len(set(paths)):
            return False
        return all(part.isEmpty() for part in live_rows(self.table, snapshot_id, paths, ()))
