"""CREATE, REPLACE and ALTER of a table: commits of metadata, without a session."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delvec.delta.alter.definition import new_table
from delvec.delta.alter.replace import replaced
from delvec.delta.alter.table_state import TableState
from delvec.delta.pruning.predicate import Always
from delvec.delta.schema.properties import ENABLE_ROW_TRACKING
from delvec.delta.write.change import Change, Reads
from delvec.delta.write.commit import Base, commit
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

__all__ = ["TableDescription", "alter", "altered", "create", "replace_table"]


@dataclass(frozen=True)
class TableDescription:
    """A table that somebody wants."""

    schema: StructType
    partition_by: tuple[str, ...]
    properties: Mapping[str, Any]
    name: str | None
    description: str | None


def create(storage: Storage, wanted: TableDescription) -> WriteReport:
    """Make a table where there is none: one commit.

    Raises:
        ConflictError: Another writer made one at the same time.
    """
    state = new_table(
        wanted.schema,
        wanted.partition_by,
        wanted.properties,
        name=wanted.name,
        description=wanted.description,
    )
    change = _described(Change("CREATE TABLE"), state)
    with UncommittedFiles(storage) as uncommitted:
        base = Base(storage, -1, state.protocol, state.metadata)
        committed = commit(base, change, uncommitted)
    return WriteReport("CREATE TABLE", storage.root, committed.version)


def replace_table(wanted: TableDescription) -> Callable[[Attempt], Outcome]:
    """Prepare an empty table in place of one that is there, whose versions stay readable."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        require_writable(snapshot, "overwrite")
        state = replaced(
            TableState.of(snapshot),
            wanted.schema,
            wanted.partition_by,
            wanted.properties,
            name=wanted.name,
            description=wanted.description,
        )
        removed = tuple(snapshot.files.entries())
        change = Change("CREATE OR REPLACE TABLE", reads=Reads(Always()), removed=removed)
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
    """Prepare another state of a table; nothing if it is the same."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "alter")
            was = TableState.of(snapshot)
            now = transform(snapshot, was)
        # Rows can be tracked from the first on only, so that no files may come in between.
        tracks = now.metadata.is_on(ENABLE_ROW_TRACKING) and not was.metadata.is_on(
            ENABLE_ROW_TRACKING
        )
        reads = Reads(Always()) if tracks else Reads()
        return altered(attempt, operation, parameters, was, now, reads)

    return prepare


def altered(
    attempt: Attempt,
    operation: str,
    parameters: Mapping[str, Any],
    was: TableState,
    now: TableState,
    reads: Reads,
) -> Outcome:
    """Return the change from one state of a table to another; none if they are equal."""
    if now == was:
        return Outcome(None, notes=("the table is like that already",))
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
