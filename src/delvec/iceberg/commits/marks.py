"""What delvec writes down about branches, in properties of the table and summaries of snapshots.

Staging branches are delvec's own: only they may hold equality delete vectors alone, which stock
readers cannot read. A branch is one if delvec made it so, whatever its name: the table has the
property `delvec.staging.<branch>`, and a snapshot that the branch does not share with `main` has
the branch in its summary. A branch that others drop and make anew has no such snapshot.

Transactions of applications are in summaries, and the newest of each application in the property
`delvec.txn.<branch>.<application>` as well, for when the snapshot expires: `<version>@<snapshot>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.documents import whole_number
from delvec.errors import FormatError
from delvec.iceberg.client.metadata import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = [
    "BRANCH_SUMMARY",
    "STAGING_PROPERTY",
    "STAGING_SUMMARY",
    "TXN_APP",
    "TXN_PROPERTY",
    "TXN_VERSION",
    "is_staging",
    "staging_branches",
    "txn_properties",
    "txn_property",
    "txn_version",
    "txns_after_rollback",
]

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
    """Return the staging branches of a table, sorted."""
    return tuple(name for name in sorted(metadata.refs) if is_staging(metadata, name))


def txn_version(snapshot: IcebergSnapshot) -> int:
    """Return the version of the transaction that a snapshot says it has committed.

    Raises:
        FormatError: It is no number: whether a transaction was committed cannot be told.
    """
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
    return f"{_txn_prefix(branch)}{app_id}"


def txn_properties(metadata: TableMetadata, branch: str) -> dict[str, str]:
    """Return the properties of a branch's transactions: applications by property."""
    own = _txn_prefix(branch)
    return {key: key.removeprefix(own) for key in metadata.properties if key.startswith(own)}


def _txn_prefix(branch: str) -> str:
    return f"{TXN_PROPERTY}{branch.replace('%', '%25').replace('.', '%2E')}."


def txns_after_rollback(
    metadata: TableMetadata, branch: str, kept: Iterable[IcebergSnapshot]
) -> Mapping[str, str | None]:
    """Return the transaction properties that a rollback changes; None for those to be removed.

    A property that outlives its snapshot counts. If the snapshot was rolled back and expires later,
    the transaction would seem to be committed, and would never be repeated.

    Args:
        metadata: The metadata before the rollback.
        branch: The branch.
        kept: The snapshots that are left of it, newest first.
    """
    newest: dict[str, str] = {}
    ids = set()
    for snapshot in kept:
        ids.add(snapshot.id)
        if app := snapshot.summary.get(TXN_APP):
            newest.setdefault(app, f"{txn_version(snapshot)}@{snapshot.id}")
    changed: dict[str, str | None] = {}
    for key, app in txn_properties(metadata, branch).items():
        snapshot_id = whole_number(metadata.properties[key].rpartition("@")[2], signed=True)
        if snapshot_id not in ids and snapshot_id in metadata.snapshots:
            changed[key] = newest.get(app)
    return changed
