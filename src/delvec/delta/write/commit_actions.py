"""The lines of a commit: its actions in order, and the last check that none brings rows back.

Other engines trust the log. Each rule of the check was broken by some writer and corrupted tables.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delvec._version import __version__
from delvec.delta.log.file_set import FileEntry
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.skipping.statistics import record_count, tight_bounds, widen_bounds
from delvec.delta.write import change as write_change
from delvec.delta.write.conflicts import isolation_level, paths_of
from delvec.errors import PlanError
from delvec.vector import Descriptor

_QUANTILES: Final = {"min": 0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "max": 1}
_KEPT_BY_REMOVES: Final = (
    "partitionValues",
    "size",
    "tags",
    "baseRowId",
    "defaultRowCommitVersion",
)


def require_valid(
    table: str,
    adds: Sequence[Mapping[str, Any]],
    removes: Sequence[Mapping[str, Any]],
    live: Mapping[str, Mapping[str, Any]],
    *,
    re_added: Sequence[Mapping[str, Any]] = (),
    restores: bool = False,
) -> None:
    """Refuse a commit that would break the table."""
    added = _by_path(table, adds, "added")
    removed = _by_path(table, removes, "removed")
    for path, body in removed.items():
        if fault := _fault_of_remove(body, live.get(path)):
            raise _broken(table, path, fault)
    for path, body in added.items():
        if not restores and (fault := _fault_of_add(body)):
            raise _broken(table, path, fault)
        if path in removed:
            if fault := _fault_of_pair(body, removed[path], restores=restores):
                raise _broken(table, path, fault)
        elif path in live:
            raise _broken(table, path, "is added again without a remove of its old entry")
    for path in _by_path(table, re_added, "entered again"):
        if path in added or path in removed:
            raise _broken(table, path, "is entered again, and added or removed too")


def require_same_count(table: str, rewrite: write_change.Rewrite) -> None:
    """Refuse a new file that has not as many live rows as the files that it replaces."""
    before = 0
    for file in rewrite.files:
        if file.rows is None:
            return  # the log does not know
        before += file.rows - _cardinality(file.add)
    deleted = 0 if rewrite.deleted is None else rewrite.deleted.cardinality
    after = 0 if rewrite.added is None else rewrite.rows - deleted
    if before != after:
        raise _broken(
            table, rewrite.files[0].path, f"and others have {before} live rows, their copy {after}"
        )


def _by_path(
    table: str, bodies: Sequence[Mapping[str, Any]], what: str
) -> dict[str, Mapping[str, Any]]:
    paths = paths_of(bodies, table)
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise _broken(table, twice[0], f"is {what} twice in one commit")
    return dict(zip(paths, bodies, strict=True))


def _fault_of_remove(body: Mapping[str, Any], live: Mapping[str, Any] | None) -> str | None:
    if live is None:
        return "is removed but was not in the version that was read"
    was, now = _id_of(live), _id_of(body)
    if was != now:
        return f"is removed with the vector {now}, but it had {was}: both entries would stay live"
    return None


def _fault_of_add(body: Mapping[str, Any]) -> str | None:
    vector = body.get("deletionVector")
    if vector is None:
        return None
    rows = record_count(body.get("stats"))
    if rows is None:
        return "has a vector but no numRecords"
    if tight_bounds(body.get("stats")):
        return "has a vector but tight bounds"
    descriptor = Descriptor.from_json(vector)
    if descriptor.offset is None or descriptor.storage_type == "i":
        return "has a vector without an offset, which engines read differently"
    if not 0 < descriptor.cardinality < rows:
        return f"has a vector that deletes {descriptor.cardinality} of {rows} rows"
    return None


def _fault_of_pair(
    add: Mapping[str, Any], remove: Mapping[str, Any], *, restores: bool
) -> str | None:
    if _id_of(add) == _id_of(remove):
        return "is added and removed with the same vector"
    before, after = _cardinality(remove), _cardinality(add)
    if after < before and not restores:
        return f"would get rows back: {before} were deleted, now {after}"
    return None


def _id_of(body: Mapping[str, Any]) -> str | None:
    vector = body.get("deletionVector")
    return None if vector is None else Descriptor.from_json(vector).unique_id


def _cardinality(body: Mapping[str, Any]) -> int:
    vector = body.get("deletionVector")
    return 0 if vector is None else Descriptor.from_json(vector).cardinality


def _broken(table: str, path: str, what: str) -> PlanError:
    return PlanError(
        f"a commit to {table} was stopped: {path} {what}",
        hint="nothing was changed; please report this bug",
    )


def commit_actions(
    base: write_change.Base, change: write_change.Change, read_version: int, txn_id: str
) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit in their order, the commitInfo first."""
    now = int(time.time() * 1000)
    version, metadata = base.version + 1, change.metadata or base.metadata
    isolation = isolation_level(metadata) if change.data_change else "SnapshotIsolation"
    info = commit_info_body(change, read_version, isolation, now, txn_id)
    new_metadata = change.metadata
    if metadata.is_on(Property.ENABLE_IN_COMMIT_TIMESTAMPS):
        # In-commit timestamps increase, whatever the clocks of the writers show.
        timestamp = max(now, base.timestamp_ms + 1)
        info["inCommitTimestamp"] = timestamp
        if new_metadata is not None:
            new_metadata = _with_enablement(base, new_metadata, version, timestamp)
    mark = base.row_id_mark
    adds, removes = _adds(change), _removes(change, now)
    if "rowTracking" in (change.protocol or base.protocol).supported:
        info["tags"] = {"delta.rowTracking.preserved": str(change.operation.keeps_row_ids).lower()}
        adds, mark = write_change.assign_row_ids(adds, mark, version)
    replaced = (*change.gone_files, *(each.file for each in change.vector_updates))
    live = {file.path: file.add for file in replaced}
    table, re_added = base.storage.root, change.re_added
    require_valid(table, adds, removes, live, re_added=re_added, restores=change.restores)
    for each in change.rewrites:
        require_same_count(table, each)
    yield {"commitInfo": info}
    if change.protocol is not None:
        yield {"protocol": change.protocol.to_json()}
    if new_metadata is not None:
        yield {"metaData": new_metadata.to_json()}
    if (txn := change.operation.transaction) is not None:
        yield {"txn": {"appId": txn.app_id, "version": txn.version, "lastUpdated": now}}
    if mark != base.row_id_mark:
        text = json.dumps({"rowIdHighWaterMark": mark}, separators=(",", ":"))
        yield _domain(write_change.ROW_TRACKING_DOMAIN, text)
    yield from (_domain(name, text) for name, text in change.domains.items())
    # Adds come before removes of the same path, as delta-spark writes them.
    yield from ({"add": body} for body in (*adds, *change.re_added))
    yield from ({"remove": body} for body in (*removes, *change.tombstones))
    yield from ({"cdc": body} for body in change.change_files)


