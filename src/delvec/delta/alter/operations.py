"""CREATE, REPLACE and ALTER of a table: commits of metadata, without a Spark session.

A new table's folder has to be empty: VACUUM deletes whatever the log does not refer to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from delvec.delta.alter.definition import new_table, replace_definition
from delvec.delta.alter.table_state import TableState
from delvec.delta.log.paths import NameRules
from delvec.delta.log.segment import Segment, find_segment
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.types import StructType
from delvec.delta.skipping.clustering import column_names
from delvec.delta.skipping.predicate import Always
from delvec.delta.write import transaction
from delvec.delta.write.change import Change, Operation, ReadSet
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import InvalidArgumentError, TableNotFoundError
from delvec.report.hints import Wording, format_hint, shell_word
from delvec.storage import FileInfo, Storage

_SHOWN: Final = 3
_PAGE: Final = 1000  # Files that are looked at for more names, once there is one: a request.
_LAST: Final = "\U0010ffff"


def require_empty_location(storage: Storage, metadata: Metadata) -> None:
    """Refuse a folder for a new table that has files which a VACUUM of it would delete.

    Hidden names are those that VACUUM leaves; files of other tables inside the folder count, since
    delta-spark deletes them. Where somebody creates a table at the same time, nothing is refused:
    the commit of version 0 will conflict. One listing, which ends with the first such file, and one
    more for each hidden folder.
    """
    found = _visible_files(storage, NameRules.of(metadata))
    if not found or is_table(storage):
        return
    more = " and more" if len(found) > _SHOWN else ""
    is_parquet = all(key.endswith(".parquet") for key in found)
    raise InvalidArgumentError(
        f"{storage.root} is not a Delta table and has files, which a VACUUM of a new table there"
        f" would delete: {', '.join(found[:_SHOWN])}{more}",
        hint=format_hint(
            "delete them if they are what a killed write left; else choose another folder, or make"
            " them a table: {}",
            Wording(
                f"DeltaTable.convert_to_delta(None, {storage.root!r})",
                f"`delvec convert-to-delta {shell_word(storage.root, is_path=True)}`",
            ),
        )
        if is_parquet
        else "choose another folder, or move these files",
    )


def is_table(storage: Storage) -> bool:
    """Return whether there is a log, readable by delvec or not."""
    try:
        find_segment(storage)
    except TableNotFoundError:
        return False
    return True


def _visible_files(storage: Storage, rules: NameRules) -> list[str]:
    found: list[str] = []
    since = 0
    for info in _below(storage, rules):
        since += bool(found)
        if not rules.is_hidden(info.key) and not _is_marker(storage, info):
            found.append(info.key)
        if len(found) > _SHOWN or since >= _PAGE:
            break
    return found


def _below(storage: Storage, rules: NameRules) -> Iterator[FileInfo]:
    """Yield the files below a folder; of hidden folders in it the first only."""
    start: str | None = None
    leapt = ""
    while True:
        for info in storage.list(start_from=start, recursive=True):
            yield info
            folder, slash, _ = info.key.partition("/")
            if slash and folder != leapt and rules.is_hidden(folder):
                start, leapt = f"{folder}/{_LAST}{_LAST}", folder
                break
        else:
            return


def _is_marker(storage: Storage, info: FileInfo) -> bool:
    """Return whether an empty file is what Hadoop puts into buckets for the folder `x/`."""
    return info.size == 0 and "://" in storage.root and not storage.exists(info.key)


@dataclass(frozen=True)
class TableDescription:
    """The definition of a table that is to be created: the arguments of `new_table`.

    Without properties, a table that is replaced keeps its own.
    """

    schema: StructType
    partition_by: tuple[str, ...]
    properties: Mapping[str, Any] | None
    name: str | None
    description: str | None
    cluster_by: tuple[str, ...] = ()

    def state(self) -> TableState:
        return new_table(**vars(self))


def create_defined(storage: Storage, state: TableState) -> WriteReport:
    """Create a table where there is none, as version 0."""
    require_empty_location(storage, state.metadata)
    version = transaction.create(storage, new_state("CREATE TABLE", state))
    return WriteReport("CREATE TABLE", storage.root, version)


def snapshot_before(storage: Storage, state: TableState) -> Snapshot:
    """Return what there is before a table is created: no version, but its definition."""
    segment = Segment(-1, None, (), 0)
    definition = state.protocol, state.metadata
    return Snapshot(storage, segment, *definition, {}, state.new_domains(), [], [])


def replace_table(wanted: TableDescription) -> Callable[[Attempt], Outcome]:
    """Prepare the replacement of a table by an empty one; old versions stay readable."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        require_writable(snapshot, "overwrite")
        was = TableState.of(snapshot)
        state = replace_definition(was, **vars(wanted))
        change = new_state("CREATE OR REPLACE TABLE", state, was, ReadSet(Always()))
        return Outcome(replace(change, removed=tuple(snapshot.files.entries())))

    return prepare


def new_state(
    name: str, state: TableState, was: TableState | None = None, reads: ReadSet | None = None
) -> Change:
    metadata = state.metadata
    parameters = {
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "clusterBy": json.dumps(column_names(metadata, state.clustering), separators=(",", ":")),
        "description": metadata.description or "",
        "isManaged": "false",
        "properties": json.dumps(dict(metadata.configuration)),
    }
    operation = Operation(name, parameters, reads=reads or ReadSet())
    return Change(
        operation, protocol=state.protocol, metadata=metadata, domains=state.new_domains(was)
    )


def alter(
    operation: str,
    parameters: Mapping[str, Any],
    transform: Callable[[Snapshot, TableState], TableState],
) -> Callable[[Attempt], Outcome]:
    """Prepare a change of protocol and metadata; none if the state stays the same."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "alter")
            was = TableState.of(snapshot)
            now = transform(snapshot, was)
        # Row tracking is enabled on empty tables only, so a concurrent append must be a conflict.
        tracking = Property.ENABLE_ROW_TRACKING
        starts = now.metadata.is_on(tracking) and not was.metadata.is_on(tracking)
        reads = ReadSet(Always()) if starts else ReadSet()
        return state_change(operation, parameters, was, now, reads)

    return prepare


def state_change(
    operation: str, parameters: Mapping[str, Any], was: TableState, now: TableState, reads: ReadSet
) -> Outcome:
    """Return the change from one state of the table to another; none if they are equal."""
    if now == was:
        return Outcome(None, notes=("the table is in this state already",))
    change = Change(
        Operation(operation, parameters, reads=reads),
        protocol=now.protocol if now.protocol != was.protocol else None,
        metadata=now.metadata if now.metadata != was.metadata else None,
        domains=now.new_domains(was),
    )
    return Outcome(change)
