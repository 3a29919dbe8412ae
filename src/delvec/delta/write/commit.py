"""The only module that puts commits: a change becomes the next version, or nothing is changed.

A commit is one put of a file that must not exist yet. A writer that loses this race checks the
winning commits for conflicts (`conflicts`), unites vectors where both deleted rows of one file, and
tries the next version. All files that a commit refers to are stored before it is put.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.names import LOG, commit_key, version_prefix
from delvec.delta.log.segment import list_commits
from delvec.delta.write.commit_lines import commit_actions, encode_lines
from delvec.delta.write.conflicts import Winner, rebase
from delvec.delta.write.store_vectors import store_vectors
from delvec.documents import LONG_MAX
from delvec.errors import (
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
)

if TYPE_CHECKING:
    from delvec.delta.write.base import Base
    from delvec.delta.write.change import Change
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles

__all__ = ["COMMITTED", "UNKNOWN", "Committed", "commit"]

_LOG: Final = logging.getLogger("delvec")
COMMITTED: Final = "version %d of %s was committed"
"""The message that is logged for each commit."""
UNKNOWN: Final = "whether version %d of %s was committed is not known"
"""The message that is logged if a commit was interrupted, and a request of it may still arrive."""


@dataclass(frozen=True)
class Committed:
    """A change that was committed.

    Attributes:
        version: Its version.
        change: The change as it was committed, with united vectors.
        attempts: The number of puts that it took.
        reconciled: The number of vectors that were united with those of winning commits.
    """

    version: int
    change: Change
    attempts: int
    reconciled: int


def commit(base: Base, change: Change, uncommitted: UncommittedFiles) -> Committed:
    """Commit a change as the next version.

    Args:
        base: The version that the change was made from.
        change: What to commit.
        uncommitted: The files that were written for it; kept once the commit may be in.

    Raises:
        ConflictError: A concurrent commit conflicts with it; nothing was changed.
        TableNotFoundError: The table was dropped in the meantime.
        PlanError: It would break the table; nothing was changed.
        FormatError: No version can follow the newest; nothing was changed.
        StorageError: Something that is no commit has the name of the next one.
    """
    txn_id, read_version = str(uuid4()), base.version
    written = {file.path for file in change.moved_to}
    attempts, reconciled = 0, 0
    try:
        while True:
            metadata = change.metadata or base.metadata
            change = store_vectors(base.storage, metadata, change, uncommitted)
            data = encode_lines(commit_actions(base, change, read_version, txn_id))
            attempts += 1
            if _put(base, data, txn_id, uncommitted):
                break
            try:
                base, change, united = _rebase_all(base, change)
            except ConflictError as error:
                error.attempts = attempts
                raise
            reconciled += united
        _LOG.info(COMMITTED, base.version + 1, base.storage.root)
    except KeyboardInterrupt:
        _log_interrupted(base, txn_id, uncommitted)
        raise
    used = {each.descriptor.file_path for each in change.all_vectors if each.descriptor is not None}
    stale = change.vector_files.keys() - used
    uncommitted.drop(stale | (written - {file.path for file in change.moved_to}))
    sizes = {path: size for path, size in change.vector_files.items() if path not in stale}
    change = replace(change, vector_files=sizes)
    return Committed(base.version + 1, change, attempts, reconciled)


def _log_interrupted(base: Base, txn_id: str, uncommitted: UncommittedFiles) -> None:
    """Log what became of a commit that was interrupted; the files of one that is in are kept."""
    storage, version = base.storage, base.version + 1
    if _is_ours(storage, version, txn_id):
        _LOG.info(COMMITTED, version, storage.root)
    elif "://" not in storage.root:
        uncommitted.discard()
    elif uncommitted.is_kept:  # the request may still arrive
        _LOG.warning(UNKNOWN, version, storage.root)


def _put(base: Base, data: bytes, txn_id: str, uncommitted: UncommittedFiles) -> bool:
    """Put the commit; return whether it is in. While that is unknown, no file is removed."""
    storage, version = base.storage, base.version + 1
    _require_table(base)
    if version > LONG_MAX:
        raise FormatError(
            "no version can follow the newest",
            path=storage.root,
            expected=f"versions below {LONG_MAX}",
            found=base.version,
            hint="nobody has committed so often: move the forged files out of the log",
        )
    uncommitted.keep()
    try:
        storage.write_if_absent(commit_key(version), data)
    except ObjectExistsError:
        # A put whose response was lost is sent again, and finds its own commit.
        is_in = _is_ours(storage, version, txn_id)
    except StorageError:
        if not _is_ours(storage, version, txn_id):
            if "://" not in storage.root:
                uncommitted.discard()  # a disk has failed for good; a request may still arrive
            raise
        is_in = True
    else:
        return True
    if not is_in:
        uncommitted.discard()
    return is_in


def _require_table(base: Base) -> None:
    """Refuse to put a commit into a dropped table: it would begin a log that nobody can read."""
    if base.version < 0 or base.storage.exists(commit_key(base.version)):
        return
    # The commit may have been cleaned up after a checkpoint.
    if next(base.storage.list(LOG, start_from=version_prefix(base.version)), None) is None:
        raise TableNotFoundError(
            f"{base.storage.root} was dropped while this operation ran: its log is gone",
            table=base.storage.root,
            hint="nothing was changed; create the table again, or write to another one",
        )


def _is_ours(storage: Storage, version: int, txn_id: str) -> bool:
    try:
        key = commit_key(version)
        actions = JsonActions(storage.uri_of(key), storage.read(key)).others()
    except ObjectNotFoundError:
        return False
    return any((action.get("commitInfo") or {}).get("txnId") == txn_id for action in actions)


def _rebase_all(base: Base, change: Change) -> tuple[Base, Change, int]:
    """Rebase a change onto all commits since its base; return the count of united vectors too."""
    storage, united, lost = base.storage, 0, base.version + 1
    if base.version < 0:
        raise ConflictError(
            f"another writer has just created {storage.root}",
            version=0,
            hint="open the table, or create it with mode='ignore' or mode='replace'",
        )
    for file in list_commits(storage, base.version + 1):
        if file.first != base.version + 1:
            raise ConflictError(
                f"the log of {storage.root} lacks the commit of version {base.version + 1}, which"
                " was cleaned up while this operation ran",
                version=file.first,
                hint="nothing was changed; run the operation again",
            )
        actions = JsonActions(storage.uri_of(file.key), storage.read(file.key))
        winner = Winner(file.first, storage.root, base.metadata, actions)
        change, more = rebase(change, winner, storage)
        united += more
        base = base.after(winner)
    if base.version < lost and not storage.exists(commit_key(lost)):
        uri = storage.uri_of(commit_key(lost))
        raise StorageError(
            f"version {lost} cannot be committed: {uri} is there, and is no file",
            uri=uri,
            hint="nothing was changed; remove it, and run the operation again",
        )
    return base, change, united