def _is_inline(file: FileEntry) -> bool:
    return file.descriptor is not None and file.descriptor.storage_type == "i"


def _adds(change: write_change.Change) -> list[dict[str, Any]]:
    adds = [dict(body) for body in change.added]
    adds += ({**add_body(each), "dataChange": change.data_change} for each in change.vector_updates)
    return [*adds, *_moved(change)]


def _removes(change: write_change.Change, now_ms: int) -> list[dict[str, Any]]:
    is_data = change.data_change
    removes = [remove_body(file, now_ms, data_change=is_data) for file in change.gone_files]
    # Of a vector in the log no file is to be kept, and the data file is live: an expired tombstone
    # does not break VACUUM of delta-spark, as others with such a vector do.
    times = [(each.file, 0 if _is_inline(each.file) else now_ms) for each in change.vector_updates]
    return [*removes, *(remove_body(file, at, data_change=is_data) for file, at in times)]


def _moved(change: write_change.Change) -> Iterator[dict[str, Any]]:
    """Yield the adds of files that rows were moved to, with the vectors that some got since."""
    for each in change.rewrites:
        if each.added is not None:
            body = each.added.add if each.deleted is None else add_body(each.deleted)
            yield {**body, "dataChange": change.data_change}


def add_body(update: write_change.VectorUpdate) -> dict[str, Any]:
    """Return the add of a file with its new vector: as before, but with wide bounds."""
    if update.descriptor is None:
        raise AssertionError("the vector is stored before the commit is written")
    entry, old = update.file.add, update.file.descriptor
    return {
        **entry,
        "dataChange": True,
        "stats": widen_bounds(entry.get("stats"), update.rows, old.cardinality if old else 0),
        "deletionVector": update.descriptor.to_json(),
    }


