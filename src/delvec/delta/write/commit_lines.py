"""The lines of a commit: adds and removes of data files, and what the commit says of itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delvec._version import __version__
from delvec.delta.stats.entry import widened
from delvec.delta.write.metrics import operation_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delvec.delta.log.file_set import FileEntry
    from delvec.delta.write.change import Change, VectorUpdate

__all__ = ["commit_info", "encoded", "removal", "updated_add"]

_KEPT_BY_REMOVES = ("partitionValues", "size", "tags", "baseRowId", "defaultRowCommitVersion")


def updated_add(update: VectorUpdate) -> dict[str, Any]:
    """Add a file again with its new vector: all else stays, but its bounds are wide from now on."""
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


def removal(file: FileEntry, now_ms: int) -> dict[str, Any]:
    """Remove a file, with the vector that it had: without it both entries would stay alive."""
    entry = file.add
    rows = file.rows
    # An entry from a checkpoint has its empty columns as well, such as `maxRowIndex`.
    vector = {k: v for k, v in (entry.get("deletionVector") or {}).items() if v is not None}
    return {
        "path": entry["path"],
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        **{key: entry[key] for key in _KEPT_BY_REMOVES if entry.get(key) is not None},
        **({"deletionVector": vector} if vector else {}),
        **({} if rows is None else {"stats": json.dumps({"numRecords": rows})}),
    }


def commit_info(
    change: Change, *, read_version: int, isolation: str, now_ms: int, txn_id: str
) -> dict[str, Any]:
    """Say what the commit does, by Delta's names; all parameters and metrics are texts."""
    metrics = operation_metrics(change)
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


def encoded(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Write actions as a commit holds them, one to a line."""
    lines = (json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions)
    return "".join(f"{line}\n" for line in lines).encode()
