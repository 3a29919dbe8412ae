"""Compaction of data files by Iceberg's own `rewrite_data_files`, under the lock of the table.

Iceberg's default gives rewritten rows the sequence number of the snapshot that the rewrite began
with. If equality deletes are committed to a table while all of its files are rewritten, its commit
then drops them, and the rows are back (apache/iceberg#10312). So `main` must hold no equality
deletes, and by default new files get a new sequence number: Iceberg then refuses the commit if
deletes came meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Row
from pyspark.sql import functions as F

from delvec.errors import ConflictError, EngineError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view, load_table
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import equality_deletes, snapshot_table
from delvec.iceberg.client.metadata import MAIN, IcebergSnapshot
from delvec.iceberg.commit.lock import LEASE, hold_lock
from delvec.iceberg.maintain.procedures import call_procedure, require_own_files, sql_map
from delvec.identifiers import sql_string
from delvec.report.format import format_outcome, format_size, nonzero, outside_note
from delvec.report.hints import call, format_hint
from delvec.report.rendering import OperationReport, Stopwatch, doc, documented, required
from delvec.spark import jvm
from delvec.storage.listed_files import outside_of

_STARTING_SEQUENCE: Final = "use-starting-sequence-number"
_CONFLICT: Final = "Cannot commit rewrite because of a ValidationException or CommitFailedException"
_DELETED: Final = 2  # the status of an entry of a file that its snapshot removed
_WRONG: Final = "IllegalArgumentException"


@documented()
class CompactReport(OperationReport):
    """What a compaction of data files did.

    >>> print(CompactReport("lake.db.orders", snapshot_id=7, files_rewritten=40, files_added=2,
    ...                     bytes_rewritten=5_000_000, delete_files_removed=3))
    COMPACT of lake.db.orders: snapshot 7 of main
      data files       40 -> 2
      rewritten        4.8 MiB
      removed deletes  3 files
    """

    table: str = required("The name of the table.")
    branch: str = doc("The branch.", "main")
    snapshot_id: int | None = doc("The newest snapshot committed; None if nothing was to do.", None)
    files_rewritten: int = doc("Data files that were replaced.", 0)
    files_added: int = doc("Data files in their place; in a dry run those that are expected.", 0)
    bytes_rewritten: int = doc("The size of those that were replaced.", 0)
    groups: int | None = doc(
        "File groups that would be rewritten, each in one job; only known in a dry run.", None
    )
    files_failed: int = doc("Data files that were not rewritten, with `partial-progress` only.", 0)
    delete_files_removed: int | None = doc(
        "Delete files and vectors that went with their rows; None in a dry run.", 0
    )
    dry_run: bool = doc("Whether nothing was written.", False)

    def _headline(self) -> str:
        outcome = format_outcome(self.branch, self.snapshot_id, dry_run=self.dry_run)
        return f"COMPACT of {self.table}: {outcome}"

    def _facts(self) -> dict[str, str]:
        files = f"{self.files_rewritten:,} -> {self.files_added:,}" if self.files_rewritten else ""
        return {
            "data files": files,
            "rewritten": format_size(self.bytes_rewritten) if self.bytes_rewritten else "",
            "groups": nonzero(self.groups),
            "failed": nonzero(self.files_failed, "file"),
            "removed deletes": nonzero(self.delete_files_removed, "file"),
        }


def compact(
    table: LoadedTable,
    *,
    where: str | None = None,
    options: Mapping[str, object] | None = None,
    wait: float = 0.0,
    lease: float = LEASE,
    dry_run: bool = False,
) -> CompactReport:
    """Rewrite small data files, and those with many deleted rows, as few clean ones.

    No row changes. It excludes `resolve`, which would have to begin again; other writers may go on.
    It runs as long as Iceberg takes to read and write the chosen files.
    """
    given = {  # as Java spells them
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in {_STARTING_SEQUENCE: False, **(options or {})}.items()
    }
    notes: tuple[str, ...] = ()
    if given[_STARTING_SEQUENCE].lower() == "true":
        risk = (
            f"With {_STARTING_SEQUENCE} Iceberg may drop equality deletes that are committed during"
            " the rewrite of all files: nobody should write any meanwhile."
        )
        notes = (risk,)
    watch = Stopwatch()
    head = _require_safe(table)
    if head is None:
        return CompactReport(str(table.name), dry_run=dry_run)
    if dry_run:
        with watch.phase("plan"):
            planned = _planned(table, head, where, given)
        return replace(planned, phases=watch.seconds, notes=notes)
    with ExitStack() as stack:
        with watch.phase("lock"):
            stack.enter_context(hold_lock(table, "COMPACT", lease=lease, wait=wait))
        newest = load_table(table.spark, table.name)
        _require_safe(newest)
        with watch.phase("rewrite"):
            row = _rewritten(newest, where, given)
    after = load_table(table.spark, table.name).metadata
    made = [
        each.id
        for each in after.ancestors()
        if each.id not in newest.metadata.snapshots and each.operation == "replace"
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
    with translate_errors(str(table.name)):
        rows = [row for each in removed for row in each.select("data_file.file_path").collect()]
    return outside_note(outside_of(table.metadata.location, [path for (path,) in rows]))


def _require_safe(table: LoadedTable) -> IcebergSnapshot | None:
    """Refuse what Iceberg's procedure would break; return the newest snapshot of `main`."""
    head = table.metadata.head()
    require_own_files(table)
    if head is None or head.summary.get("total-equality-deletes") == "0":
        return head
    found = equality_deletes(table, head.id)
    if found:
        raise PlanError(
            f"{MAIN} of {table.name} has {len(found)} equality deletes, such as {found[0].path}:"
            " Iceberg may lose some that are committed while all files are rewritten",
            hint=format_hint("{} turns them into deletion vectors; compact then", call("resolve")),
        )
    return head


def _rewritten(table: LoadedTable, where: str | None, options: Mapping[str, str]) -> Row:
    arguments = {"strategy": sql_string("binpack"), "options": sql_map(options)}
    if where is not None:
        arguments["where"] = sql_string(where)
    try:
        with _told(table):
            [row] = call_procedure(table, "rewrite_data_files", arguments)
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
) -> CompactReport:
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
    return CompactReport(
        str(table.name),
        files_rewritten=files,
        files_added=expected,
        bytes_rewritten=size,
        groups=count,
        delete_files_removed=None,
        dry_run=True,
    )


@contextmanager
def _told(table: LoadedTable) -> Iterator[None]:
    """Tell wrong options and conditions apart from failures."""
    try:
        with translate_errors(str(table.name)):
            yield
    except EngineError as error:
        cause = error.__cause__
        if not isinstance(cause, IllegalArgumentException) and _WRONG not in str(cause):
            raise
        raise InvalidArgumentError(
            f"{error.message} (compaction of {table.name})", hint=error.hint
        ) from error.__cause__
