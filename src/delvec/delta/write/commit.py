"""The one place that changes a table: a change becomes the next commit, or nothing at all.

A commit is one put of a file that must not be there yet. Who loses that race looks at what the
winners did (`conflicts`), unites vectors where both deleted rows of one file, and tries the next
version. All that a commit refers to is in storage before it is put.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.segment import LOG, commit_key, list_commits
from delvec.delta.schema.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
)
from delvec.delta.write.commit_lines import commit_info, encoded, removal, updated_add
from delvec.delta.write.conflicts import Winner, isolation_level, rebased
from delvec.delta.write.row_ids import ROW_TRACKING_DOMAIN, high_water_mark, with_row_ids
from delvec.delta.write.store_vectors import store_vectors
from delvec.delta.write.validation import require_valid
from delvec.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.delta.write.change import Change
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles

__all__ = ["Base", "Committed", "commit"]


@dataclass(frozen=True)
class Base:
    """What a commit stands on: a version of the table, or -1 where there is none yet.

    Attributes:
        storage: The table.
        version: The version.
        protocol: Its protocol.
        metadata: Its metadata.
        row_ids: The highest row id that was given.
        time_ms: The time of its commit, for tables whose commits hold that themselves.
    """

    storage: Storage
    version: int
    protocol: Protocol
    metadata: Metadata
    row_ids: int = -1
    time_ms: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> Base:
        """Stand on a version that was read."""
        storage, version = snapshot.storage, snapshot.version
        row_ids = high_water_mark(snapshot.domains.get(ROW_TRACKING_DOMAIN))
        time_ms = 0
        if snapshot.metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
            time_ms = _own_time(_read(storage, version).others())
        return cls(storage, version, snapshot.protocol, snapshot.metadata, row_ids, time_ms)


@dataclass(frozen=True)
class Committed:
    """A change that is a commit now.

    Attributes:
        version: Its version.
        change: The change as it went in, with the vectors that it was united with.
        attempts: How many puts it took.
        reconciled: How many vectors were united with those of winners.
    """

    version: int
    change: Change
    attempts: int
    reconciled: int


def commit(base: Base, change: Change, uncommitted: UncommittedFiles) -> Committed:
    """Put a change into the log.

    Args:
        base: The version that it was made from.
        change: What to do.
        uncommitted: What was written for it, to be kept once it is in.

    Raises:
        ConflictError: A concurrent commit does not allow it; nothing was changed.
        TableNotFoundError: The table was dropped since.
        PlanError: It would break the table; nothing was changed.
    """
    txn_id, read_version = str(uuid4()), base.version
    attempts, reconciled = 0, 0
    while True:
        metadata = change.metadata or base.metadata
        change = store_vectors(base.storage, metadata, change, uncommitted)
        data = encoded(_actions(base, change, read_version, txn_id))
        attempts += 1
        if _put(base, data, txn_id, uncommitted):
            break
        try:
            base, change, united = _behind_winners(base, change)
        except ConflictError as error:
            error.attempts = attempts
            raise
        reconciled += united
    used = {
        each.descriptor.file_path for each in change.vector_updates if each.descriptor is not None
    }
    stale = change.vector_files.keys() - used
    uncommitted.drop(stale)
    sizes = {path: size for path, size in change.vector_files.items() if path not in stale}
    change = replace(change, vector_files=sizes)
    return Committed(base.version + 1, change, attempts, reconciled)


def _actions(
    base: Base, change: Change, read_version: int, txn_id: str
) -> Iterator[dict[str, Any]]:
    """Give the lines of a commit in their order; what it says of itself comes first."""
    now = int(time.time() * 1000)
    version, protocol = base.version + 1, change.protocol or base.protocol
    metadata = change.metadata or base.metadata
    info = commit_info(
        change,
        read_version=read_version,
        isolation=isolation_level(metadata),
        now_ms=now,
        txn_id=txn_id,
    )
    new_metadata = change.metadata
    if metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        own = max(now, base.time_ms + 1)
        info["inCommitTimestamp"] = own
        if new_metadata is not None:
            new_metadata = _with_own_times(base, new_metadata, version, own)
    tracks = "rowTracking" in protocol.supported
    if tracks:
        info["tags"] = {"delta.rowTracking.preserved": str(change.keeps_row_ids).lower()}
    mark = base.row_ids
    adds = [*map(dict, change.added), *map(updated_add, change.vector_updates)]
    if tracks:
        adds, mark = with_row_ids(adds, base.row_ids, version)
    gone = [each.file for each in change.vector_updates]
    removes = [removal(file, now) for file in (*change.removed, *gone)]
    live = {file.path: file.add for file in (*change.removed, *gone)}
    require_valid(base.storage.root, adds, removes, live, shrinks=change.shrinks)
    yield {"commitInfo": info}
    if change.protocol is not None:
        yield {"protocol": change.protocol.to_json()}
    if new_metadata is not None:
        yield {"metaData": new_metadata.to_json()}
    if change.transaction is not None:
        yield {
            "txn": {
                "appId": change.transaction.app_id,
                "version": change.transaction.version,
                "lastUpdated": now,
            }
        }
    if mark != base.row_ids:
        yield _domain(ROW_TRACKING_DOMAIN, {"rowIdHighWaterMark": mark})
    # Adds stand before removes of the same path, as delta-spark writes them.
    yield from ({"add": body} for body in adds)
    yield from ({"remove": body} for body in removes)
    yield from ({"cdc": body} for body in change.change_files)


def _domain(name: str, value: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(value, separators=(",", ":"))
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}


def _with_own_times(base: Base, metadata: Metadata, version: int, own_ms: int) -> Metadata:
    """Say since when commits hold their time, where a table begins with it later on."""
    if base.version < 0 or base.metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        return metadata
    since = {
        IN_COMMIT_TIMESTAMPS_SINCE_VERSION: str(version),
        IN_COMMIT_TIMESTAMPS_SINCE_TIME: str(own_ms),
    }
    return replace(metadata, configuration={**metadata.configuration, **since})


def _put(base: Base, data: bytes, txn_id: str, uncommitted: UncommittedFiles) -> bool:
    """Put the commit; tell whether it is in. While that is unknown, nothing is cleaned up."""
    storage, version = base.storage, base.version + 1
    _require_table(base)
    uncommitted.keep()
    try:
        storage.write_if_absent(commit_key(version), data)
    except ObjectExistsError:
        # A put whose reply got lost is sent again and meets itself.
        is_in = _is_ours(storage, version, txn_id)
    except StorageError:
        if not _is_ours(storage, version, txn_id):
            if "://" not in storage.root:
                uncommitted.discard()  # a disk has done it or not; a request may still arrive
            raise
        is_in = True
    else:
        return True
    if not is_in:
        uncommitted.discard()
    return is_in


def _require_table(base: Base) -> None:
    """Refuse to put a commit where the table is no more: it would be a log without a beginning."""
    if base.version < 0 or base.storage.exists(commit_key(base.version)):
        return
    # A commit may have been cleaned up behind its checkpoint.
    if next(base.storage.list(LOG, start_from=f"{base.version:020}"), None) is None:
        raise TableNotFoundError(
            f"{base.storage.root} was dropped while this operation ran: its log is gone",
            table=base.storage.root,
            hint="nothing was changed; create the table again, or write to another one",
        )


def _is_ours(storage: Storage, version: int, txn_id: str) -> bool:
    try:
        actions = _read(storage, version).others()
    except ObjectNotFoundError:
        return False
    return any((action.get("commitInfo") or {}).get("txnId") == txn_id for action in actions)


def _behind_winners(base: Base, change: Change) -> tuple[Base, Change, int]:
    """Bring a change behind all commits that were made since its base."""
    storage, united = base.storage, 0
    if base.version < 0:
        raise ConflictError(
            f"another writer has just created {storage.root}",
            version=0,
            hint="open the table, or create it with mode='ignore' or mode='replace'",
        )
    for file in list_commits(storage, base.version + 1):
        actions = JsonActions(storage.uri_of(file.key), storage.read(file.key))
        winner = Winner(file.first, storage.root, base.metadata, actions)
        change, more = rebased(change, winner, storage)
        united += more
        base = _after(base, winner)
    return base, change, united


def _after(base: Base, winner: Winner) -> Base:
    marks = [
        high_water_mark(domain.get("configuration"))
        for action in winner.others
        if (domain := action.get("domainMetadata")) and domain.get("domain") == ROW_TRACKING_DOMAIN
    ]
    return replace(
        base,
        version=winner.version,
        row_ids=max([base.row_ids, *marks]),
        time_ms=max(base.time_ms, _own_time(winner.others)),
    )


def _own_time(actions: Iterable[dict[str, Any]]) -> int:
    infos: Iterator[dict[str, Any]] = (a["commitInfo"] for a in actions if a.get("commitInfo"))
    info = next(infos, None) or {}
    return int(info.get("inCommitTimestamp") or 0)


def _read(storage: Storage, version: int) -> JsonActions:
    key = commit_key(version)
    return JsonActions(storage.uri_of(key), storage.read(key))
