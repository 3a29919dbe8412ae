"""What delvec writes down about branches, in properties of the table and summaries of snapshots.

Staging branches are delvec's own: only they may hold equality delete vectors alone, which stock
readers cannot read. A branch is one if delvec made it so, whatever its name: the table has the
property `delvec.staging.<branch>`, and a snapshot that the branch does not share with `main` has
the branch in its summary. A branch that others drop and make again has no such snapshot.

Transactions of applications are in summaries, and the newest of each application in the property
`delvec.txn.<branch>.<application>` as well, for when the snapshot expires: `<version>@<snapshot>`.

A snapshot that takes over changes of a staging branch says in its summary how far. The newest of
these is found by going back from the head of the target, so a rollback of the target takes the
progress back as well. A property of the table, set in the same commit, is for when that snapshot
has expired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delvec.documents import whole_number
from delvec.errors import FormatError
from delvec.iceberg.client.metadata import MAIN, IcebergSnapshot, TableMetadata

STAGING_PROPERTY: Final = "delvec.staging."
"""Table property of a staging branch, followed by its name: the snapshot that it began with."""
STAGING_SUMMARY: Final = "delvec.staging-branch"
"""Entry of the summary of each snapshot that delvec commits to a staging branch: its name."""
BRANCH_SUMMARY: Final = "delvec.branch"
"""Entry of the summary of each snapshot that delvec commits to a branch other than `main`."""
TXN_APP: Final = "delvec.txn-app-id"
TXN_VERSION: Final = "delvec.txn-version"
TXN_PROPERTY: Final = "delvec.txn."
_SHOWN: Final = 40
_BRANCH: Final = "delvec.resolved-branch"
_SNAPSHOT: Final = "delvec.resolved-snapshot"
_SEQUENCE: Final = "delvec.resolved-sequence"
_FILES: Final = "delvec.resolved-files"
_PROPERTY: Final = "delvec.resolved."
_PARTS: Final = 5


def is_staging(metadata: TableMetadata, branch: str) -> bool:
    """Return whether a branch is a staging branch of delvec's; `main` never is."""
    ref = metadata.refs.get(branch)
    if ref is None or not ref.is_branch or branch == MAIN:
        return False
    if STAGING_PROPERTY + branch not in metadata.properties:
        return False
    shared = {snapshot.id for snapshot in metadata.ancestors(MAIN)}
    for snapshot in metadata.ancestors(branch):
        if snapshot.id in shared:
            return False
        if snapshot.summary.get(STAGING_SUMMARY) == branch:
            return True
    return False


def staging_branches(metadata: TableMetadata) -> tuple[str, ...]:
    return tuple(name for name in sorted(metadata.refs) if is_staging(metadata, name))


def txn_version(snapshot: IcebergSnapshot) -> int:
    """Return the version of the transaction that a snapshot says it has committed."""
    written = snapshot.summary.get(TXN_VERSION, "")
    found = whole_number(written, signed=True)
    if found is None:
        raise FormatError(
            f"the summary of snapshot {snapshot.id} has a transaction without a version",
            expected=f"a number as {TXN_VERSION}",
            found=repr(written[:_SHOWN]),
            hint="write with another txn_app_id, or roll back to a snapshot before it",
        )
    return found


def txn_property(branch: str, app_id: str) -> str:
    """Return the property of an application's transactions on a branch.

    Dots of the branch are escaped: `a` with the application `b.c` is not `a.b` with `c`.
    """
    return f"{TXN_PROPERTY}{_escaped(branch)}.{app_id}"


def txn_properties(metadata: TableMetadata, branch: str) -> dict[str, str]:
    """Return the properties of a branch's transactions: applications by property."""
    own = txn_property(branch, "")
    return {key: key.removeprefix(own) for key in metadata.properties if key.startswith(own)}


def _escaped(branch: str) -> str:
    return branch.replace("%", "%25").replace(".", "%2E")


