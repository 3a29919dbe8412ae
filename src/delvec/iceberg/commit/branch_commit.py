"""One snapshot on a branch of an Iceberg table, and what has to be true of the table for it.

The snapshot, its statistics and table properties appear together. Here are as well the partition
spec of global deletes, which apply to all partitions of a table, and the tables that delvec refuses
to write to: the result would be another than their owner wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from delvec import errors
from delvec.documents import whole_number
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view
from delvec.iceberg.client.metadata import MAIN, TableMetadata
from delvec.iceberg.commit import marks
from delvec.iceberg.commit.commit import (
    Committed,
    RowChange,
    Transaction,
    commit,
    rewrite_deletes,
    row_delta,
)

if TYPE_CHECKING:
    from delvec.vector.puffin import BlobMetadata

_APPEND: Final = "append"
_ATTEMPTS: Final = 20
_DELETES_SINCE: Final = 2  # the format version
_NO_SOURCE: Final = -1  # snapshot and sequence number of a blob that holds for any


@dataclass(frozen=True)
class Txn:
    """The version of an application's transaction, such as the number of a streaming batch."""

    app_id: str
    version: int


@dataclass(frozen=True)
class NewStatistics:
    """The statistics file of a snapshot to be committed."""

    path: str
    size: int
    footer_size: int
    blobs: tuple[BlobMetadata, ...]


def commit_change(  # noqa: PLR0913
    table: LoadedTable,
    branch: str,
    change: RowChange,
    *,
    txn: Txn | None = None,
    statistics: NewStatistics | None = None,
    computed_on: int | None = None,
    needs_staging: bool = False,
    resolved: marks.StagedProgress | None = None,
    in_place: bool = False,
    verify: Callable[[LoadedTable, int], None] | None = None,
) -> Committed:
    """Commit one snapshot onto a branch, which is created from `main` if it does not exist.

    The driver's JVM holds the added files until their manifests are written: 1 to 2 kB each.

    Nothing is committed if the application of `txn` has committed that version or a later one.

    `computed_on` is the snapshot that row positions and removed files were computed on; the commit
    is refused if what came later touches them. Appends and equality deletes need none: they are
    right on top of any snapshot. With `resolved`, what the change takes over of a staging branch,
    nothing at all may have come since: rows of others have no place in the order of staged changes.
    With `in_place` the change deletes by position what is deleted by key, and no more. No reader
    has seen these rows, so nobody has updated them: what Iceberg itself validates is enough, that
    no data file is gone or has got other deletes. `needs_staging` is for what only staging branches
    of delvec's may hold. For `verify` see `commit`.
    """

    def snapshot(base: LoadedTable, transaction: Transaction) -> int:
        if needs_staging and not marks.is_staging(base.metadata, branch):
            raise errors.ConflictError(
                f"{branch} of {base.name} is not a staging branch any more: somebody replaced it",
                hint="run it again",
            )
        if resolved is not None:
            _require_staged(base, resolved)
            _require_head(base, branch, computed_on)
        elif computed_on is not None:
            _require_only_appends(base, branch, computed_on, or_others=in_place)
        _create_branch(transaction, base.metadata, branch)
        summary = {**change.summary, **_marks(base.metadata, branch, txn)}
        if resolved is not None:
            summary |= resolved.summary
        marked, opened = replace(change, summary=summary), transaction.handle
        transaction.add(row_delta(base, opened, branch, computed_on, marked))
        added: int = transaction.current.ref(branch).snapshotId()
        if statistics is not None:
            made = _statistics_file(base, statistics, added)
            transaction.add(opened.updateStatistics().setStatistics(made))
        wanted: dict[str, str] = {}
        if txn is not None:
            wanted[marks.txn_property(branch, txn.app_id)] = f"{txn.version}@{added}"
        if resolved is not None:
            made = transaction.current.snapshot(added)
            entry = marks.resolved_property(branch, resolved.staging)
            wanted[entry] = resolved.committed_as(added, made.sequenceNumber())
        transaction.set_properties(wanted)
        return added

    def is_done(base: LoadedTable) -> bool:
        require_branch(base.metadata, branch, str(base.name))
        return txn is not None and is_committed(base.metadata, branch, txn)

    what = f"COMMIT to {branch}"
    return commit(table, snapshot, what=what, attempts=_ATTEMPTS, is_done=is_done, verify=verify)


