"""Which versions of a table need deletion vectors, and the protocol that needs none.

Each function lists the log. Commits are read from the newest on until one is found: as many as were
put since the last vector.
"""

from __future__ import annotations

from typing import Final

from delvec.delta.log.actions import JsonActions, read_state_change
from delvec.delta.log.replay import read_log_files
from delvec.delta.log.segment import list_commits, list_log, oldest_version
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.metadata import Property
from delvec.delta.vacuum.references import references
from delvec.delta.vacuum.retention import property_ms, retention_of
from delvec.documents import whole_number

FEATURE: Final = "deletionVectors"
PROTECTION: Final = "checkpointProtection"
_AT_ONCE: Final = 32
_MINUTE: Final = 60_000


def uses_vectors(snapshot: Snapshot) -> bool:
    """Return whether a version has vectors, or its property asks for some."""
    return snapshot.metadata.is_on(Property.ENABLE_DELETION_VECTORS) or bool(
        snapshot.files.vectors.null_count < len(snapshot.files)
    )


def last_with_vectors(snapshot: Snapshot) -> int | None:
    """Return the last version whose commit names a vector or switches them on.

    It is None if no commit in the log does, nor the oldest version that can be read. Tombstones of
    its checkpoint do not count: no reader needs them.
    """
    storage = snapshot.storage
    commits = [each for each in list_commits(storage) if each.last <= snapshot.version]
    for end in range(len(commits), 0, -_AT_ONCE):
        window = commits[max(0, end - _AT_ONCE) : end]
        read = read_log_files(storage, [each.key for each in window])
        for commit, actions in zip(reversed(window), reversed(read), strict=True):
            if _names_vectors(actions):
                return commit.last
    oldest = oldest_version(storage)
    return oldest if oldest > 0 and uses_vectors(open_snapshot(storage, oldest)) else None


def vector_files(snapshot: Snapshot) -> list[str]:
    """Return the files of vectors that only tombstones within the retention refer to.

    Without those that have a tombstone of their own already.
    """
    since = retention_of(snapshot).before_ms
    vectors: set[str] = set()
    others: set[str] = set()
    for each in references(snapshot, since):
        if each.role == "vector":
            vectors.update(each.keys.to_pylist())
        elif not each.is_live:
            others.update(each.keys.to_pylist())
    return sorted(vectors - others)


def checkpoints_after(snapshot: Snapshot, version: int) -> set[int]:
    """Return the versions after one that have a checkpoint, up to the snapshot's own."""
    found = list_log(snapshot.storage, version + 1).checkpoints
    return {each.version for each in found if version < each.version <= snapshot.version}


def last_to_delete(snapshot: Snapshot) -> int | None:
    """Return the last version that has to be deleted before the protocol is lowered."""
    if FEATURE in snapshot.protocol.features:
        return last_with_vectors(snapshot)
    # The feature is dropped, and its history protected.
    return _protected_before(snapshot) - 1 if is_protected(snapshot) else None


def is_protected(snapshot: Snapshot) -> bool:
    """Return whether the log has versions that checkpointProtection is there for."""
    if PROTECTION not in snapshot.protocol.features:
        return False
    listing = list_log(snapshot.storage)
    there = [*listing.commits, *(each.version for each in listing.checkpoints)]
    return min(there) < _protected_before(snapshot)


def old_enough_at(snapshot: Snapshot, last: int) -> int | None:
    """Return when the log up to a version may be deleted, in milliseconds; None if unknown."""
    listing = list_log(snapshot.storage, last + 1)
    times = [
        listing.commits[each].modified_ms
        for each in sorted(checkpoints_after(snapshot, last))
        if each in listing.commits
    ]
    if not times:
        return None
    retention = property_ms(snapshot, Property.TRUNCATED_HISTORY_RETENTION)
    return -(-(times[0] + retention) // _MINUTE) * _MINUTE


def _names_vectors(actions: JsonActions) -> bool:
    if b"deletionVector" in actions.data and any(
        isinstance(body, dict) and body.get("deletionVector")
        for action in actions.all_actions()
        for body in action.values()
    ):
        return True
    _, metadata = read_state_change(actions)
    return metadata is not None and metadata.is_on(Property.ENABLE_DELETION_VECTORS)


def _protected_before(snapshot: Snapshot) -> int:
    properties = snapshot.metadata.configuration
    before = whole_number(properties.get(Property.CHECKPOINT_PROTECTION_BEFORE, "0"))
    return snapshot.version if before is None else before
