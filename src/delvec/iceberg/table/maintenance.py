"""Maintenance of an Iceberg table: commands that keep it small and change none of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.maintain import check, consolidate, procedures
from delvec.iceberg.table.handle import TableHandle

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from delvec.iceberg.maintain.check_report import CheckReport
    from delvec.iceberg.maintain.consolidate_report import ConsolidateReport
    from delvec.iceberg.maintain.reports import ExpireReport, OrphanReport

__all__ = ["TableMaintenance"]


@explained_calls()
@dataclass(frozen=True)
class TableMaintenance(TableHandle):
    """The maintenance commands of a table."""

    def check(self, branch: str | None = None, snapshot_id: int | None = None) -> CheckReport:
        """Look for the files of a snapshot, read its deletes, and compare them with the manifests.

            report = t.check()
            assert report.ok, report

        Errors are what makes rows wrong or unreadable: files that are gone or of another size,
        equality-delete files without field ids or with wrong bounds, damaged vectors, equality
        delete vectors where stock engines read. Warnings and notes do not count for `ok`.

        It takes one HEAD request for each data file and each delete file, and reads all equality
        deletes and deletion vectors. Data files are not opened. Memory is bounded, but for 1 kB of
        each equality delete.

        Args:
            branch: The branch; `main` by default.
            snapshot_id: Instead: a snapshot by its id.

        Raises:
            InvalidArgumentError: There is no such branch or snapshot.
        """
        table = self._load()
        snapshot = self._snapshot(table, branch, snapshot_id)
        named = branch if snapshot_id is not None else branch or MAIN
        return check.check(table, None if snapshot is None else snapshot.id, named)

    def consolidate_deletes(
        self, branch: str = MAIN, *, dry_run: bool = False
    ) -> ConsolidateReport:
        """Merge the many small equality deletes of a branch into few; no row changes.

            print(t.consolidate_deletes(dry_run=True))

        Deletes of the same key columns and the same scope are merged, unless rows were written in
        between, which the earlier ones do not delete. Deletes that apply to no data file any more
        are removed. Equality delete vectors on a branch that is not a staging branch, which stock
        engines cannot read, become ordinary files.

        No data file is read. One commit, or none if there is nothing to do; it is planned anew if
        somebody else commits meanwhile. Do not run it during a `rewrite_data_files` of the whole
        table: Iceberg then drops deletes of that time, after any further commit.

        Args:
            branch: The branch.
            dry_run: Whether to report only, and write nothing.

        Raises:
            InvalidArgumentError: There is no such branch.
            ConflictError: Others committed to the table at the same time, again and again.
        """
        return consolidate.consolidate_deletes(self._load(), branch, dry_run=dry_run)

    def expire_snapshots(
        self,
        older_than: datetime | timedelta | str | None = None,
        retain_last: int | None = None,
        *,
        location: str | None = None,
        dry_run: bool = False,
    ) -> ExpireReport:
        """Expire snapshots by Iceberg's action, and delete files that only they had.

            t.expire_snapshots(older_than=timedelta(days=7), retain_last=10)

        Newest snapshots of branches and tagged ones stay. Staging branches stay such, and
        transactions (`txn_app_id`) stay known. Files outside the table's location are not deleted:
        the report names them.

        Args:
            older_than: A time or an age; by default what the table's properties say, or 5 days.
            retain_last: How many of the newest snapshots of each branch to keep in any case; by
                default what the table's properties say, or 1.
            location: The folder to delete files in; by default the table's own, in which its
                metadata file has to be.
            dry_run: Whether to report only how many snapshots would expire; which files go with
                them is not computed.

        Raises:
            InvalidArgumentError: A value is of the wrong type or out of range.
            PlanError: The table has `gc.enabled=false`, as targets of conversions have, or its
                location is not its own.
        """
        table = self._load()
        return procedures.expire_snapshots(
            table, older_than, retain_last, location=location, dry_run=dry_run
        )

    def remove_orphan_files(
        self,
        older_than: datetime | timedelta | str | None = None,
        *,
        location: str | None = None,
        dry_run: bool = False,
    ) -> OrphanReport:
        """Delete files that no snapshot refers to, by Iceberg's procedure.

            t.remove_orphan_files(dry_run=True)

        Args:
            older_than: A time or an age; 3 days by default. Less than a day is refused: files of
                running writes are among those that no snapshot refers to.
            location: The folder to look in; by default the table's own, in which its metadata file
                has to be.
            dry_run: Whether to report only, and delete nothing.

        Raises:
            InvalidArgumentError: `older_than` is less than a day ago.
            PlanError: The table has `gc.enabled=false`, as targets of conversions have, or its
                location is not its own, or not its alone.
        """
        table = self._load()
        return procedures.remove_orphan_files(table, older_than, location=location, dry_run=dry_run)
