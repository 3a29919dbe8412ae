"""Merging the many small equality deletes of a branch into few, in one commit.

No row changes, and nothing but delete files is read: see `delete_groups` for what may be merged.
The commit is made on the very metadata that the plan was made on. If somebody else has committed
meanwhile a new plan is made; files that were written for the old one are used again where they fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from delvec.documents import parse_json
from delvec.errors import ConflictError, PlanError
from delvec.iceberg.client.catalog import LoadedTable, load_table, require_same_table
from delvec.iceberg.client.files import EqualityDeleteFile, equality_deletes
from delvec.iceberg.client.metadata import TableMetadata, branch_head
from delvec.iceberg.commit.branch_commit import commit_rewrite, require_branch
from delvec.iceberg.commit.marks import is_staging
from delvec.iceberg.deletes.equality_files import Scope
from delvec.iceberg.deletes.key_columns import key_paths
from delvec.iceberg.deletes.write_keys import WrittenDeletes, write_deletes
from delvec.iceberg.maintain import delete_groups
from delvec.report.format import format_count, format_list, format_outcome, format_size, nonzero
from delvec.report.rendering import Line, Rendered, Stopwatch, doc, documented, required, summary
from delvec.spark.engine import open_storage
from delvec.spark.jobs import describe_jobs, interruptible
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles

_SHOWN: Final = 10
_ATTEMPTS: Final = 5


@documented()
class UnmergedDeletes:
    """Equality deletes of the same key and scope that stay apart."""

    columns: tuple[str, ...] = required("The key columns.")
    scope: str = required("The partition that they apply to, or `global`.")
    deletes: int = required("How many are left.")
    reason: str = required("Why, in a few words.")


@documented()
class ConsolidateReport(Rendered):
    """What a consolidation of equality deletes did.

    >>> print(ConsolidateReport("lake.db.orders", "main", 7, files_before=40, files_after=1))
    CONSOLIDATE DELETES of lake.db.orders: snapshot 7 of main
      equality-delete files  40 -> 1
    """

    table: str = required("The name of the table.")
    branch: str = required("The branch.")
    snapshot_id: int | None = doc("The snapshot committed; None if there was nothing to do.", None)
    dry_run: bool = doc(
        "Whether nothing was written. What is `after` is then expected, and the bytes and keys"
        " of merged deletes are not known.",
        False,
    )
    files_before: int = doc("Ordinary equality-delete files.", 0)
    files_after: int = doc("Those that are left.", 0)
    vectors_before: int = doc("Equality delete vectors in the manifests.", 0)
    vectors_after: int = doc("Those that are left.", 0)
    keys_before: int = doc("Keys in all of these; one in several deletes counts for each.", 0)
    keys_after: int | None = doc("Keys that are left; None in a dry run.", 0)
    bytes_before: int = doc("The size of the files.", 0)
    bytes_after: int | None = doc("The size of what is left; None in a dry run.", 0)
    merged: int = doc("Deletes that became fewer.", 0)
    repaired: int = doc("Vectors that became ordinary files, which stock readers can read.", 0)
    dangling: int = doc("Deletes that were removed since they apply to no data file.", 0)
    unmerged: tuple[UnmergedDeletes, ...] = doc("Deletes of one key and scope that stay apart.", ())
    forms: tuple[str, ...] = doc("In which form keys were written and why, in sentences.", ())
    conflicts: int = doc("Concurrent commits after which it was planned again.", 0)
    phases: Mapping[str, float] = doc("Seconds by phase.", dict)

    def _lines(self) -> Iterator[Line]:
        details = list(self.forms[:_SHOWN])
        for each in self.unmerged[:_SHOWN]:
            key = ", ".join(each.columns)
            many = format_count(each.deletes, "delete")
            details.append(f"{many} by {key} ({each.scope}) stay apart: {each.reason}")
        if left := max(len(self.unmerged) - _SHOWN, 0) + max(len(self.forms) - _SHOWN, 0):
            details.append(f"… and {left:,} more")
        counts = {"merged": self.merged, "dangling": self.dangling, "made readable": self.repaired}
        outcome = format_outcome(self.branch, self.snapshot_id, dry_run=self.dry_run)
        return summary(
            f"CONSOLIDATE DELETES of {self.table}: {outcome}",
            {
                "equality-delete files": _change(self.files_before, self.files_after),
                "vectors": _change(self.vectors_before, self.vectors_after),
                "keys": _change(self.keys_before, self.keys_after),
                "size": _sizes(self.bytes_before, self.bytes_after),
                "deletes": format_list(**counts),
                "concurrent commits": nonzero(self.conflicts),
            },
            self.phases,
            details=details,
        )


def consolidate_deletes(
    table: LoadedTable, branch: str, *, dry_run: bool = False
) -> ConsolidateReport:
    """Merge equality deletes of a branch, and remove those that apply to nothing.

    Files of more than 32 MiB or 10 million keys stay as they are. Merged deletes are ordinary files
    or, on a staging branch, vectors, by the choice of `write_deletes`; ordinary files get no
    vectors beside them. A vector on another branch becomes an ordinary file, which stock readers
    can read. The driver holds up to 2 million keys at once, and all keys of a larger group if
    `spark.delvec.iceberg.keyMemory` allows.
    """
    watch = Stopwatch()
    uuid = table.metadata.uuid
    with interruptible(table.spark), ExitStack() as held:
        files = _Written(held)
        for attempt in range(_ATTEMPTS):
            if attempt:
                table = load_table(table.spark, table.name)
                require_same_table(table, uuid)
            with watch.phase(
                "plan", describe_jobs(table.spark, f"equality deletes of {table.name}")
            ):
                planned = _planned(table, branch)
            if dry_run or planned.plan.is_empty:
                return replace(_expected(planned, dry_run=dry_run), phases=watch.seconds)
            with watch.phase("merge", describe_jobs(table.spark, f"deleted keys of {table.name}")):
                planned = files.write(planned)
            report = _expected(planned)
            if not planned.plan.is_empty:
                try:
                    with watch.phase("commit"):
                        snapshot_id = _commit(planned, files)
                except ConflictError:
                    continue
                report = _completed(report, planned, files, snapshot_id)
            return replace(report, conflicts=attempt, phases=watch.seconds)
    raise ConflictError(
        f"others committed to {table.name} while its equality deletes were merged, {_ATTEMPTS}"
        " times in a row",
        hint="run it again, or while less is written to the table",
    )


def scope_name(metadata: TableMetadata, spec_id: int, partition_json: str) -> str:
    """Return the partition of an equality delete as text; `global` for all."""
    if delete_groups.is_global(metadata, spec_id):
        return "global"
    names = [field["name"] for field in metadata.specs[spec_id]["fields"]]
    values = parse_json(partition_json, "the partition of a delete file")
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=False))


def _change(before: int, after: int | None) -> str:
    if after is None or (not before and not after):
        return f"{before:,}" if before else ""
    return f"{before:,} -> {after:,}"


def _sizes(before: int, after: int | None) -> str:
    sizes = [format_size(each) for each in (before, after) if each is not None]
    return " -> ".join(sizes) if before else ""


@dataclass(frozen=True)
class _Planned:
    """The equality deletes of a branch, and what is to be done with them."""

    table: LoadedTable
    branch: str
    staging: bool
    snapshot_id: int
    deletes: tuple[EqualityDeleteFile, ...]
    plan: delete_groups.DeletePlan


def _planned(table: LoadedTable, branch: str) -> _Planned:
    name = str(table.name)
    require_branch(table.metadata, branch, name)
    head = branch_head(table.metadata, name, branch)
    staging = is_staging(table.metadata, branch)
    deletes = () if head is None else equality_deletes(table, head.id)
    if head is None or not deletes:
        return _Planned(table, branch, staging, 0, (), delete_groups.DeletePlan())
    sequences = delete_groups.data_sequences(table, head.id, deletes)
    keys = {tuple(sorted(each.equality_ids)) for each in deletes}
    reasons = {ids: delete_groups.why_unwritable(table, ids) for ids in keys}
    unwritable = {ids: reason for ids, reason in reasons.items() if reason is not None}
    plan = delete_groups.plan_deletes(deletes, sequences, staging=staging, unwritable=unwritable)
    return _Planned(table, branch, staging, head.id, deletes, plan)


class _Written:
    """Merged deletes that are written, by the group that they replace."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._by_group: dict[tuple[object, ...], tuple[UncommittedFiles, WrittenDeletes]] = {}

    def write(self, planned: _Planned) -> _Planned:
        """Write what is not written yet; return the plan without groups that stay as many files."""
        table, plan = planned.table, planned.plan
        missing = [each for each in plan.groups if self._key(planned, each) not in self._by_group]
        for group, keys in delete_groups.group_keys(table, planned.snapshot_id, missing):
            storage = open_storage(table.spark, local_path(table.metadata.location))
            uncommitted = self._held.enter_context(UncommittedFiles(storage))
            written = write_deletes(
                keys,
                delete_groups.group_columns(table, group.kind.ids),
                table,
                Scope(group.kind.spec_id, group.kind.partition_json),
                staging=planned.staging,
                uncommitted=uncommitted,
                companions=False,
            )
            self._by_group[self._key(planned, group)] = uncommitted, written
        kept = [
            group
            for group in plan.groups
            if len(self.of(planned, group).delete_files) < len(group.files)
            or (group.has_vectors and not planned.staging)
        ]
        return replace(planned, plan=replace(plan, groups=tuple(kept)))

    def of(self, planned: _Planned, group: delete_groups.DeleteGroup) -> WrittenDeletes:
        return self._by_group[self._key(planned, group)][1]

    def keep(self, planned: _Planned) -> None:
        """Keep the files of a plan, which is about to be committed."""
        for group in planned.plan.groups:
            self._by_group[self._key(planned, group)][0].keep()

    def discard(self) -> None:
        """Remove all files at the end, unless they are committed after all."""
        for uncommitted, _ in self._by_group.values():
            uncommitted.discard()

    def _key(self, planned: _Planned, group: delete_groups.DeleteGroup) -> tuple[object, ...]:
        # Types and names of columns may have changed between two plans.
        columns = delete_groups.group_columns(planned.table, group.kind.ids)
        paths = sorted(each.path for each in group.files)
        return (planned.staging, group.kind, columns, *paths)


