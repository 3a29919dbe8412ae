"""The lines of a commit: its actions in order, from the change that it makes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delvec._version import __version__
from delvec.delta.schema.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
)
from delvec.delta.stats.entry import widened
from delvec.delta.write.conflicts import isolation_level
from delvec.delta.write.row_ids import ROW_TRACKING_DOMAIN, with_row_ids
from delvec.delta.write.validation import require_same_count, require_valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delvec.delta.log.file_set import FileEntry
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.write.base import Base
    from delvec.delta.write.change import Change, VectorUpdate

__all__ = ["add_body", "commit_actions", "commit_info_body", "encode_lines", "remove_body"]

_QUANTILES: Final = {"min": 0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "max": 1}
_KEPT_BY_REMOVES: Final = (
    "partitionValues",
    "size",
    "tags",
    "baseRowId",
    "defaultRowCommitVersion",
)


def commit_actions(
    base: Base, change: Change, read_version: int, txn_id: str
) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit in their order, the commitInfo first.

    Args:
        base: The version that the commit follows.
        change: What it does; its vectors are stored.
        read_version: The version that the change was made from.
        txn_id: By which the writer recognises its own commit.

    Raises:
        PlanError: The commit would break the table.
    """
    now = int(time.time() * 1000)
    version, protocol = base.version + 1, change.protocol or base.protocol
    metadata = change.metadata or base.metadata
    info = commit_info_body(
        change,
        read_version=read_version,
        isolation=isolation_level(metadata) if change.data_change else "SnapshotIsolation",
        now_ms=now,
        txn_id=txn_id,
    )
    new_metadata = change.metadata
    if metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        # In-commit timestamps increase, whatever the clocks of the writers show.
        timestamp = max(now, base.timestamp_ms + 1)
        info["inCommitTimestamp"] = timestamp
        if new_metadata is not None:
            new_metadata = _with_enablement(base, new_metadata, version, timestamp)
    has_row_ids = "rowTracking" in protocol.supported
    if has_row_ids:
        info["tags"] = {"delta.rowTracking.preserved": str(change.keeps_row_ids).lower()}
    mark = base.row_id_mark
    adds, removes = _adds(change), _removes(change, now)
    if has_row_ids:
        adds, mark = with_row_ids(adds, base.row_id_mark, version)
    _require_valid(base, change, adds, removes)
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
    if mark != base.row_id_mark:
        text = json.dumps({"rowIdHighWaterMark": mark}, separators=(",", ":"))
        yield _domain(ROW_TRACKING_DOMAIN, text)
    yield from (_domain(name, text) for name, text in change.domains.items())
    # Adds come before removes of the same path, as delta-spark writes them.
    yield from ({"add": body} for body in (*adds, *change.entered_anew))
    yield from ({"remove": body} for body in (*removes, *change.tombstones))
    yield from ({"cdc": body} for body in change.change_files)


def _is_inline(file: FileEntry) -> bool:
    return file.descriptor is not None and file.descriptor.storage_type == "i"


def _adds(change: Change) -> list[dict[str, Any]]:
    adds = [dict(body) for body in change.added]
    adds += ({**add_body(each), "dataChange": change.data_change} for each in change.vector_updates)
    return [*adds, *_moved(change)]


def _removes(change: Change, now_ms: int) -> list[dict[str, Any]]:
    is_data = change.data_change
    removes = [remove_body(file, now_ms, data_change=is_data) for file in change.gone_files]
    # Of a vector in the log no file is to be kept, and the data file is live: an expired tombstone
    # does not break VACUUM of delta-spark, as others with such a vector do.
    times = [(each.file, 0 if _is_inline(each.file) else now_ms) for each in change.vector_updates]
    return [*removes, *(remove_body(file, at, data_change=is_data) for file, at in times)]


def _require_valid(
    base: Base, change: Change, adds: list[dict[str, Any]], removes: list[dict[str, Any]]
) -> None:
    replaced = (*change.gone_files, *(each.file for each in change.vector_updates))
    live = {file.path: file.add for file in replaced}
    table, anew = base.storage.root, change.entered_anew
    require_valid(table, adds, removes, live, anew=anew, restores=change.restores)
    for each in change.rewrites:
        require_same_count(table, each)


def _moved(change: Change) -> Iterator[dict[str, Any]]:
    """Yield the adds of files that rows were moved to, with the vectors that some got since."""
    for each in change.rewrites:
        if each.added is not None:
            body = each.added.add if each.deleted is None else add_body(each.deleted)
            yield {**body, "dataChange": change.data_change}


def add_body(update: VectorUpdate) -> dict[str, Any]:
    """Return the add of a file with its new vector: as before, but with wide bounds."""
    if update.descriptor is None:
        raise AssertionError("the vector is stored before the commit is written")
    entry = update.file.add
    old = update.file.descriptor
    return {
        **entry,
        "dataChange": True,
        "stats": widened(entry.get("stats"), update.rows, old.cardinality if old else 0),
        "deletionVector": update.descriptor.to_json(),
    }