def remove_body(file: FileEntry, now_ms: int, *, data_change: bool = True) -> dict[str, Any]:
    """Return the tombstone of a file, with its old vector: without it both entries stay live."""
    entry, rows = file.add, file.rows
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
    change: write_change.Change, read_version: int, isolation: str, now_ms: int, txn_id: str
) -> dict[str, Any]:
    """Return the commitInfo of a change; all its parameters and metrics are strings."""
    operation, metrics = change.operation, _operation_metrics(change)
    info: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": operation.name,
        "operationParameters": {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in operation.parameters.items()
        },
        "isolationLevel": isolation,
        "isBlindAppend": change.is_blind_append,
        "operationMetrics": {name: str(count) for name, count in metrics.items()},
        "engineInfo": f"delvec/{__version__}",
        "txnId": txn_id,
    }
    if read_version >= 0:
        info["readVersion"] = read_version
    if operation.user_metadata is not None:
        info["userMetadata"] = operation.user_metadata
    return info


def encode_lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    lines = (json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions)
    return "".join(f"{line}\n" for line in lines).encode()


def _domain(name: str, text: str | None) -> dict[str, Any]:
    body = {"domain": name, "configuration": text or "", "removed": text is None}
    return {"domainMetadata": body}


def _with_enablement(
    base: write_change.Base, metadata: Metadata, version: int, timestamp: int
) -> Metadata:
    """Record the version that enables in-commit timestamps, unless the table begins with them."""
    if base.version < 0 or base.metadata.is_on(Property.ENABLE_IN_COMMIT_TIMESTAMPS):
        return metadata
    since = {
        Property.IN_COMMIT_TIMESTAMPS_SINCE_VERSION: str(version),
        Property.IN_COMMIT_TIMESTAMPS_SINCE_TIME: str(timestamp),
    }
    return replace(metadata, configuration={**metadata.configuration, **since})


def _operation_metrics(change: write_change.Change) -> dict[str, int]:
    """Return the counts of a change by Delta's names: its own, and those of its files.

    A vector that replaces another counts as added, removed and updated, as in delta-spark.
    """
    name, own = change.operation.name, change.operation.metrics
    if name in ("OPTIMIZE", "REORG"):
        return {**_sizes(change), **own}
    if name not in ("DELETE", "UPDATE", "MERGE", "WRITE"):
        return dict(own)
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
    if name == "WRITE":
        files = {"numFiles": added[0], "numOutputBytes": added[1]}
        gone = {"numRemovedFiles": removed[0], "numRemovedBytes": removed[1]}
        return dict(own) | files | (gone if change.removed else {})
    if name == "MERGE":
        return {
            **own,
            **{f"numTargetDeletionVectors{what}": count for what, count in vectors.items()},
            "numTargetFilesAdded": added[0],
            "numTargetBytesAdded": added[1],
            "numTargetFilesRemoved": removed[0],
            "numTargetBytesRemoved": removed[1],
            "numTargetChangeFilesAdded": len(change.change_files),
        }
    return {
        **own,
        **{f"numDeletionVectors{what}": count for what, count in vectors.items()},
        "numAddedFiles": added[0],
        "numAddedBytes": added[1],
        "numRemovedFiles": removed[0],
        "numRemovedBytes": removed[1],
        "numAddedChangeFiles": len(change.change_files),
    }


def _sizes(change: write_change.Change) -> dict[str, int]:
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