def _commit(planned: _Planned, files: _Written) -> int | None:
    plan = planned.plan
    added = [
        (entry, group.sequence_number)
        for group in plan.groups
        for entry in files.of(planned, group).delete_files.to_pylist()
    ]
    removed = [each.path for each in plan.removed]
    summary = {
        "delvec.operation": "consolidate-deletes",
        "delvec.merged-equality-deletes": str(len(removed) - len(plan.dangling)),
        "delvec.dangling-equality-deletes": str(len(plan.dangling)),
    }
    files.keep(planned)
    try:
        done = commit_rewrite(planned.table, planned.branch, added, removed, summary)
    except (ConflictError, PlanError):
        files.discard()
        raise
    return done.snapshot_id


def _expected(planned: _Planned, *, dry_run: bool = False) -> ConsolidateReport:
    """Return the report of a plan that is not carried out, as far as it can be told."""
    plan, deletes = planned.plan, planned.deletes
    gone = {each.path for each in plan.removed}
    left = [each for each in deletes if each.path not in gone]
    vectors = sum(each.is_vector for each in deletes)
    merged = [each for group in plan.groups for each in group.files]
    new = [planned.staging and group.has_vectors for group in plan.groups]
    return ConsolidateReport(
        str(planned.table.name),
        planned.branch,
        dry_run=dry_run,
        files_before=len(deletes) - vectors,
        files_after=sum(not each.is_vector for each in left) + len(new) - sum(new),
        vectors_before=vectors,
        vectors_after=sum(each.is_vector for each in left) + sum(new),
        keys_before=sum(each.record_count for each in deletes),
        keys_after=None if merged else sum(each.record_count for each in left),
        bytes_before=sum(each.size for each in deletes),
        bytes_after=None if merged else sum(each.size for each in left),
        merged=len(merged),
        repaired=0 if planned.staging else sum(each.is_vector for each in merged),
        dangling=len(plan.dangling),
        unmerged=tuple(
            UnmergedDeletes(
                _names(planned.table.metadata, each.kind),
                scope_name(planned.table.metadata, each.kind.spec_id, each.kind.partition_json),
                each.deletes,
                each.reason,
            )
            for each in plan.apart
        ),
    )


def _completed(
    expected: ConsolidateReport, planned: _Planned, files: _Written, snapshot_id: int | None
) -> ConsolidateReport:
    written = [files.of(planned, group) for group in planned.plan.groups]
    gone = {each.path for each in planned.plan.removed}
    left = [each for each in planned.deletes if each.path not in gone]
    entries = [json.loads(entry) for each in written for entry in each.delete_files.to_pylist()]
    return replace(
        expected,
        snapshot_id=snapshot_id,
        files_after=sum(not each.is_vector for each in left) + sum(each.files for each in written),
        vectors_after=sum(each.is_vector for each in left) + sum(each.vectors for each in written),
        keys_after=sum(each.record_count for each in left) + sum(each.keys for each in written),
        bytes_after=sum(each.size for each in left)
        + sum(each["file-size-in-bytes"] for each in entries),
        forms=tuple(form for each in written for form in each.forms),
    )


def _names(metadata: TableMetadata, kind: delete_groups.Kind) -> tuple[str, ...]:
    """Return the names of key columns; of a dropped one that of its field id."""
    paths = key_paths(metadata.schema)
    return tuple(".".join(paths.get(each, (f"field {each}",))) for each in kind.ids)