def commit_rewrite(
    table: LoadedTable,
    branch: str,
    added: Sequence[tuple[str, int]],
    removed: Sequence[str],
    summary: Mapping[str, str],
) -> Committed:
    """Replace delete files of a branch by others that delete the same rows, in one snapshot.

    It is committed on the metadata that was loaded or not at all: which sequence number a merged
    file may have follows from all live data files, so any other commit calls for a new plan.

    `added` are JSON objects of delete files, each with the data sequence number that it keeps,
    `removed` are paths, and `summary` has further entries of the snapshot's summary.
    """

    def snapshot(base: LoadedTable, transaction: Transaction) -> int:
        entries = {**summary, **_marks(base.metadata, branch, None)}
        opened = transaction.handle
        transaction.add(rewrite_deletes(base, opened, branch, added, removed, entries))
        made: int = transaction.current.ref(branch).snapshotId()
        return made

    require_branch(table.metadata, branch, str(table.name))
    return commit(table, snapshot, what=f"REWRITE of {branch}")


def is_committed(metadata: TableMetadata, branch: str, txn: Txn) -> bool:
    """Tell whether an application has committed a version, or a later one, to a branch.

    Snapshots tell, and a table property where they have expired. A commit that was rolled back does
    not count as long as its snapshot is retained, with those that tell so. A branch that does not
    exist is about to be made from `main`, and has what `main` has: it may have been published and
    dropped.
    """
    exists = branch in metadata.refs
    for snapshot in metadata.ancestors(branch if exists else MAIN):
        if snapshot.summary.get(marks.TXN_APP) == txn.app_id:
            return marks.txn_version(snapshot) >= txn.version
    name = marks.txn_property(branch, txn.app_id)
    found = metadata.properties.get(name, "")
    if not exists or not found:
        return False
    version, snapshot_id = (whole_number(each, signed=True) for each in found.partition("@")[::2])
    if version is None or snapshot_id is None:
        raise errors.FormatError(
            f"the property {name} does not tell what was committed",
            expected="<version>@<snapshot>",
            found=repr(found[:40]),
            hint="write with another txn_app_id, or remove the property",
        )
    if version < txn.version:
        return False
    committed = metadata.snapshots.get(snapshot_id)
    # A retained snapshot that the branch certainly does not come from was rolled back.
    return (
        committed is None
        or metadata.is_ancestor(branch, committed.sequence_number, committed.id) is not False
    )


def require_branch(metadata: TableMetadata, branch: str, table: str) -> None:
    ref = metadata.refs.get(branch)
    if ref is not None and not ref.is_branch:
        raise errors.InvalidArgumentError(
            f"{branch} is a tag of {table}, and tags do not change", hint="name a branch"
        )


def _require_only_appends(
    table: LoadedTable, branch: str, since: int, *, or_others: bool = False
) -> None:
    """Refuse a change that was computed on a snapshot if its rows may have moved or changed since.

    Iceberg's validations do not see that an update has written a row again that a removed data file
    had, or, in format version 2, a row that gets a position delete.
    """
    metadata = table.metadata
    for snapshot in metadata.ancestors(branch if branch in metadata.refs else MAIN):
        if snapshot.id == since:
            return
        if snapshot.operation != _APPEND and not or_others:
            break
    raise errors.PlanError(
        f"somebody else changed rows of {branch} of {table.name} since snapshot {since}",
        hint="run it again: the rows are then looked for again",
    )


def _require_head(table: LoadedTable, branch: str, computed_on: int | None) -> None:
    """Refuse a change that was computed on another snapshot than the newest of a branch."""
    head = table.metadata.head(branch)
    found = None if head is None else head.id
    if found != computed_on:
        raise errors.PlanError(
            f"somebody else committed to {branch} of {table.name}: expected snapshot {computed_on},"
            f" found {found}",
            hint="run it again",
        )


def _require_staged(table: LoadedTable, resolved: marks.StagedProgress) -> None:
    """Refuse changes that their branch does not have any more: their files may be deleted soon."""
    staged = {each.id for each in table.metadata.ancestors(resolved.staging)}
    if resolved.snapshot_id not in staged:
        raise errors.ConflictError(
            f"branch {resolved.staging} of {table.name} was dropped or moved meanwhile: expected"
            f" snapshot {resolved.snapshot_id} on it",
            hint="run it again",
        )


