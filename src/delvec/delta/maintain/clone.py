"""Shallow CLONE: a new table that refers to the data files of another, by absolute paths.

Paths are percent-encoded URIs, as delta-spark writes them. Vectors stay where they are too: those
named relative to the source become absolute, those in the log are copied with it. Nothing protects
the files from a VACUUM of the source. Ids of row tracking are assigned anew, as by delta-spark.

Memory grows with the files of the source (some kilobytes each): all are in one commit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

from delvec.delta.alter.location import require_empty_location
from delvec.delta.alter.restored_definition import CLUSTERING_DOMAIN
from delvec.delta.alter.table_state import needed_features, with_features
from delvec.delta.log.segment import LOG
from delvec.delta.maintain.available_files import add_again, require_files
from delvec.delta.read.load_vectors import admit_files
from delvec.delta.schema.properties import (
    CHECKPOINT_PROTECTION_BEFORE,
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
)
from delvec.delta.stats.entry import record_count
from delvec.delta.write.after_commit import after_commit
from delvec.delta.write.base import Base
from delvec.delta.write.change import Change
from delvec.delta.write.commit import commit
from delvec.delta.write.report import WriteReport
from delvec.delta.write.writable import require_writable
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.report.wordings import call, worded
from delvec.storage.listed_files import full_name, overlap, spark_path
from delvec.storage.location import locate
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from delvec.delta.log.file_set import FileEntry
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.delta.write.options import CheckedOptions
    from delvec.storage import Storage

__all__ = ["clone"]

# What a URI holds as it is in its path; Hadoop escapes the rest as well.
_PLAIN: Final = "/!$&'()*+,;=:@-._~"
_WARNING: Final = "a VACUUM of the source deletes files that only the clone still needs"
_ROW_IDS: Final = ("baseRowId", "defaultRowCommitVersion")
# Properties that tell of versions of the source, or name columns of it.
_OF_SOURCE: Final = (
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    CHECKPOINT_PROTECTION_BEFORE,
)


def clone(source: Snapshot, newest: int, target: Storage, options: CheckedOptions) -> WriteReport:
    """Create a table that has the files of a version of another one.

    Args:
        source: The version.
        newest: The newest version of the source: files of older ones may be gone.
        target: Where the new table is; its folder is empty or does not exist yet.
        options: The keywords of the call.

    Raises:
        InvalidArgumentError: There is something at the target, or it is inside of the source.
        ObjectNotFoundError: A file of an old version is gone.
        ConflictError: Another writer created a table at the same time.
    """
    require_writable(source, "alter")
    _require_place(source, target)
    admit_files(source.storage, source.files)
    entries = source.files.entries()
    if source.version != newest:
        require_files(
            source.storage, entries, version=source.version, others=len(entries), what="cloned"
        )
    protocol = with_features(source.protocol, needed_features(source.metadata))
    has_row_ids = "rowTracking" in protocol.supported
    bodies = tuple(_body(source, entry, has_row_ids=has_row_ids) for entry in entries)
    total = sum(int(body.get("size") or 0) for body in bodies)
    domains = {name: text for name, text in source.domains.items() if name == CLUSTERING_DOMAIN}
    change = Change(
        "CLONE",
        parameters={
            "source": f"delta.`{spark_path(source.table, '').rstrip('/')}`",
            "sourceVersion": source.version,
        },
        metrics={
            "sourceTableSize": total,
            "sourceNumOfFiles": len(bodies),
            "numRemovedFiles": 0,
            "numCopiedFiles": 0,
            "removedFilesSize": 0,
            "copiedFilesSize": 0,
        },
        added=bodies,
        protocol=protocol,
        metadata=_metadata(source.metadata, protocol),
        user_metadata=options.commit_metadata,
        transaction=options.transaction,
        restores=True,  # vectors come in any form
        domains=domains,
    )
    return _committed(source, target, change, options)


def _committed(
    source: Snapshot, target: Storage, change: Change, options: CheckedOptions
) -> WriteReport:
    metadata, protocol = change.metadata, change.protocol
    if metadata is None or protocol is None:
        raise AssertionError("a new table has both")
    version: int | None = None
    notes: tuple[str, ...] = (_WARNING,)
    if not options.dry_run:
        with UncommittedFiles(target) as uncommitted:
            base = Base(target, -1, protocol, metadata)
            version = commit(base, change, uncommitted).version
        notes += after_commit(target, version, metadata)
    return WriteReport(
        "CLONE",
        target.root,
        version,
        dry_run=options.dry_run,
        files_added=len(change.added),
        bytes_added=sum(int(body.get("size") or 0) for body in change.added),
        vectors_added=sum("deletionVector" in body for body in change.added),
        notes=(f"version {source.version} of {source.table}", *notes),
    )


def _require_place(source: Snapshot, target: Storage) -> None:
    if overlap(source.table, target.root):
        raise InvalidArgumentError(
            f"a clone at {target.root} would be one folder with its source, {source.table}",
            hint="clone to a folder of its own: a VACUUM of one would delete files of the other",
        )
    if locate(target.root).kind != locate(source.table).kind:
        raise InvalidArgumentError(
            f"{source.table} cannot be cloned to {target.root}: the clone refers to files of its"
            " source, which readers follow on the same kind of store only",
            hint="clone to the store of the source, or copy the rows",
        )
    if next(iter(target.list(LOG)), None) is not None:
        raise InvalidArgumentError(
            f"there is a table at {target.root} already", hint="clone to an empty folder"
        )
    require_empty_location(target, source.metadata)


def _metadata(source: Metadata, protocol: Protocol) -> Metadata:
    """Return the metadata of the clone: the same table with another id."""
    dropped = {*_OF_SOURCE, ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN}
    properties = {key: value for key, value in source.configuration.items() if key not in dropped}
    if "rowTracking" in protocol.supported:
        # Ids that files hold are those of the source: other columns hold the clone's.
        properties[ROW_ID_COLUMN] = f"_row-id-col-{uuid4()}"
        properties[ROW_COMMIT_VERSION_COLUMN] = f"_row-commit-version-col-{uuid4()}"
    return replace(source, id=str(uuid4()), name=None, description=None, configuration=properties)


def _body(source: Snapshot, entry: FileEntry, *, has_row_ids: bool) -> dict[str, Any]:
    body = add_again(entry, data_change=True)
    if has_row_ids and record_count(body.get("stats")) is None:
        raise UnsupportedFeatureError(
            f"{entry.path} of {source.table} has no row count in the log, which row tracking needs"
            " to assign ids in the clone",
            feature="rowTracking",
            needed_by=source.table,
            hint=worded("{} of the source adds it", call("recompute_statistics")),
        )
    body = {name: value for name, value in body.items() if name not in _ROW_IDS}
    descriptor = entry.descriptor
    if descriptor is not None and descriptor.storage_type == "u":
        path = _uri(source.table, str(descriptor.file_path))
        vector = replace(descriptor, storage_type="p", path_or_inline=path)
        vector.file_path  # noqa: B018 - refuses names that readers could take for another
        body["deletionVector"] = vector.to_json()
    return body | {"path": _uri(source.table, entry.path)}


def _uri(root: str, path: str) -> str:
    """Return the percent-encoded URI of a file of a table."""
    name = full_name(root, path)
    scheme, sign, rest = name.partition("://")
    return f"{scheme}://{quote(rest, safe=_PLAIN)}" if sign else f"file:{quote(name, safe=_PLAIN)}"
