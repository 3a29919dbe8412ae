"""Deleting rows by position: a deletion vector for each data file with rows that match a condition.

Tables of format 3 get vectors in a Puffin file, tables of format 2 a position-delete file for each
data file. A file's new vector holds its earlier deletes as well and replaces them; a data file
without a row left is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.errors import ConflictError, PlanError, UnsupportedFeatureError
from delvec.iceberg.by_condition.places import bitmaps_by_path
from delvec.iceberg.by_condition.position_report import PositionDeleteReport
from delvec.iceberg.by_condition.position_vectors import earlier_positions, write_vectors
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import snapshot_files
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.client.position_deletes import find_position_deletes
from delvec.iceberg.commits.branch_commit import commit_change, is_committed, require_branch
from delvec.iceberg.commits.changes import RowChange
from delvec.iceberg.deletes.reading import rows_with_places
from delvec.iceberg.deletes.writable import require_writable
from delvec.report.phases import Stopwatch
from delvec.spark.progress import described
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector.unite import unite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from delvec.iceberg.by_condition.predicates import Condition
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.files import SnapshotFiles
    from delvec.iceberg.client.position_deletes import DataFileWithDeletes
    from delvec.iceberg.commits.branch_commit import Txn
    from delvec.storage import Storage
    from delvec.vector import Bitmap

__all__ = ["delete_positions"]

_ATTEMPTS: Final = 10
_LOWEST_FORMAT: Final = 2
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
    then are looked for anew. Rows that others append meanwhile stay; a subquery reads what is there
    when it runs. Without a condition all data files are removed, unread.

    Args:
        table: The table.
        condition: The rows; those for which it is NULL stay.
        branch: The branch, which is created from `main` if it does not exist.
        txn: Commit nothing if the application has committed this version or a later one.
        reason: Why it is by position, for the report.
        dry_run: Whether to find the rows only, and write nothing.

    Raises:
        InvalidArgumentError: Spark cannot resolve the condition, or `branch` is a tag.
        UnsupportedFeatureError: The table is of format 1.
        ConflictError, PlanError: Others changed the same files again and again.
        CommitStateUnknownError: The commit may have happened or not.
    """
    _require_format(table)
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


def _require_format(table: LoadedTable) -> None:
    found = table.metadata.format_version
    if found < _LOWEST_FORMAT:
        raise UnsupportedFeatureError(
            f"{table.name} is of format version {found}, which has no row-level deletes: expected 2"
            " or 3",
            feature=f"format version {found}",
            hint=f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version' = '3')",
        )


@dataclass(frozen=True, eq=False)
class _Touched:
    """Rows that were found.

    Attributes:
        files: The data files that they are in, by path.
        vectors: New vectors by path, earlier deletes included.
        whole: Paths of data files without a row left.
        rows: How many rows were found.
    """

    files: Mapping[str, DataFileWithDeletes]
    vectors: Mapping[str, Bitmap]
    whole: tuple[str, ...]
    rows: int