def _create_branch(transaction: Transaction, metadata: TableMetadata, branch: str) -> None:
    if branch == MAIN or branch in metadata.refs:
        return
    # Iceberg would begin a new branch by itself, but count its totals from zero.
    head = metadata.head()
    snapshots = transaction.handle.manageSnapshots()
    transaction.add(
        snapshots.createBranch(branch, head.id) if head else snapshots.createBranch(branch)
    )
    # Those of a branch of that name that others dropped.
    transaction.set_properties(dict.fromkeys(marks.txn_properties(metadata, branch)))


def _marks(metadata: TableMetadata, branch: str, txn: Txn | None) -> dict[str, str]:
    found = {} if txn is None else {marks.TXN_APP: txn.app_id, marks.TXN_VERSION: str(txn.version)}
    if branch != MAIN:
        found[marks.BRANCH_SUMMARY] = branch
    if marks.is_staging(metadata, branch):
        found[marks.STAGING_SUMMARY] = branch
    return found


def _statistics_file(table: LoadedTable, statistics: NewStatistics, snapshot_id: int) -> Any:  # noqa: ANN401
    view = iceberg_view(table.spark)
    blobs = [
        view.GenericBlobMetadata(
            blob.type, snapshot_id, _NO_SOURCE, list(blob.fields), dict(blob.properties)
        )
        for blob in statistics.blobs
    ]
    return view.GenericStatisticsFile(
        snapshot_id, statistics.path, statistics.size, statistics.footer_size, blobs
    )


def with_unpartitioned_spec(table: LoadedTable) -> tuple[LoadedTable, int]:
    """Return a table and the partition spec of its global deletes, which apply to all partitions.

    A partitioned table gets a second spec without fields, once; its default spec stays. (The spec
    of id 0 is no such spec there, it is the partitioned one.)
    """

    def spec(base: LoadedTable, transaction: Transaction) -> None:
        update = transaction.handle.updateSpec()
        for field in base.metadata.spec["fields"]:
            update = update.removeField(field["name"])
        transaction.add(update.addNonDefaultSpec())

    def is_done(base: LoadedTable) -> bool:
        return _unpartitioned(base.metadata) is not None

    newest = commit(table, spec, what="ADD SPEC", attempts=_ATTEMPTS, is_done=is_done).table
    added = _unpartitioned(newest.metadata)
    if added is None:
        raise errors.ConflictError(
            f"{table.name} has lost its unpartitioned spec: somebody removed it"
        )
    return newest, added


def _unpartitioned(metadata: TableMetadata) -> int | None:
    """Return the id of a spec without fields, or with fields that are void."""
    for spec in (metadata.spec, *metadata.specs.values()):
        if all(field["transform"] == "void" for field in spec["fields"]):
            found: int = spec["spec-id"]
            return found
    return None


def require_writable(table: LoadedTable) -> None:
    """Refuse a table that the session wants audited, and partition specs of void fields alone.

    A write that waits for an audit would be published at once; Iceberg cannot describe such specs
    in JSON.
    """
    audited = table.metadata.properties.get("write.wap.enabled", "").lower() == "true"
    for setting in ("spark.wap.id", "spark.wap.branch") if audited else ():
        value = table.spark.conf.get(setting, None)
        if value is not None:
            raise errors.UnsupportedFeatureError(
                f"{setting} is {value}, by which writes to {table.name} wait for an audit",
                feature="write-audit-publish by settings",
                hint=f"unset {setting}, and name the branch that is audited: branch=...",
            )
    for spec in table.metadata.specs.values():
        if spec["fields"] and all(field["transform"] == "void" for field in spec["fields"]):
            raise errors.UnsupportedFeatureError(
                f"{table.name} has the partition spec {spec['spec-id']} of format version 1, all"
                " fields of which were dropped",
                feature="partition specs of void fields",
                hint="write to the table by Spark's own INSERT, DELETE and MERGE",
            )


def require_row_deletes(table: LoadedTable) -> None:
    """Refuse a table of format version 1."""
    found = table.metadata.format_version
    if found < _DELETES_SINCE:
        raise errors.UnsupportedFeatureError(
            f"{table.name} is of format version {found}, which has no row-level deletes: expected 2"
            " or 3",
            feature=f"format version {found}",
            hint=f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version' = '3')",
        )
