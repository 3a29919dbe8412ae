"""Equality deletes of an Iceberg table become deletion vectors; its compaction, and its index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from delvec.calls import explained_calls
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.client.named_snapshots import branch_head
from delvec.iceberg.commits.lock import locked
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.maintain import compact
from delvec.iceberg.resolve.choices import Choices, Verify
from delvec.iceberg.resolve.resolver import has_work, resolve
from delvec.iceberg.resolve.restart import can_restart, restarted
from delvec.iceberg.search import index_update, key_index
from delvec.iceberg.search.index_report import IndexReport
from delvec.iceberg.search.strategy import Strategy
from delvec.iceberg.table.handle import TableHandle
from delvec.report.phases import Stopwatch
from delvec.report.wordings import Wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.iceberg.maintain.compact_report import CompactReport
    from delvec.iceberg.resolve.report import ResolveReport

__all__ = ["TableResolving"]


@explained_calls()
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
            wait: How many seconds to wait for the lock.
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
        choices = Choices(
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
        has_more = restart_staging and can_restart(table, choices)
        if dry_run or not (has_more or has_work(table, choices)):
            return resolve(table, choices)
        with locked(table, "RESOLVE", wait=wait) as held:
            report = resolve(self._load(), choices, held.check)
            return restarted(self._load(), choices, report) if restart_staging else report

    def _require_sense(self, choices: Choices, *, restarts: bool) -> None:
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
        dry_run: bool = False,
    ) -> CompactReport:
        """Rewrite small data files of `main` by Iceberg's own procedure, under the table's lock.

            t.compact(options={"min-input-files": 2})

        Args:
            where: Only files that may have rows of this condition.
            options: Those of Iceberg's `rewrite_data_files`.
            wait: How many seconds to wait for the lock.
            dry_run: Whether to report only, and rewrite nothing.

        Raises:
            LockedError: Somebody else has the lock, such as a `resolve`.
            PlanError: The table has equality deletes, or its files are not its own.
        """
        return compact.compact(
            self._load(), where=where, options=options, wait=wait, dry_run=dry_run
        )

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
