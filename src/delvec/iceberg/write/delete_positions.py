"""Deleting rows by position: a deletion vector for each data file with rows that match a condition.

Tables of format 3 get vectors in a Puffin file, tables of format 2 a position-delete file for each
data file. A file's new vector holds its earlier deletes as well and replaces them; a data file
without a row left is removed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.errors import ConflictError, PlanError
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import SnapshotFiles, snapshot_files
from delvec.iceberg.client.metadata import MAIN, IcebergSnapshot
from delvec.iceberg.commit.branch_commit import (
    Txn,
    commit_change,
    is_committed,
    require_branch,
    require_row_deletes,
    require_writable,
)
from delvec.iceberg.commit.commit import RowChange
from delvec.iceberg.deletes.positions import (
    MergedPositions,
    collect_positions,
    merge_positions,
    write_position_vectors,
)
from delvec.iceberg.deletes.read_plan import rows_with_places
from delvec.iceberg.write.key_predicates import Condition
from delvec.iceberg.write.report import PositionDeleteReport
from delvec.report.rendering import Stopwatch
from delvec.spark.jobs import describe_jobs
from delvec.storage.uncommitted import UncommittedFiles

_ATTEMPTS: Final = 10
_EQUALITY: Final = 2  # the `content` of an equality-delete file


def delete_positions(
    table: LoadedTable,
    condition: Condition,
    *,
    branch: str = MAIN,
    txn: Txn | None = None,
    reason: str = "",
    dry_run: bool = False,
) -> PositionDeleteReport:
    """Delete the rows of a branch that match a condition, by their positions, in one snapshot.

    Spark scans the columns of the condition once; its tasks send the driver at most 24 bytes for
    each 64 rows with a match. After a concurrent commit other than an append, the rows that match
    then are looked for again. Rows that others append stay; a subquery reads what is there
    when it runs. Without a condition all data files are removed, unread.
    """
    require_row_deletes(table)
    require_writable(table)
    stopwatch = Stopwatch()
    for attempt in range(1, _ATTEMPTS + 1):
        require_branch(table.metadata, branch, str(table.name))
        run = _Attempt(table, condition, branch, txn, stopwatch, dry_run=dry_run)
        try:
            report = run.delete()
        except (ConflictError, PlanError):
            table = load_table(table.spark, table.name)
            if attempt == _ATTEMPTS or run.is_newest(table):
                raise
        else:
            return replace(report, reason=reason, attempts=attempt, phases=stopwatch.seconds)
    raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True, eq=False)
class _Attempt:
    """A delete on one snapshot of a table."""

    table: LoadedTable
    condition: Condition
    branch: str
    txn: Txn | None
    stopwatch: Stopwatch
    dry_run: bool

    @property
    def head(self) -> IcebergSnapshot | None:
        return self.table.metadata.head(self.branch) or self.table.metadata.head()

    @property
    def nothing(self) -> PositionDeleteReport:
        return PositionDeleteReport(str(self.table.name), self.branch, dry_run=self.dry_run)

    def is_newest(self, table: LoadedTable) -> bool:
        """Whether the branch of a table has not moved since."""
        newest, head = replace(self, table=table).head, self.head
        return newest is None or head is None or newest.id == head.id

    def delete(self) -> PositionDeleteReport:
        table, condition, head = self.table, self.condition, self.head
        if self.txn is not None and is_committed(table.metadata, self.branch, self.txn):
            return self.nothing
        if head is None:
            is_done = self.txn is None or self.dry_run
            return self.nothing if is_done else self._commit(RowChange(), self.nothing)
        with self._phase("plan"):
            files = snapshot_files(table, head.id)
        if condition.where is None:
            return self._delete_all(files)
        with self._phase("find"):
            with translate_errors(str(table.name)):
                # Where the condition names the rows by an alias, the reader does not know it.
                known = None if condition.alias else condition.where
                rows = rows_with_places(table, head.id, known)
                matching = condition.applied(rows) if condition.alias else rows
            hits = collect_positions(table, matching, files.data["file_path"].to_pylist())
            merged = merge_positions(table, head.id, hits)
        return self._store(merged)

    def _delete_all(self, files: SnapshotFiles) -> PositionDeleteReport:
        """Remove all data files, and all delete files, which would apply to nothing."""
        deletes = files.deletes
        keys = pc.if_else(
            pc.is_valid(deletes["content_offset"]),
            pc.binary_join_element_wise(
                deletes["file_path"], deletes["content_offset"].cast(pa.string()), "@"
            ),
            deletes["file_path"],
        )
        has_keys = pc.any(pc.equal(deletes["content"], _EQUALITY)).as_py()
        counts = [pc.sum(each["record_count"]).as_py() or 0 for each in (files.data, deletes)]
        report = replace(
            self.nothing,
            rows_deleted=None if has_keys else counts[0] - counts[1],
            files_removed=len(files.data),
        )
        if self.dry_run or (not len(files.data) and self.txn is None):
            return report if self.dry_run else self.nothing
        change = RowChange(
            removed_data=_combined(files.data["file_path"]), removed_deletes=_combined(keys)
        )
        return self._commit(change, report)

    def _store(self, merged: MergedPositions) -> PositionDeleteReport:
        files = [merged.files[path] for path in merged.vectors]
        found = replace(
            self.nothing,
            rows_deleted=merged.rows,
            files_removed=len(merged.whole),
            vectors_added=len(merged.vectors),
            vectors_replaced=merged.replaced_vectors,
        )
        if self.dry_run:
            return found
        if not merged.rows and self.txn is None:
            return self.nothing
        storage = self.table.storage()
        with UncommittedFiles(storage) as uncommitted:
            with self._phase("write"):
                stored = write_position_vectors(
                    self.table, files, list(merged.vectors.values()), storage, uncommitted
                )
            replaced = [each.key for each in merged.replaced]
            change = RowChange(
                delete_files=stored.delete_files,
                removed_data=pa.array(merged.whole, pa.string()),
                removed_deletes=pa.array(replaced, pa.string()),
                data_with_new_deletes=pa.array(merged.vectors, pa.string()),
            )
            report = replace(found, vector_files=stored.files, vector_bytes=stored.bytes)
            uncommitted.keep()
            try:
                committed = self._commit(change, report)
            except (ConflictError, PlanError):
                uncommitted.discard()
                raise
            if committed.snapshot_id is None:
                uncommitted.discard()
            return committed

    def _commit(self, change: RowChange, report: PositionDeleteReport) -> PositionDeleteReport:
        computed_on = None if self.head is None else self.head.id
        with self._phase("commit"):
            committed = commit_change(
                self.table, self.branch, change, txn=self.txn, computed_on=computed_on
            )
        if committed.snapshot_id is None:
            return self.nothing
        return replace(report, snapshot_id=committed.snapshot_id)

    def _phase(self, name: str) -> AbstractContextManager[None]:
        jobs = describe_jobs(self.table.spark, f"delvec: {name} DELETE on {self.table.name}")
        return self.stopwatch.phase(name, jobs)


def _combined(values: pa.ChunkedArray) -> pa.Array:
    return pa.array(values.to_pylist(), pa.string())