class _Attempt:
    """A delete on one snapshot of a table."""

    def __init__(
        self,
        table: LoadedTable,
        condition: Condition,
        branch: str,
        txn: Txn | None,
        stopwatch: Stopwatch,
        *,
        dry_run: bool = False,
    ) -> None:
        self._table, self._condition, self._branch = table, condition, branch
        self._txn, self._stopwatch = txn, stopwatch
        self._head = table.metadata.head(branch) or table.metadata.head()
        self._dry_run = dry_run
        self._nothing = PositionDeleteReport(str(table.name), branch, dry_run=dry_run)

    def is_newest(self, table: LoadedTable) -> bool:
        """Whether the branch of a table has not moved since."""
        newest = table.metadata.head(self._branch) or table.metadata.head()
        return newest is None or self._head is None or newest.id == self._head.id

    def delete(self) -> PositionDeleteReport:
        txn, metadata = self._txn, self._table.metadata
        if txn is not None and is_committed(metadata, self._branch, txn):
            return self._nothing
        if self._head is None:
            is_done = txn is None or self._dry_run
            return self._nothing if is_done else self._commit(RowChange(), self._nothing)
        with self._phase("plan"):
            files = snapshot_files(self._table, self._head.id)
        if self._condition.where is None:
            return self._delete_all(files)
        with self._phase("find"):
            touched = self._touched(files.data)
        return self._store(touched)

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
            self._nothing,
            rows_deleted=None if has_keys else counts[0] - counts[1],
            files_removed=len(files.data),
        )
        if self._dry_run or (not len(files.data) and self._txn is None):
            return report if self._dry_run else self._nothing
        change = RowChange(
            removed_data=_combined(files.data["file_path"]), removed_deletes=_combined(keys)
        )
        return self._commit(change, report)

    def _touched(self, data: pa.Table) -> _Touched:
        """Find the rows, and what is deleted in their files already."""
        table, paths = self._table, data["file_path"].to_pylist()
        snapshot_id = self._snapshot_id
        with explained(str(table.name)):
            matching = self._rows()
        hits = bitmaps_by_path(table, matching, paths)
        files = find_position_deletes(table, snapshot_id, hits)
        earlier = earlier_positions(table, snapshot_id, self._storage(), files.values())
        vectors, whole = {}, []
        for path, bitmap in hits.items():
            count = files[path].row_count
            united = unite(earlier.get(path), bitmap, rows=count, path=path)
            if united.cardinality == count:
                whole.append(path)
            else:
                vectors[path] = united
        rows = sum(each.cardinality for each in hits.values())
        return _Touched(files, vectors, tuple(whole), rows)

    def _rows(self) -> DataFrame:
        table, condition = self._table, self._condition
        if condition.alias:
            # The condition names the rows by their alias, which the reader does not know.
            return condition.applied(rows_with_places(table, self._snapshot_id))
        return rows_with_places(table, self._snapshot_id, condition.where)

    def _store(self, touched: _Touched) -> PositionDeleteReport:
        files = [touched.files[path] for path in touched.vectors]
        found = replace(
            self._nothing,
            rows_deleted=touched.rows,
            files_removed=len(touched.whole),
            vectors_added=len(touched.vectors),
            vectors_replaced=sum(_is_replaced(file) for file in files),
        )
        if self._dry_run:
            return found
        if not touched.rows and self._txn is None:
            return self._nothing
        storage = self._storage()
        with UncommittedFiles(storage) as uncommitted:
            with self._phase("write"):
                stored = write_vectors(
                    self._table, files, list(touched.vectors.values()), storage, uncommitted
                )
            replaced = [
                delete.key
                for file in touched.files.values()
                for delete in file.deletes
                if delete.is_file_scoped
            ]
            change = RowChange(
                delete_files=stored.delete_files,
                removed_data=pa.array(touched.whole, pa.string()),
                removed_deletes=pa.array(replaced, pa.string()),
                data_with_new_deletes=pa.array(touched.vectors, pa.string()),
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
        computed_on = None if self._head is None else self._head.id
        with self._phase("commit"):
            committed = commit_change(
                self._table, self._branch, change, txn=self._txn, computed_on=computed_on
            )
        if committed.snapshot_id is None:
            return self._nothing
        return replace(report, snapshot_id=committed.snapshot_id)

    @property
    def _snapshot_id(self) -> int:
        assert self._head is not None  # noqa: S101 - looked at before anything is read
        return self._head.id

    def _storage(self) -> Storage:
        return open_storage(self._table.spark, local_path(self._table.metadata.location))

    def _phase(self, name: str) -> AbstractContextManager[None]:
        jobs = described(self._table.spark, f"delvec: {name} DELETE on {self._table.name}")
        return self._stopwatch.phase(name, jobs)


def _is_replaced(file: DataFileWithDeletes) -> bool:
    return any(each.is_file_scoped for each in file.deletes)


def _combined(values: pa.ChunkedArray) -> pa.Array:
    return pa.array(values.to_pylist(), pa.string())
