"""One snapshot on a branch of an Iceberg table.

Each commit is made on the very metadata that was read, and made again on newer metadata after a
lost race. So a check of that metadata, such as whether a transaction was committed before, holds
for the commit, and the snapshot, its statistics and table properties appear together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from delvec.documents import whole_number
from delvec.errors import ConflictError, FormatError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.commits.attempts import Committed, committed
from delvec.iceberg.commits.commit import change_properties
from delvec.iceberg.commits.marks import (
    BRANCH_SUMMARY,
    STAGING_SUMMARY,
    TXN_APP,
    TXN_VERSION,
    is_staging,
    txn_properties,
    txn_property,
    txn_version,
)
from delvec.iceberg.commits.progress import resolved_property
from delvec.iceberg.commits.row_delta import rewrite_deletes, row_delta
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata
    from delvec.iceberg.commits.changes import RowChange
    from delvec.iceberg.commits.progress import Resolved

__all__ = [
    "Committed",
    "NewStatistics",
    "StatisticsBlob",
    "Txn",
    "commit_change",
    "commit_rewrite",
    "is_committed",
    "require_branch",
]

_APPEND: Final = "append"
_ATTEMPTS: Final = 20
_NO_SOURCE: Final = -1  # snapshot and sequence number of a blob that holds for any


@dataclass(frozen=True)
class Txn:
    """The version of an application's transaction, such as the number of a streaming batch."""

    app_id: str
    version: int


@dataclass(frozen=True)
class StatisticsBlob:
    """A blob of a statistics file, as table metadata describes it."""

    type: str
    fields: tuple[int, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True)
class NewStatistics:
    """The statistics file of a snapshot to be committed."""

    path: str
    size: int
    footer_size: int
    blobs: tuple[StatisticsBlob, ...]


