"""The only module that puts commits: a change becomes the next version, or nothing is changed.

A commit is one put of a file that must not exist yet. A writer that loses this race checks the
winning commits for conflicts (`conflicts`), unites vectors where both deleted rows of one file, and
tries the next version. All files that a commit refers to are stored before it is put;
new vectors are packed into files of about 2 MiB.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from delvec import errors
from delvec.delta.log.actions import JsonActions
from delvec.delta.log.history import read_commit_info
from delvec.delta.log.paths import LOG, commit_key, random_prefix, version_prefix
from delvec.delta.log.replay import read_log_file
from delvec.delta.log.segment import list_commits
from delvec.delta.schema.metadata import Metadata
from delvec.delta.write.change import Base, Change
from delvec.delta.write.commit_actions import commit_actions, encode_lines
from delvec.delta.write.conflicts import Winner, rebase
from delvec.documents import LONG_MAX
from delvec.report.commits import announce
from delvec.report.hints import argument, format_hint
from delvec.storage import Storage
from delvec.storage.parallel import map_in_order
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import delta_file
from delvec.vector.delta_file import VectorFile

_PUTS_AT_ONCE: Final = 8
_COMMITTED: Final = "version %d of %s was committed"
_UNKNOWN: Final = "whether version %d of %s was committed is not known"


def store_vectors(
    storage: Storage, metadata: Metadata, change: Change, uncommitted: UncommittedFiles
) -> Change:
    """Store the vectors of a change that are not stored yet; return it with their descriptors."""
    updates = change.all_vectors
    missing = [index for index, each in enumerate(updates) if each.descriptor is None]
    if not missing:
        return change
    vectors = [vector for index in missing if (vector := updates[index].vector) is not None]
    files = delta_file.pack(vectors, prefix=random_prefix(metadata))
    stored, sizes = [each.descriptor for each in updates], dict(change.vector_files)
    places = iter(missing)

    def put(file: VectorFile) -> None:
        storage.write(file.path, file.data)  # the name is new

    def registered() -> Iterator[tuple[VectorFile, int]]:
        for file in files:
            uncommitted.add(file.path)
            sizes[file.path] = len(file.data)
            for descriptor in file.descriptors:
                stored[next(places)] = descriptor
            yield file, 1

    # The files are packed one by one: the budget is how many are in memory.
    for _ in map_in_order(put, registered(), threads=_PUTS_AT_ONCE, budget=_PUTS_AT_ONCE - 1):
        pass
    return replace(change.with_descriptors(stored), vector_files=sizes)


@dataclass(frozen=True)
class Committed:
    """A change that was committed."""

    version: int
    change: Change  # as it was committed, with united vectors
    attempts: int  # the puts that it took
    reconciled: int  # vectors that were united with those of winning commits


def commit(base: Base, change: Change, uncommitted: UncommittedFiles) -> Committed:
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
            except errors.ConflictError as error:
                error.attempts = attempts
                raise
            reconciled += united
        announce(_COMMITTED, base.version + 1, base.storage.root)
    except KeyboardInterrupt:
        storage, version = base.storage, base.version + 1
        if _is_ours(storage, version, txn_id):
            announce(_COMMITTED, version, storage.root)
        elif "://" not in storage.root:
            uncommitted.discard()
        elif uncommitted.is_kept:  # the request may still arrive
            announce(_UNKNOWN, version, storage.root, level=logging.WARNING)
        raise
    used = {each.descriptor.file_path for each in change.all_vectors if each.descriptor is not None}
    stale = change.vector_files.keys() - used
    uncommitted.drop(stale | (written - {file.path for file in change.moved_to}))
    sizes = {path: size for path, size in change.vector_files.items() if path not in stale}
    change = replace(change, vector_files=sizes)
    return Committed(base.version + 1, change, attempts, reconciled)


def _put(base: Base, data: bytes, txn_id: str, uncommitted: UncommittedFiles) -> bool:
    """Put the commit; return whether it is in. While that is unknown, no file is removed."""
    storage, version = base.storage, base.version + 1
    _require_table(base)
    if version > LONG_MAX:
        raise errors.FormatError(
            "no version can follow the newest",
            path=storage.root,
            expected=f"versions below {LONG_MAX}",
            found=base.version,
            hint="nobody has committed so often: move the forged files out of the log",
        )
    uncommitted.keep()
    try:
        storage.write_if_absent(commit_key(version), data)
    except errors.ObjectExistsError:
        # A put whose response was lost is sent again, and finds its own commit.
        if not _is_ours(storage, version, txn_id):
            uncommitted.discard()
            return False
    except errors.StorageError:
        if not _is_ours(storage, version, txn_id):
            if "://" not in storage.root:
                uncommitted.discard()  # a disk has failed for good; a request may still arrive
            raise
    return True


def _require_table(base: Base) -> None:
    """Refuse to put a commit into a dropped table: it would begin a log that nobody can read."""
    if base.version < 0 or base.storage.exists(commit_key(base.version)):
        return
    # The commit may have been cleaned up after a checkpoint.
    if next(base.storage.list(LOG, start_from=version_prefix(base.version)), None) is None:
        raise errors.TableNotFoundError(
            f"{base.storage.root} was dropped while this operation ran: its log is gone",
            table=base.storage.root,
            hint="nothing was changed; create the table again, or write to another one",
        )


def _is_ours(storage: Storage, version: int, txn_id: str) -> bool:
    try:
        key = commit_key(version)
        info = read_commit_info(JsonActions(storage.uri_of(key), storage.read(key)))
    except errors.ObjectNotFoundError:
        return False
    return info.get("txnId") == txn_id


def _rebase_all(base: Base, change: Change) -> tuple[Base, Change, int]:
    """Rebase a change onto all commits since its base; return the count of united vectors too."""
    storage, united, lost = base.storage, 0, base.version + 1
    if base.version < 0:
        raise errors.ConflictError(
            f"another writer has just created {storage.root}",
            version=0,
            hint=format_hint(
                "open the table, or create it with {} or {}",
                argument(mode="ignore"),
                argument(mode="replace"),
            ),
        )
    for file in list_commits(storage, base.version + 1):
        if file.first != base.version + 1:
            raise errors.ConflictError(
                f"the log of {storage.root} lacks the commit of version {base.version + 1}, which"
                " was cleaned up while this operation ran",
                version=file.first,
                hint="nothing was changed; run the operation again",
            )
        actions = read_log_file(storage, file.key)
        winner = Winner(file.first, storage.root, base.metadata, actions)
        change, more = rebase(change, winner, storage)
        united += more
        base = base.after(winner)
    if base.version < lost and not storage.exists(commit_key(lost)):
        uri = storage.uri_of(commit_key(lost))
        raise errors.StorageError(
            f"version {lost} cannot be committed: {uri} is there, and is no file",
            uri=uri,
            hint="nothing was changed; remove it, and run the operation again",
        )
    return base, change, united
