"""Branches and tags of an Iceberg table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.metadata import MAIN, NO_SNAPSHOT
from delvec.iceberg.commit import refs
from delvec.iceberg.table.handle import TableHandle
from delvec.spark.engine import time_zone


@dataclass(frozen=True)
class TableBranches(TableHandle):
    """The commands that make, move and drop branches and tags; each is one commit.

    With `dry_run=True` all is checked, and nothing is changed.
    """

    def create_branch(
        self,
        name: str,
        *,
        snapshot_id: int | None = None,
        staging: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Create a branch, and return the snapshot that it points to.

        A staging branch begins with an empty snapshot, which a dry run does not make: it returns
        the one before, and -1 for a table without snapshots.

            t.create_branch("audit")
            t.create_branch("changes", staging=True)

        Args:
            name: The name, which no branch or tag has.
            snapshot_id: The snapshot that it begins at; by default the newest of `main`.
            staging: Whether the branch is delvec's own: equality deletes may be written to it as
                vectors alone, which stock readers of Iceberg refuse to read. Other branches,
                `main` among them, are not touched.
            dry_run: Whether to check all of that only, and change nothing.

        Raises:
            InvalidArgumentError: The name is taken, or there is no such snapshot.
            PlanError: The snapshot has equality delete vectors alone, and `staging` is not given.
            ConflictError: Somebody else made a branch of that name at the same time.
        """
        made = refs.create_branch(
            self._load(), name, snapshot_id=snapshot_id, staging=staging, dry_run=dry_run
        )
        ref = made.metadata.refs.get(name)
        return ref.snapshot_id if ref else NO_SNAPSHOT

    def drop_branch(self, name: str, *, dry_run: bool = False) -> None:
        """Drop a branch; its rows are gone when its snapshots expire.

        Raises:
            InvalidArgumentError: There is no such branch, or it is `main` or a tag.
        """
        refs.drop_branch(self._load(), name, dry_run=dry_run)

    def fast_forward(self, branch: str, to: str, *, dry_run: bool = False) -> int:
        """Move a branch forward to another branch or a tag, and return the snapshot there.

            t.fast_forward("main", "audit")

        Args:
            branch: The branch to move.
            to: The branch or tag, which goes on from where `branch` is.
            dry_run: Whether to check all of that only, and change nothing.

        Raises:
            InvalidArgumentError: There is no such branch or tag.
            PlanError: `branch` has snapshots that `to` has not, or stock readers could not read it
                any more, since `to` is a staging branch or has equality delete vectors alone.
        """
        return _head(refs.fast_forward(self._load(), branch, to, dry_run=dry_run), branch)

    def rollback(
        self,
        snapshot_id: int | None = None,
        *,
        timestamp: datetime | str | None = None,
        branch: str = MAIN,
        dry_run: bool = False,
    ) -> int:
        """Move a branch back to one of its earlier snapshots, and return that.

            t.rollback(timestamp="2026-01-31 10:00:00")

        Schema and properties stay as they are. Transactions (`txn_app_id`, `txn_version`) that are
        rolled back count as not committed.

        Args:
            snapshot_id: The snapshot, of this branch.
            timestamp: Instead: a time; the snapshot that was the branch's newest then.
            branch: The branch.
            dry_run: Whether to check all of that only, and change nothing.

        Raises:
            InvalidArgumentError: There is no such branch or snapshot.
            PlanError: The snapshot does not belong to the branch.
        """
        moved = refs.rollback(
            self._load(),
            branch,
            snapshot_id=snapshot_id,
            timestamp=timestamp,
            time_zone=time_zone(self.spark),
            dry_run=dry_run,
        )
        return _head(moved, branch)

    def create_tag(
        self, name: str, *, snapshot_id: int | None = None, dry_run: bool = False
    ) -> int:
        """Create a tag, by default of the newest snapshot of `main`, and return its snapshot.

        Raises:
            InvalidArgumentError: The name is taken, or there is no such snapshot.
            ConflictError: Somebody else made a tag of that name at the same time.
        """
        made = refs.create_tag(self._load(), name, snapshot_id=snapshot_id, dry_run=dry_run)
        return made.metadata.refs[name].snapshot_id

    def drop_tag(self, name: str, *, dry_run: bool = False) -> None:
        """Drop a tag.

        Raises:
            InvalidArgumentError: There is no such tag, or it is a branch.
        """
        refs.drop_tag(self._load(), name, dry_run=dry_run)


def _head(table: LoadedTable, branch: str) -> int:
    return table.metadata.refs[branch].snapshot_id
