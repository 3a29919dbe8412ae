"""Compaction of data files by Iceberg's own `rewrite_data_files`, under the lock of the table.

Iceberg's default gives rewritten rows the sequence number of the snapshot that the rewrite began
with. If equality deletes are committed to a table while all of its files are rewritten, its commit
then drops them, and the rows are back (apache/iceberg#10312). So `main` must hold no equality
deletes, and by default new files get a new sequence number: Iceberg then refuses the commit if
deletes came meanwhile.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions as F  # noqa: N812

from delvec.errors import ConflictError, EngineError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import iceberg_view, load_table
from delvec.iceberg.client.delete_files import equality_deletes
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import snapshot_table
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.client.named_snapshots import branch_head
from delvec.iceberg.commits.lock import locked
from delvec.iceberg.commits.marks import is_staging
from delvec.iceberg.maintain.compact_report import CompactReport
from delvec.iceberg.maintain.procedures import called, require_own_files, sql_map, sql_string
from delvec.report.figures import outside_note
from delvec.report.phases import Stopwatch
from delvec.report.wordings import call, worded
from delvec.spark import jvm
from delvec.storage.listed_files import outside_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Row

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import IcebergSnapshot

__all__ = ["compact"]

_STARTING_SEQUENCE: Final = "use-starting-sequence-number"
_CONFLICT: Final = "Cannot commit rewrite because of a ValidationException or CommitFailedException"
_REPLACE: Final = "replace"
_DELETED: Final = 2  # the status of an entry of a file that its snapshot removed
_WRONG: Final = "IllegalArgumentException"


def compact(
    table: LoadedTable,
    *,
    branch: str = MAIN,
    where: str | None = None,
    options: Mapping[str, object] | None = None,
    wait: float = 0.0,
    dry_run: bool = False,
) -> CompactReport:
    """Rewrite small data files, and those with many deleted rows, as few clean ones.

    No row changes. It excludes `resolve`, which would have to begin again; other writers may go on.
    It runs as long as Iceberg takes to read and write the chosen files.

    Args:
        table: The table; its newest metadata are loaded.
        branch: Only `main`, which Iceberg's procedure works on.
        where: Only files that may have rows for which this SQL condition is true.
        options: Options of the procedure, such as `{"rewrite-all": True}`,
            `{"delete-file-threshold": 1}` or `{"remove-dangling-deletes": True}`.
        wait: Seconds to wait for the lock of the table.
        dry_run: Whether to report only what Iceberg's planner chooses, and write nothing.

    Raises:
        InvalidArgumentError: There is no such branch, or an option or condition is wrong.
        PlanError: The branch is not `main`, or holds equality deletes, or the table's properties
            forbid to remove its files.
        LockedError: Somebody else resolves or compacts the table.
        ConflictError: Deletes of rewritten rows were committed meanwhile.
    """
    given = _as_options(options)
    notes = _notes(given)
    watch = Stopwatch()
    head = _require_safe(table, branch)
    if head is None:
        return CompactReport(str(table.name), dry_run=dry_run)
    if dry_run:
        with watch.phase("plan"):
            groups, files, size, expected = _planned(table, head, where, given)
        return CompactReport(
            str(table.name),
            files_rewritten=files,
            files_added=expected,
            bytes_rewritten=size,
            groups=groups,
            delete_files_removed=None,
            dry_run=True,
            phases=watch.seconds,
            notes=notes,
        )
    with ExitStack() as stack:
        with watch.phase("lock"):
            stack.enter_context(locked(table, "COMPACT", wait=wait))
        newest = load_table(table.spark, table.name)
        _require_safe(newest, branch)
        with watch.phase("rewrite"):
            row = _rewritten(newest, where, given)
    after = load_table(table.spark, table.name).metadata
    made = [
        each.id
        for each in after.ancestors()
        if each.id not in newest.metadata.snapshots and each.operation == _REPLACE
    ]
    return CompactReport(
        str(table.name),
        snapshot_id=made[0] if made else None,
        files_rewritten=row["rewritten_data_files_count"],
        files_added=row["added_data_files_count"],
        bytes_rewritten=row["rewritten_bytes_count"],
        files_failed=row["failed_data_files_count"],
        delete_files_removed=row["removed_delete_files_count"],
        phases=watch.seconds,
        notes=(*notes, *_outside(newest, made)),
    )


def _outside(table: LoadedTable, made: Sequence[int]) -> tuple[str, ...]:
    """Return a note on rewritten files that did not lie in the table's location."""
    inside = F.col("data_file.file_path").startswith(f"{table.metadata.location}/")
    removed = (
        snapshot_table(table, "entries", each).where((F.col("status") == _DELETED) & ~inside)
        for each in made
    )
    with explained(str(table.name)):
        rows = [row for each in removed for row in each.select("data_file.file_path").collect()]
    return outside_note(outside_of(table.metadata.location, [path for (path,) in rows]))


