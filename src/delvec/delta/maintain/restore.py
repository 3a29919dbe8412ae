"""RESTORE: a commit by which the newest version is again what an earlier one was.

The difference is by path and vector: files of the wanted version that are not live with that vector
come back with their whole entries, live files that it does not have go. No data is read or written.
Every data file and every file of vectors that comes back has to exist, and their tombstones must
not have expired: a VACUUM may delete such files at any moment. Of the definition nothing goes down:
the protocol supports what either version needs, and ids of columns and values of identity columns
are not given twice.

Requests: both versions are opened; one for each file that comes back, or a listing if these are
many. Memory grows with the files of both versions (some 200 bytes each), and with the entries that
differ (some kilobytes each).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.alter.table_state import TableState, add_features
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import among
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.maintain.available_files import add_again, file_keys, require_files, require_kept
from delvec.delta.schema.column_metadata import Identity, identity_fields, with_mark
from delvec.delta.schema.metadata import Metadata, Property, property_number
from delvec.delta.schema.protocol import FEATURES, Protocol
from delvec.delta.skipping.clustering import clustered_by
from delvec.delta.skipping.predicate import Always
from delvec.delta.write import change as write_change
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import UnsupportedFeatureError
from delvec.report.format import format_count, format_size

_SINCE: Final = (
    Property.IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    Property.IN_COMMIT_TIMESTAMPS_SINCE_TIME,
)


def _united(newest: Snapshot, wanted: Snapshot) -> Protocol:
    then = wanted.protocol.supported
    unknown = sorted(then - FEATURES.keys())
    if unknown:
        raise UnsupportedFeatureError(
            f"version {wanted.version} of {newest.table} needs a writer that supports"
            f" {', '.join(unknown)}",
            feature=unknown[0],
            needed_by=newest.table,
            hint="restore a version without this table feature, or use the engine that added it",
        )
    return add_features(newest.protocol, then)


def _lasting(now: Metadata, then: Metadata, protocol: Protocol) -> Metadata:
    def newest(*names: str) -> dict[str, str]:
        return {name: now.configuration[name] for name in names if name in now.configuration}

    properties = dict(then.configuration)
    if all(each.is_on(Property.ENABLE_IN_COMMIT_TIMESTAMPS) for each in (now, then)):
        # They may have been off in between: commits hold them since the last time.
        for name in _SINCE:
            properties.pop(name, None)
        properties |= newest(*_SINCE)
    if "rowTracking" in protocol.supported:
        # The files of the wanted version have the columns that it names.
        kept = newest(Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN)
        properties = {**kept, **properties}
    properties |= newest(Property.CHECKPOINT_PROTECTION_BEFORE)
    if Property.MAX_COLUMN_ID in now.configuration:
        ids = [
            property_number(each, Property.MAX_COLUMN_ID, 0)
            for each in (now.configuration, properties)
        ]
        properties[Property.MAX_COLUMN_ID] = str(max(ids))
    return replace(then, configuration=properties, schema_string=_with_marks(now, then))


def _with_marks(now: Metadata, then: Metadata) -> str:
    """Return the schema with the furthest high-water mark of each identity column."""
    marks = {
        field.physical_name: mark
        for field in identity_fields(now.schema)
        if (mark := Identity.of(field).high_water_mark) is not None
    }
    columns = {field.name for field in identity_fields(then.schema)}
    fields = [
        with_mark(field, Identity.of(field).mark_after(marks[field.physical_name]))
        if field.name in columns and field.physical_name in marks
        else field
        for field in then.schema.fields
    ]
    if tuple(fields) == then.schema.fields:
        return then.schema_string
    schema = replace(then.schema, fields=tuple(fields))
    return json.dumps(schema.to_json(), separators=(",", ":"), ensure_ascii=False)


def restore(version: int, parameters: Mapping[str, Any]) -> Callable[[Attempt], Outcome]:
    def prepare(attempt: Attempt) -> Outcome:
        newest = attempt.snapshot
        require_writable(newest, "restore")
        if version == newest.version:
            return Outcome(None, notes=(f"version {version} is the newest",))
        with attempt.phase("plan"):
            wanted = open_snapshot(attempt.storage, version)
            difference = _Difference.of(newest, wanted)
            protocol = _united(newest, wanted)
            metadata = _lasting(newest.metadata, wanted.metadata, protocol)
            was = TableState.of(newest)
            state = TableState(protocol, metadata, clustered_by(wanted.domains))
            # Domains of applications stay as they are, as with delta-spark.
            domains = state.new_domains(was)
            added = difference.added
        if state == was and not difference.is_one:
            return Outcome(None, notes=(f"the table is as version {version} was",))
        with attempt.phase("check"):
            entries = wanted.files.entries(added)
            others = len(newest.files)
            require_files(attempt.storage, entries, version=version, others=others, what="restored")
            require_kept(newest, wanted, added)
        bodies = [add_again(entry, data_change=True) for entry in entries]
        mark = write_change.high_water_mark(wanted.domains.get(write_change.ROW_TRACKING_DOMAIN))
        if mark > write_change.high_water_mark(
            newest.domains.get(write_change.ROW_TRACKING_DOMAIN)
        ):
            # Row tracking was dropped in between, and its mark with it.
            bodies, mark = write_change.assign_row_ids(bodies, mark, newest.version + 1)
            domains[write_change.ROW_TRACKING_DOMAIN] = f'{{"rowIdHighWaterMark":{mark}}}'
        kept = difference.kept_paths
        reads = write_change.ReadSet(Always(), files=kept, row_wise=False)
        change = write_change.Change(
            write_change.Operation("RESTORE", parameters, difference.metrics, reads),
            removed=tuple(newest.files.entries(difference.removed)),
            added=tuple(bodies),
            re_added=_with_ids(newest, wanted, kept),
            protocol=None if protocol == newest.protocol else protocol,
            # Always: a concurrent append is a conflict then, whatever the isolation level.
            metadata=metadata,
            restores=True,
            domains=domains,
        )
        return Outcome(change, notes=(_note(wanted),))

    return prepare


@dataclass(frozen=True)
class _Difference:
    """The files of two versions, by path and vector."""

    newest: FileSet
    wanted: FileSet
    removed: NDArray[np.int64]  # rows of `newest` that the wanted version does not have
    added: NDArray[np.int64]  # rows of `wanted` that the newest version does not have

    @classmethod
    def of(cls, newest: Snapshot, wanted: Snapshot) -> _Difference:
        now, then = (file_keys(each.files.paths, each.files.vectors) for each in (newest, wanted))
        removed, added = (np.flatnonzero(~among(*each)) for each in ((now, then), (then, now)))
        return cls(newest.files, wanted.files, removed, added)

    @property
    def is_one(self) -> bool:
        return bool(len(self.removed) or len(self.added))

    @property
    def kept_paths(self) -> frozenset[str]:
        """Paths of live files that stay; the others are in the commit itself."""
        stays = np.ones(len(self.newest), dtype=np.bool_)
        stays[self.removed] = False
        return frozenset(self.newest.paths.filter(pa.array(stays)).to_pylist())

    @property
    def metrics(self) -> dict[str, int]:
        return {
            "tableSizeAfterRestore": int(self.wanted.sizes.sum()),
            "numOfFilesAfterRestore": len(self.wanted),
            "numRemovedFiles": len(self.removed),
            "numRestoredFiles": len(self.added),
            "removedFilesSize": int(self.newest.sizes[self.removed].sum()),
            "restoredFilesSize": int(self.wanted.sizes[self.added].sum()),
        }


def _with_ids(
    newest: Snapshot, wanted: Snapshot, kept: frozenset[str]
) -> tuple[dict[str, Any], ...]:
    """Return entries of files that stay, where only the wanted version has their row ids.

    Dropping row tracking removes the ids of all files; switching it on again needs them.
    """
    then, now = (each.metadata.is_on(Property.ENABLE_ROW_TRACKING) for each in (wanted, newest))
    if now or not then:
        return ()
    without = {each.path for each in newest.files.entries() if each.add.get("baseRowId") is None}
    return tuple(
        add_again(entry, data_change=False)
        for entry in wanted.files.entries()
        if entry.path in kept and entry.path in without
    )


def _note(wanted: Snapshot) -> str:
    files = wanted.files
    facts = [format_count(len(files), "file"), format_size(int(files.sizes.sum()))]
    if not files.row_counts.null_count:
        facts.append(format_count(pc.sum(files.live_rows).as_py() or 0, "row"))
    return f"version {wanted.version} has {', '.join(facts)}"
