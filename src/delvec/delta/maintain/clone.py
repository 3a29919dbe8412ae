"""Shallow CLONE: a new table that refers to the data files of another, by absolute paths.

Paths are percent-encoded URIs, as delta-spark writes them. Vectors stay where they are too: those
named relative to the source become absolute, those in the log are copied with it. Nothing protects
the files from a VACUUM of the source. Ids of row tracking are assigned again, as by delta-spark.

Memory grows with the files of the source (some kilobytes each): all are in one commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from delvec.delta.alter.operations import require_empty_location
from delvec.delta.alter.table_state import TableState, add_features, needed_features
from delvec.delta.log.file_set import FileEntry
from delvec.delta.log.paths import LOG
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.maintain.available_files import add_again, require_files
from delvec.delta.read.vectors import admit_files
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.protocol import Protocol
from delvec.delta.skipping.clustering import clustered_by
from delvec.delta.skipping.predicate import Always
from delvec.delta.skipping.statistics import record_count
from delvec.delta.write.after_commit import after_commit
from delvec.delta.write.change import Change, Operation, ReadSet
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Attempt, CheckedOptions, Outcome, create
from delvec.delta.write.writable import require_writable
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.report.format import format_count
from delvec.report.hints import argument, call, format_hint
from delvec.storage import Storage
from delvec.storage.backend import locate
from delvec.storage.listed_files import full_name, overlap, spark_path

# What a URI holds as it is in its path; Hadoop escapes the rest as well.
_PLAIN: Final = "/!$&'()*+,;=:@-._~"
_WARNING: Final = "a VACUUM of the source deletes files that only the clone still needs"
_ROW_IDS: Final = ("baseRowId", "defaultRowCommitVersion")
# Properties that tell of versions of a table, and so are not those of its clone.
_OF_SOURCE: Final = (
    Property.IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    Property.IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    Property.CHECKPOINT_PROTECTION_BEFORE,
)


def clone(source: Snapshot, newest: int, target: Storage, options: CheckedOptions) -> WriteReport:
    """Create a clone of a version where no table is; `newest` is the source's newest version."""
    change = _change(source, newest, target)
    if next(iter(target.list(LOG)), None) is not None:
        raise InvalidArgumentError(
            f"there is a table at {target.root} already",
            hint=format_hint("clone to an empty folder, or with {}", argument(replace=True)),
        )
    require_empty_location(target, source.metadata)
    version = create(target, change, options)
    notes = () if version is None else after_commit(target, version, source.metadata)
    return WriteReport(
        "CLONE",
        target.root,
        version,
        dry_run=options.dry_run,
        files_added=len(change.added),
        bytes_added=sum(int(body.get("size") or 0) for body in change.added),
        vectors_added=sum("deletionVector" in body for body in change.added),
        notes=(*_notes(source), *notes),
    )


def replace_by_clone(source: Snapshot, newest: int) -> Callable[[Attempt], Outcome]:
    """Prepare a clone in place of a table without rows; so does delta-spark."""

    def prepare(attempt: Attempt) -> Outcome:
        was = attempt.snapshot
        require_writable(was, "overwrite")
        if count := len(was.files):
            raise InvalidArgumentError(
                f"a clone replaces a table without rows only, and {was.table} has"
                f" {format_count(count, 'file')}",
                hint="delete its rows first, by TRUNCATE TABLE or delete()",
            )
        change = _change(source, newest, attempt.storage, TableState.of(was))
        return Outcome(change, notes=_notes(source))

    return prepare


def _notes(source: Snapshot) -> tuple[str, ...]:
    return (f"version {source.version} of {source.table}", _WARNING)


def _change(
    source: Snapshot, newest: int, target: Storage, was: TableState | None = None
) -> Change:
    """Return the commit of a clone, in place of an empty table if there is one."""
    require_writable(source, "alter")
    _require_place(source, target)
    admit_files(source.storage, source.files)
    entries = source.files.entries()
    if source.version != newest:
        require_files(
            source.storage, entries, version=source.version, others=len(entries), what="cloned"
        )
    protocol = add_features(source.protocol, needed_features(source.metadata))
    metadata = _metadata(source.metadata, protocol)
    reads = ReadSet()
    if was is not None:
        protocol = add_features(was.protocol, protocol.supported)
        kept = {key: each for key, each in was.metadata.configuration.items() if key in _OF_SOURCE}
        properties = {**metadata.configuration, **kept}
        metadata = replace(metadata, id=was.metadata.id, configuration=properties)
        reads = ReadSet(Always())
    state = TableState(protocol, metadata, clustered_by(source.domains))
    has_row_ids = "rowTracking" in protocol.supported
    bodies = tuple(_body(source, entry, has_row_ids=has_row_ids) for entry in entries)
    parameters = {
        "source": f"delta.`{spark_path(source.table, '').rstrip('/')}`",
        "sourceVersion": source.version,
    }
    metrics = {
        "sourceTableSize": sum(int(body.get("size") or 0) for body in bodies),
        "sourceNumOfFiles": len(bodies),
        "numRemovedFiles": 0,
        "numCopiedFiles": 0,
        "removedFilesSize": 0,
        "copiedFilesSize": 0,
    }
    return Change(
        Operation("CLONE", parameters, metrics, reads),
        added=bodies,
        protocol=protocol,
        metadata=metadata,
        restores=True,  # vectors come in any form
        domains=state.new_domains(was),
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


def _metadata(source: Metadata, protocol: Protocol) -> Metadata:
    """Return the metadata of the clone: the same table with another id."""
    dropped = {*_OF_SOURCE, Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN}
    properties = {key: value for key, value in source.configuration.items() if key not in dropped}
    if "rowTracking" in protocol.supported:
        # Ids that files hold are those of the source: other columns hold the clone's.
        properties[Property.ROW_ID_COLUMN] = f"_row-id-col-{uuid4()}"
        properties[Property.ROW_COMMIT_VERSION_COLUMN] = f"_row-commit-version-col-{uuid4()}"
    return replace(source, id=str(uuid4()), name=None, description=None, configuration=properties)


def _body(source: Snapshot, entry: FileEntry, *, has_row_ids: bool) -> dict[str, Any]:
    body = add_again(entry, data_change=True)
    if has_row_ids and record_count(body.get("stats")) is None:
        raise UnsupportedFeatureError(
            f"{entry.path} of {source.table} has no row count in the log, which row tracking needs"
            " to assign ids in the clone",
            feature="rowTracking",
            needed_by=source.table,
            hint=format_hint("{} of the source adds it", call("recompute_statistics")),
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
    name = full_name(root, path)
    scheme, sign, rest = name.partition("://")
    return f"{scheme}://{quote(rest, safe=_PLAIN)}" if sign else f"file:{quote(name, safe=_PLAIN)}"