@dataclass(frozen=True)
class StagedProgress:
    """What was taken over of a staging branch: all up to one of its snapshots.

    Attributes:
        sequence_number: That of the snapshot; later changes have higher ones.
        data_files: How many data files the snapshot has.
    """

    staging: str
    snapshot_id: int
    sequence_number: int
    data_files: int

    @property
    def summary(self) -> Mapping[str, str]:
        """Entries of the summary of the snapshot that takes it over."""
        return {
            _BRANCH: self.staging,
            _SNAPSHOT: str(self.snapshot_id),
            _SEQUENCE: str(self.sequence_number),
            _FILES: str(self.data_files),
        }

    def committed_as(self, snapshot_id: int, sequence_number: int) -> str:
        """Return the value of the table property, given the snapshot that takes it over."""
        own = (self.snapshot_id, self.sequence_number, self.data_files)
        return " ".join(map(str, (*own, snapshot_id, sequence_number)))


def resolved_property(target: str, staging: str) -> str:
    """Return the name of the table property; dots of the target are escaped."""
    return f"{_PROPERTY}{_escaped(target)}.{staging}"


def resolved_properties(metadata: TableMetadata, staging: str) -> tuple[str, ...]:
    found = (key for key in metadata.properties if key.startswith(_PROPERTY))
    # The target is escaped: the first dot ends it.
    return tuple(key for key in found if key[len(_PROPERTY) :].partition(".")[1:] == (".", staging))


def read_progress(metadata: TableMetadata, target: str, staging: str) -> StagedProgress | None:
    """Return what a target has taken over of a staging branch; None if nothing is known."""
    for snapshot in metadata.ancestors(target):
        own = _of_summary(snapshot)
        if own is not None and own.staging == staging:
            return own
    parts = metadata.properties.get(resolved_property(target, staging), "").split()
    numbers = [number for part in parts if (number := whole_number(part, signed=True)) is not None]
    if not len(parts) == len(numbers) == _PARTS:
        return None
    *found, committed, sequence = numbers
    # A snapshot that the target certainly does not come from was rolled back.
    if metadata.is_ancestor(target, sequence, committed) is False:
        return None
    return StagedProgress(staging, *found)


def _of_summary(snapshot: IcebergSnapshot) -> StagedProgress | None:
    summary, names = snapshot.summary, (_SNAPSHOT, _SEQUENCE, _FILES)
    if _BRANCH not in summary:
        return None
    known = [number for name in names if (number := snapshot.count(name)) is not None]
    if len(known) != len(names):
        raise FormatError(
            f"the summary of snapshot {snapshot.id} does not say what was taken over of branch"
            f" {summary[_BRANCH][:_SHOWN]!r}",
            expected=f"numbers as {_SNAPSHOT}, {_SEQUENCE} and {_FILES}",
            found=repr([summary.get(name, "")[:_SHOWN] for name in names]),
            hint="roll the target back to a snapshot before it, or drop the staging branch",
        )
    return StagedProgress(summary[_BRANCH], *known)


def after_rollback(
    metadata: TableMetadata, branch: str, kept: Sequence[IcebergSnapshot]
) -> dict[str, str | None]:
    """Return the properties that a rollback of a branch changes; None for those to be removed.

    A property that outlives its snapshot counts. If the snapshot was rolled back and expires later,
    the transaction would seem to be committed, or the staged changes to be taken over, and would
    never be repeated.

    `metadata` are those before the rollback, and `kept` the snapshots that are left of the branch,
    newest first.
    """
    left: dict[str, str] = {}
    for snapshot in kept:
        if app := snapshot.summary.get(TXN_APP):
            left.setdefault(txn_property(branch, app), f"{txn_version(snapshot)}@{snapshot.id}")
        if taken := _of_summary(snapshot):
            entry = taken.committed_as(snapshot.id, snapshot.sequence_number)
            left.setdefault(resolved_property(branch, taken.staging), entry)
    ids = {snapshot.id for snapshot in kept}
    changed: dict[str, str | None] = {}
    for key, value in metadata.properties.items():
        if key.startswith(txn_property(branch, "")):
            written = value.rpartition("@")[2]
        elif key.startswith(resolved_property(branch, "")):
            written = "".join(value.split()[-2:-1])
        else:
            continue
        committed = whole_number(written, signed=True)
        if committed in metadata.snapshots and committed not in ids:
            changed[key] = left.get(key)
    return changed
