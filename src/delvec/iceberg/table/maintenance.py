"""Commands that keep an Iceberg table small and fast, and change none of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from delvec.documents import EPOCH
from delvec.errors import InvalidArgumentError, committed_before
from delvec.iceberg.client.metadata import MAIN, branch_head
from delvec.iceberg.commit.lock import LEASE, UnlockReport, hold_lock, unlock
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.maintain import check, compact, consolidate, procedures
from delvec.iceberg.maintain.check import CheckReport
from delvec.iceberg.maintain.compact import CompactReport
from delvec.iceberg.maintain.consolidate import ConsolidateReport
from delvec.iceberg.maintain.procedures import ExpireReport, OrphanReport
from delvec.iceberg.resolve.plan import ResolveOptions, Verify, oldest_unresolved_ms
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.resolve.resolve import (
    can_restart,
    plan_first_step,
    resolve,
    restart_if_resolved,
)
from delvec.iceberg.search import index_update, key_index
from delvec.iceberg.search.finder import Strategy
from delvec.iceberg.search.key_index import IndexReport
from delvec.iceberg.table.handle import TableHandle
from delvec.report.hints import Wording
from delvec.report.rendering import Stopwatch


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

        No data file is read. One commit, or none if there is nothing to do; it is planned again if
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


@dataclass(frozen=True)
class TableResolving(TableHandle):
    """Resolving equality deletes."""

    def resolve(  # noqa: PLR0913
        self,
        keys: str | Sequence[str] | None = None,
        *,
        staging: str | None = None,
        target: str = MAIN,
        index: Literal["auto", "join", "index"] = "auto",
        verify: Literal["counts", "rows", "none"] = "counts",
        unique_keys: bool = False,
        max_snapshots: int | None = None,
        restart_staging: bool = False,
        wait: float = 0.0,
        lease: float = LEASE,
        dry_run: bool = False,
    ) -> ResolveReport:
        """Turn equality deletes into deletion vectors, so that every engine reads the branch fast.

            t.resolve()                                          # those of main, in place
            t.resolve("order_id", staging="changes")             # changes of a branch, onto main

        Rows with a deleted key are looked for in the data files that may have one, and deleted by
        position: by deletion vectors, or position-delete files in tables of format 2. The deletes
        by key are removed in the same commit. Deletes of keys that no row has are counted. Any
        writer may have written them, in any form.

        With `staging`, the changes of that branch are taken over in their order: its data files,
        its deletes by key, its vectors. Readers of the target see all of a staged commit or nothing
        of it. What was taken over is written down in the same commit, so a call goes on where the
        one before ended, however that was.

        Others may write meanwhile. In place, their appends, upserts and deletes do not get in the
        way; their compactions make it search the new files. `compact` waits for its end, and it for
        the end of `compact`: both hold the lock of the table.

        Args:
            keys: The key columns; needed for the index and for `unique_keys`.
            staging: The branch whose changes are taken over; in place by default.
            target: The branch that is to hold no deletes by key.
            index: How rows are found: `join` reads the key columns of the files that may have one,
                `index` the primary-key index, which is made if there is none; `auto` uses the index
                if there is one and it costs less by estimate.
            verify: What is checked before a commit is published: `counts` by arithmetic and the
                manifests, `rows` a digest of all rows as well.
            unique_keys: Whether to check that no two rows have the same key.
            max_snapshots: How many staged snapshots become one commit at most; all by default.
            restart_staging: Whether to move the staging branch to the target when all was taken
                over, so that its own snapshots can expire.
            wait: How many seconds to wait for the lock; who waited for longer has it first.
            lease: After how many seconds others may take the lock over if this process dies.
            dry_run: Whether to find rows and report only, and write nothing.

        Returns:
            A report; `snapshot_id` is None if there was nothing to do.

        Raises:
            InvalidArgumentError: There is no such branch or column.
            UnsupportedFeatureError: The table is of format version 1.
            LockedError: Somebody else has the lock.
            PlanError: The staging branch cannot be taken over; the error says why.
            ConflictError: Others changed the same files again and again.
            VerificationError: The result would not be right; it was not published.
        """
        names = [keys] if isinstance(keys, str) else list(keys or ())
        choices = ResolveOptions(
            target=target,
            staging=staging,
            keys=tuple(names),
            index=index,
            verify=verify,
            unique_keys=unique_keys,
            max_snapshots=max_snapshots,
            dry_run=dry_run,
        )
        self._require_sense(choices, restarts=restart_staging)
        table = self._load()
        choices.key_ids(table)
        plan = plan_first_step(table, choices)
        has_more = restart_staging and can_restart(table, choices)
        if dry_run or (plan.is_empty and not has_more):
            return resolve(table, choices, plan=plan)
        with hold_lock(table, "RESOLVE", lease=lease, wait=wait) as held:
            report = resolve(self._load(), choices, held.check, plan)
            if not restart_staging:
                return report
            with committed_before(lambda: report if report.commits else None):
                return restart_if_resolved(self._load(), choices, report)

    def oldest_unresolved(
        self, staging: str | None = None, *, target: str = MAIN
    ) -> datetime | None:
        """Return when the oldest change was committed that `resolve` would take over, in UTC.

        None if there is none. Reads metadata, and the delete manifests of the target if it has
        equality deletes.

        Args:
            staging: The branch whose changes are taken over; in place by default.
            target: The branch that is to hold no deletes by key.

        Raises:
            InvalidArgumentError: There is no such branch.
            PlanError: The staging branch cannot be taken over.
        """
        found = oldest_unresolved_ms(self._load(), target, staging)
        return None if found is None else EPOCH + timedelta(milliseconds=found)

    def _require_sense(self, choices: ResolveOptions, *, restarts: bool) -> None:
        """Refuse arguments that contradict each other."""
        _require_one_of("index", choices.index, get_args(Strategy))
        _require_one_of("verify", choices.verify, get_args(Verify))
        if choices.unique_keys and not choices.keys:
            raise InvalidArgumentError(
                f"unique_keys needs the key columns of {self.name}",
                hint=Wording('resolve("id", unique_keys=True)', "name them by --key"),
            )
        if choices.staging == choices.target:
            raise InvalidArgumentError(
                f"{choices.target} of {self.name} cannot be staged for itself",
                hint="leave out staging to resolve in place",
            )
        if restarts and choices.staging is None:
            raise InvalidArgumentError(
                f"restart_staging needs the staging branch of {self.name}",
                hint=Wording(
                    'resolve(staging="...", restart_staging=True)', "name it by --staging"
                ),
            )
        if choices.max_snapshots is not None and choices.max_snapshots < 1:
            raise InvalidArgumentError(
                f"max_snapshots is 1 or more, got {choices.max_snapshots}",
                hint="leave it out to take over all snapshots by one commit",
            )

    def compact(
        self,
        *,
        where: str | None = None,
        options: Mapping[str, object] | None = None,
        wait: float = 0.0,
        lease: float = LEASE,
        dry_run: bool = False,
    ) -> CompactReport:
        """Rewrite small data files of `main` by Iceberg's own procedure, under the table's lock.

            t.compact(options={"min-input-files": 2})

        Args:
            where: Only files that may have rows of this condition.
            options: Those of Iceberg's `rewrite_data_files`.
            wait: How many seconds to wait for the lock; who waited for longer has it first.
            lease: After how many seconds others may take the lock over if this process dies.
            dry_run: Whether to report only, and rewrite nothing.

        Raises:
            LockedError: Somebody else has the lock, such as a `resolve`.
            PlanError: The table has equality deletes, or its files are not its own.
        """
        return compact.compact(
            self._load(), where=where, options=options, wait=wait, lease=lease, dry_run=dry_run
        )

    def unlock(self, *, force: bool = False, dry_run: bool = False) -> UnlockReport:
        """Remove the lock that a dead `resolve` or `compact` left, and claims of those who waited.

            print(t.unlock(dry_run=True))

        Without it others take such a lock over when its lease is over. An owner that lives and has
        lost its lock notices it before its next commit, and gives up.

        Args:
            force: Whether to remove a lock whose lease is not over, whoever has it.
            dry_run: Whether to report only, and remove nothing.

        Raises:
            LockedError: Somebody has the lock, and `force` is not given.
        """
        return unlock(self._load(), force=force, dry_run=dry_run)

    def build_index(
        self, keys: str | Sequence[str], *, target: str = MAIN, dry_run: bool = False
    ) -> IndexReport:
        """Make the primary-key index of the table, or bring it up to date.

        It is an Iceberg table of its own beside the table, a sorted list of hashes of keys with the
        places of their rows. It only makes `resolve` faster, where few keys of a large table are
        deleted: without it, or if it is not up to date, the result is the same.

        Args:
            keys: The key columns.
            target: The branch whose files are indexed.
            dry_run: Whether to tell by metadata what would be done, and write nothing.

        Raises:
            UnsupportedFeatureError: Such a key has no index.
            PlanError: There is a table of its name that is none.
        """
        table = self._load()
        names = [keys] if isinstance(keys, str) else list(keys)
        ids = [each.id for each in key_columns(table.metadata.schema, names, self.name)]
        head = branch_head(table.metadata, self.name, target)
        if head is None:
            raise InvalidArgumentError(
                f"{self.name} has no snapshot that could be indexed", hint="append rows first"
            )
        if dry_run:
            action = index_update.planned_action(table, head.id, ids)
            own = str(key_index.index_name(table.name))
            return IndexReport(self.name, own, tuple(names), None, action, dry_run=True)
        watch = Stopwatch()
        with watch.phase("index"):
            index = index_update.update_index(table, head.id, ids)
        return IndexReport.of(self.name, tuple(names), index, watch.seconds)

    def drop_index(self, *, dry_run: bool = False) -> bool:
        """Drop the primary-key index with its files; return whether there was one.

        Args:
            dry_run: Whether to look only, and drop nothing.
        """
        return key_index.drop_index(self._load(), dry_run=dry_run)


def _require_one_of(name: str, given: object, known: Sequence[str]) -> None:
    if given not in known:
        raise InvalidArgumentError(f"{name} is {given!r}, expected one of {', '.join(known)}")