def remove_body(file: FileEntry, now_ms: int, *, data_change: bool = True) -> dict[str, Any]:
    """Return the tombstone of a file, with its old vector: without it both entries stay live."""
    entry = file.add
    rows = file.rows
    # An entry from a checkpoint has null columns too, such as `maxRowIndex`.
    vector = {k: v for k, v in (entry.get("deletionVector") or {}).items() if v is not None}
    return {
        "path": entry["path"],
        "deletionTimestamp": now_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        **{key: entry[key] for key in _KEPT_BY_REMOVES if entry.get(key) is not None},
        **({"deletionVector": vector} if vector else {}),
        **({} if rows is None else {"stats": json.dumps({"numRecords": rows})}),
    }


def commit_info_body(
    change: Change, *, read_version: int, isolation: str, now_ms: int, txn_id: str
) -> dict[str, Any]:
    """Return the commitInfo of a change; all its parameters and metrics are strings."""
    metrics = _operation_metrics(change)
    info: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": change.operation,
        "operationParameters": {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in change.parameters.items()
        },
        "isolationLevel": isolation,
        "isBlindAppend": change.is_blind_append,
        "operationMetrics": {name: str(count) for name, count in metrics.items()},
        "engineInfo": f"delvec/{__version__}",
        "txnId": txn_id,
    }
    if read_version >= 0:
        info["readVersion"] = read_version
    if change.user_metadata is not None:
        info["userMetadata"] = change.user_metadata
    return info


def encode_lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return actions as the bytes of a commit, one JSON object to a line."""
    lines = (json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions)
    return "".join(f"{line}\n" for line in lines).encode()


def _domain(name: str, text: str | None) -> dict[str, Any]:
    body = {"domain": name, "configuration": text or "", "removed": text is None}
    return {"domainMetadata": body}


def _with_enablement(base: Base, metadata: Metadata, version: int, timestamp: int) -> Metadata:
    """Record the version that enables in-commit timestamps, unless the table begins with them."""
    if base.version < 0 or base.metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        return metadata
    since = {
        IN_COMMIT_TIMESTAMPS_SINCE_VERSION: str(version),
        IN_COMMIT_TIMESTAMPS_SINCE_TIME: str(timestamp),
    }
    return replace(metadata, configuration={**metadata.configuration, **since})


def _operation_metrics(change: Change) -> dict[str, int]:
    """Return the counts of a change by Delta's names: its own, and those of its files.

    A vector that replaces another counts as added, removed and updated, as in delta-spark.
    """
    if change.operation in ("OPTIMIZE", "REORG"):
        return {**_sizes(change), **change.metrics}
    if change.operation not in ("DELETE", "UPDATE", "MERGE", "WRITE"):
        return dict(change.metrics)
    updated = sum(each.file.descriptor is not None for each in change.vector_updates)
    vectors = {
        "Added": len(change.vector_updates),
        "Removed": updated + sum(file.descriptor is not None for file in change.gone_files),
        "Updated": updated,
    }
    added, removed = (
        (len(bodies), sum(int(body.get("size") or 0) for body in bodies))
        for bodies in (change.new_files, [file.add for file in change.gone_files])
    )
    if change.operation == "WRITE":
        files = {"numFiles": added[0], "numOutputBytes": added[1]}
        gone = {"numRemovedFiles": removed[0], "numRemovedBytes": removed[1]}
        return dict(change.metrics) | files | (gone if change.removed else {})
    if change.operation == "MERGE":
        return {
            **change.metrics,
            **{f"numTargetDeletionVectors{what}": count for what, count in vectors.items()},
            "numTargetFilesAdded": added[0],
            "numTargetBytesAdded": added[1],
            "numTargetFilesRemoved": removed[0],
            "numTargetBytesRemoved": removed[1],
            "numTargetChangeFilesAdded": len(change.change_files),
        }
    return {
        **change.metrics,
        **{f"numDeletionVectors{what}": count for what, count in vectors.items()},
        "numAddedFiles": added[0],
        "numAddedBytes": added[1],
        "numRemovedFiles": removed[0],
        "numRemovedBytes": removed[1],
        "numAddedChangeFiles": len(change.change_files),
    }


def _sizes(change: Change) -> dict[str, int]:
    """Return the counts and sizes of files that were written in place of others."""
    sizes = sorted(int(body["size"]) for body in change.new_files)
    gone = change.gone_files
    found = {
        "numAddedFiles": len(sizes),
        "numAddedBytes": sum(sizes),
        "numRemovedFiles": len(gone),
        "numRemovedBytes": sum(int(file.add.get("size") or 0) for file in gone),
        "numDeletionVectorsRemoved": sum(file.descriptor is not None for file in gone),
    }
    for name, share in _QUANTILES.items():
        found[f"{name}FileSize"] = sizes[int(share * (len(sizes) - 1))] if sizes else 0
    return found
