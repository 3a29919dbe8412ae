"""CREATE, REPLACE and ALTER of a table: commits of metadata, without a Spark session."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delvec.delta.alter.definition import new_table
from delvec.delta.alter.location import require_empty_location
from delvec.delta.alter.replace import replace_definition
from delvec.delta.alter.table_state import TableState
from delvec.delta.pruning.predicate import Always
from delvec.delta.schema.properties import ENABLE_ROW_TRACKING
from delvec.delta.write.base import Base
from delvec.delta.write.change import Change, ReadSet
from delvec.delta.write.commit import commit
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.types import StructType
    from delvec.delta.write.transaction import Attempt
    from delvec.storage import Storage

__all__ = [
    "TableDescription",
    "alter",
    "create",
    "create_defined",
    "replace_table",
    "state_change",
]


@dataclass(frozen=True)
class TableDescription:
    """The definition of a table that is to be created."""

    schema: StructType
    partition_by: tuple[str, ...]
    properties: Mapping[str, Any]
    name: str | None
    description: str | None

    def state(self) -> TableState:
        """Return the state of a new table of this definition."""
        return new_table(
            self.schema,
            self.partition_by,
            self.properties,
            name=self.name,
            description=self.description,
        )


def create(storage: Storage, wanted: TableDescription) -> WriteReport:
    """Create a table where there is none, as version 0.

    Raises:
        InvalidArgumentError: There are files, which a VACUUM of the table would delete.
        ConflictError: Another writer created one at the same time.
    """
    return create_defined(storage, wanted.state())


def create_defined(storage: Storage, state: TableState) -> WriteReport:
    """Create the table of a definition; see `create`."""
    require_empty_location(storage, state.metadata)
    change = _described(Change("CREATE TABLE"), state)
    with UncommittedFiles(storage) as uncommitted:
        base = Base(storage, -1, state.protocol, state.metadata)
        committed = commit(base, change, uncommitted)
    return WriteReport("CREATE TABLE", storage.root, committed.version)


def replace_table(wanted: TableDescription) -> Callable[[Attempt], Outcome]:
    """Prepare the replacement of a table by an empty one; old versions stay readable."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        require_writable(snapshot, "overwrite")
        state = replace_definition(
            TableState.of(snapshot),
            wanted.schema,
            wanted.partition_by,
            wanted.properties,
            name=wanted.name,
            description=wanted.description,
        )
        removed = tuple(snapshot.files.entries())
        change = Change("CREATE OR REPLACE TABLE", reads=ReadSet(Always()), removed=removed)
        return Outcome(_described(change, state))

    return prepare


def _described(change: Change, state: TableState) -> Change:
    metadata = state.metadata
    parameters = {
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "clusterBy": "[]",
        "description": metadata.description or "",
        "isManaged": "false",
        "properties": json.dumps(dict(metadata.configuration)),
    }
    return replace(change, parameters=parameters, protocol=state.protocol, metadata=metadata)


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
        tracks = now.metadata.is_on(ENABLE_ROW_TRACKING) and not was.metadata.is_on(
            ENABLE_ROW_TRACKING
        )
        reads = ReadSet(Always()) if tracks else ReadSet()
        return state_change(attempt, operation, parameters, was, now, reads)

    return prepare


def state_change(
    attempt: Attempt,
    operation: str,
    parameters: Mapping[str, Any],
    was: TableState,
    now: TableState,
    reads: ReadSet,
) -> Outcome:
    """Return the change from one state of the table to another; none if they are equal."""
    if now == was:
        return Outcome(None, notes=("the table is in this state already",))
    change = Change(
        operation,
        parameters=parameters,
        reads=reads,
        protocol=now.protocol if now.protocol != was.protocol else None,
        metadata=now.metadata if now.metadata != was.metadata else None,
        transaction=attempt.options.transaction,
        user_metadata=attempt.options.commit_metadata,
    )
    return Outcome(change)