def commit_change(  # noqa: PLR0913
    table: LoadedTable,
    branch: str,
    change: RowChange,
    *,
    txn: Txn | None = None,
    statistics: NewStatistics | None = None,
    computed_on: int | None = None,
    needs_staging: bool = False,
    resolved: Resolved | None = None,
    in_place: bool = False,
    verify: Callable[[LoadedTable, int], None] | None = None,
) -> Committed:
    """Commit one snapshot onto a branch, which is created from `main` if it does not exist.

    The driver's JVM holds the added files until their manifests are written: 1 to 2 kB each.

    Args:
        table: The table.
        branch: The branch.
        change: Files and entries of the summary.
        txn: Commit nothing if the application has committed this version or a later one.
        statistics: The statistics file of the new snapshot.
        computed_on: The snapshot that row positions and removed files were computed on; the commit
            is refused if what came later touches them. Appends and equality deletes need none: they
            are right on top of any snapshot.
        needs_staging: Whether the change is for staging branches of delvec's only.
        resolved: What the change takes over of a staging branch. Nothing at all may have come since
            `computed_on` then: rows of others have no place in the order of staged changes.
        in_place: Whether the change deletes by position what is deleted by key, and no more. No
            reader has seen these rows, so nobody has updated them: what Iceberg itself validates
            is enough, that no data file is gone or has got other deletes.
        verify: Looks at the table as it would be, with the new snapshot; raises if it is wrong.

    Raises:
        ConflictError: Others committed to the table at the same time, again and again, or have
            replaced it.
        PlanError: A file to be removed or to get new deletes is gone.
        CommitStateUnknownError: The commit may have happened or not.
    """

    def snapshot(base: LoadedTable, transaction: Any) -> int:  # noqa: ANN401
        if needs_staging and not is_staging(base.metadata, branch):
            raise ConflictError(
                f"{branch} of {base.name} is no staging branch any more: somebody replaced it",
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
        marked = replace(change, summary=summary)
        name = str(base.name)
        row_delta(base.spark, transaction, branch, computed_on, marked, name).commit()
        added: int = transaction.currentMetadata().ref(branch).snapshotId()
        if statistics is not None:
            made = _statistics_file(base.spark, statistics, added)
            transaction.updateStatistics().setStatistics(made).commit()
        wanted: dict[str, str] = {}
        if txn is not None:
            wanted[txn_property(branch, txn.app_id)] = f"{txn.version}@{added}"
        if resolved is not None:
            made = transaction.currentMetadata().snapshot(added)
            entry = resolved_property(branch, resolved.staging)
            wanted[entry] = resolved.committed_as(added, made.sequenceNumber())
        change_properties(transaction, wanted)
        return added

    def is_done(base: LoadedTable) -> bool:
        require_branch(base.metadata, branch, str(base.name))
        return txn is not None and is_committed(base.metadata, branch, txn)

    return committed(table, _ATTEMPTS, snapshot, is_done=is_done, verify=verify)


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

    Args:
        table: The table that the change was planned on.
        branch: The branch.
        added: JSON objects of delete files, each with the data sequence number that it keeps.
        removed: Paths of delete files.
        summary: Further entries of the snapshot's summary.

    Raises:
        ConflictError: Somebody else has committed to the table since it was loaded.
        CommitStateUnknownError: The commit may have happened or not.
    """

    def snapshot(base: LoadedTable, transaction: Any) -> int:  # noqa: ANN401
        head = base.metadata.refs[branch].snapshot_id
        marks = {**summary, **_marks(base.metadata, branch, None)}
        name = str(base.name)
        rewrite_deletes(base.spark, transaction, branch, head, added, removed, marks, name).commit()
        made: int = transaction.currentMetadata().ref(branch).snapshotId()
        return made

    require_branch(table.metadata, branch, str(table.name))
    return committed(table, 1, snapshot)


def is_committed(metadata: TableMetadata, branch: str, txn: Txn) -> bool:
    """Tell whether an application has committed a version, or a later one, to a branch.

    Snapshots tell, and a table property where they have expired. A commit that was rolled back does
    not count as long as its snapshot is retained, with those that tell so. A branch that does not
    exist is about to be made from `main`, and has what `main` has: it may have been published and
    dropped.
    """
    exists = branch in metadata.refs
    for snapshot in metadata.ancestors(branch if exists else MAIN):
        if snapshot.summary.get(TXN_APP) == txn.app_id:
            return txn_version(snapshot) >= txn.version
    if not exists:
        return False
    found = metadata.properties.get(txn_property(branch, txn.app_id), "")
    if not found:
        return False
    version, snapshot_id = (whole_number(each, signed=True) for each in found.partition("@")[::2])
    if version is None or snapshot_id is None:
        raise FormatError(
            f"the property {txn_property(branch, txn.app_id)} does not tell what was committed",
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
    """Refuse the name of a tag.

    Raises:
        InvalidArgumentError: It is one.
    """
    ref = metadata.refs.get(branch)
    if ref is not None and not ref.is_branch:
        raise InvalidArgumentError(
            f"{branch} is a tag of {table}, and tags do not change",
            hint="name a branch",
        )


def _require_only_appends(
    table: LoadedTable, branch: str, since: int, *, or_others: bool = False
) -> None:
    """Refuse a change that was computed on a snapshot if its rows may have moved or changed since.

    Iceberg's validations do not see that an update has written a row again that a removed data file
    had, or, in format version 2, a row that gets a position delete.

    Raises:
        PlanError: Other snapshots than appends came since, or the branch was rolled back.
    """
    metadata = table.metadata
    for snapshot in metadata.ancestors(branch if branch in metadata.refs else MAIN):
        if snapshot.id == since:
            return
        if snapshot.operation != _APPEND and not or_others:
            break
    raise PlanError(
        f"somebody else changed rows of {branch} of {table.name} since snapshot {since}",
        hint="run it again: the rows are then looked for anew",
    )


def _require_head(table: LoadedTable, branch: str, computed_on: int | None) -> None:
    """Refuse a change that was computed on another snapshot than the newest of a branch.

    Raises:
        PlanError: The branch has moved.
    """
    head = table.metadata.head(branch)
    found = None if head is None else head.id
    if found != computed_on:
        raise PlanError(
            f"somebody else committed to {branch} of {table.name}: expected snapshot {computed_on},"
            f" found {found}",
            hint="run it again",
        )


def _require_staged(table: LoadedTable, resolved: Resolved) -> None:
    """Refuse changes that their branch does not have any more: their files may be deleted soon.

    Raises:
        ConflictError: The branch was dropped, or moved back.
    """
    staged = {each.id for each in table.metadata.ancestors(resolved.staging)}
    if resolved.snapshot_id not in staged:
        raise ConflictError(
            f"branch {resolved.staging} of {table.name} was dropped or moved meanwhile: expected"
            f" snapshot {resolved.snapshot_id} on it",
            hint="run it again",
        )


def _create_branch(transaction: Any, metadata: TableMetadata, branch: str) -> None:  # noqa: ANN401
    if branch == MAIN or branch in metadata.refs:
        return
    # Iceberg would begin a new branch by itself, but count its totals from zero.
    head = metadata.head()
    snapshots = transaction.manageSnapshots()
    made = snapshots.createBranch(branch, head.id) if head else snapshots.createBranch(branch)
    made.commit()
    # Those of a branch of that name that others dropped.
    change_properties(transaction, dict.fromkeys(txn_properties(metadata, branch)))


def _marks(metadata: TableMetadata, branch: str, txn: Txn | None) -> dict[str, str]:
    marks = {} if txn is None else {TXN_APP: txn.app_id, TXN_VERSION: str(txn.version)}
    if branch != MAIN:
        marks[BRANCH_SUMMARY] = branch
    return {**marks, STAGING_SUMMARY: branch} if is_staging(metadata, branch) else marks


def _statistics_file(spark: SparkSession, statistics: NewStatistics, snapshot_id: int) -> Any:  # noqa: ANN401
    view, util = iceberg_view(spark), jvm.view_of(spark).java.util
    blobs = util.ArrayList()
    for blob in statistics.blobs:
        fields, properties = util.ArrayList(), util.HashMap()
        for each in blob.fields:
            fields.add(each)
        for key, value in blob.properties.items():
            properties.put(key, value)
        blobs.add(view.GenericBlobMetadata(blob.type, snapshot_id, _NO_SOURCE, fields, properties))
    return view.GenericStatisticsFile(
        snapshot_id, statistics.path, statistics.size, statistics.footer_size, blobs
    )