def _as_options(options: Mapping[str, object] | None) -> dict[str, str]:
    """Return options as strings, as Java spells them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in {_STARTING_SEQUENCE: False, **(options or {})}.items()
    }


def _notes(options: Mapping[str, str]) -> tuple[str, ...]:
    if options[_STARTING_SEQUENCE].lower() != "true":
        return ()
    risk = (
        f"With {_STARTING_SEQUENCE} Iceberg may drop equality deletes that are committed during the"
        " rewrite of all files: nobody should write any meanwhile."
    )
    return (risk,)


def _require_safe(table: LoadedTable, branch: str) -> IcebergSnapshot | None:
    """Refuse what Iceberg's procedure would break, or would not do; return the newest snapshot."""
    name = str(table.name)
    head = branch_head(table.metadata, name, branch)
    if branch != MAIN:
        staged = ": it is a staging branch" if is_staging(table.metadata, branch) else ""
        raise PlanError(
            f"{branch} of {name} cannot be compacted{staged}. Iceberg's rewrite_data_files works on"
            f" {MAIN}, and cannot read equality delete vectors",
            hint=f"resolve({f'staging={branch!r}' if staged else ''}), then compact {MAIN}",
        )
    require_own_files(table)
    if head is None or head.summary.get("total-equality-deletes") == "0":
        return head
    found = equality_deletes(table, head.id)
    if found:
        raise PlanError(
            f"{MAIN} of {name} has {len(found)} equality deletes, such as {found[0].path}: Iceberg"
            " may lose some that are committed while all files are rewritten",
            hint=worded("{} turns them into deletion vectors; compact then", call("resolve")),
        )
    return head


def _rewritten(table: LoadedTable, where: str | None, options: Mapping[str, str]) -> Row:
    arguments = {"strategy": sql_string("binpack"), "options": sql_map(options)}
    if where is not None:
        arguments["where"] = sql_string(where)
    try:
        with _told(table):
            [row] = called(table, "rewrite_data_files", arguments)
    except (PlanError, ConflictError, EngineError) as error:
        if _CONFLICT not in str(error.__cause__):
            raise
        raise ConflictError(
            f"deletes of rows of {table.name} that were being rewritten, or another rewrite, were"
            f" committed meanwhile: {error.message}",
            hint="compact again; with partial-progress.enabled each group is committed by itself",
        ) from error.__cause__
    return row


def _planned(
    table: LoadedTable, head: IcebergSnapshot, where: str | None, options: Mapping[str, str]
) -> tuple[int, int, int, int]:
    """Return what Iceberg's planner chooses: groups, files, their size, and files after it."""
    spark, view = table.spark, iceberg_view(table.spark)
    root = jvm.view_of(spark)
    given = root.java.util.HashMap()
    for key, value in options.items():
        given.put(key, value)
    with _told(table):
        chosen = view.expressions.Expressions.alwaysTrue()
        if where is not None:
            converter = root.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
            resolved = converter.collectResolvedSparkExpression(
                jvm.session_of(spark), str(table.name), where
            )
            chosen = converter.convertToIcebergExpression(resolved)
        planner = view.actions.BinPackRewriteFilePlanner(table.handle, chosen, head.id, False)
        planner.init(given)
        groups = planner.plan().groups()
        files = size = expected = count = 0
        each = groups.iterator()
        while each.hasNext():
            group = each.next()
            count += 1
            files += group.inputFileNum()
            size += group.inputFilesSizeInBytes()
            expected += group.expectedOutputFiles()
        groups.close()
    return count, files, size, expected


@contextmanager
def _told(table: LoadedTable) -> Iterator[None]:
    """Tell wrong options and conditions apart from failures."""
    try:
        with explained(str(table.name)):
            yield
    except EngineError as error:
        cause = error.__cause__
        if not isinstance(cause, IllegalArgumentException) and _WRONG not in str(cause):
            raise
        raise InvalidArgumentError(
            f"{error.message} (compaction of {table.name})", hint=error.hint
        ) from error.__cause__
