"""The one commit of a write: what tasks have written becomes a version of the table, or nothing.

A write starts from the version that it was planned on. An append is rebased onto commits that came
since; an overwrite conflicts with them, so that no row of theirs is lost unseen. Neither can be
repeated here: only Spark could compute the rows again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from delvec.delta.alter.table_state import TableState
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.pruning.predicate import Always
from delvec.delta.write.base import Base
from delvec.delta.write.change import Change, ReadSet
from delvec.delta.write.commit import commit
from delvec.delta.write.engine import NoEngine
from delvec.delta.write.transaction import Outcome, run
from delvec.delta.write.writable import require_writable
from delvec.errors import ConflictError
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.write.options import CheckedOptions
    from delvec.delta.write.transaction import Attempt
    from delvec.storage import Storage

__all__ = ["FilesWritten", "commit_files", "delete_files"]


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """What one task has written.

    Attributes:
        adds: Bodies of the add actions.
        rows: How many rows they have.
        version: The version of the table that the write was planned on.
        query_id: The id of the streaming query, which outlives its restarts; None in a batch.
    """

    adds: tuple[dict[str, Any], ...]
    rows: int
    version: int
    query_id: str | None = None


def commit_files(
    storage: Storage,
    messages: Sequence[FilesWritten],
    options: CheckedOptions,
    *,
    version: int,
    planned: TableState,
    overwrite: bool,
) -> None:
    """Commit the files of all tasks as one version; if that fails, they are deleted.

    Args:
        storage: The table.
        messages: What the tasks have written.
        options: The transaction of the application, and the string for the history.
        version: The version that the write was planned on; -1 if it creates the table.
        planned: Protocol and metadata of that version, by which the files were written.
        overwrite: Whether all rows of the table are replaced.

    Raises:
        ConflictError: A concurrent commit conflicts with the write; nothing was changed.
    """
    adds = tuple(add for message in messages for add in message.adds)
    rows = sum(message.rows for message in messages)
    if version < 0:
        _create(storage, _change(planned, adds, rows, options, overwrite=overwrite), planned)
        return

    def prepare(attempt: Attempt) -> Outcome:
        attempt.uncommitted.add(*(add["path"] for add in adds))
        snapshot = attempt.snapshot
        if TableState.of(snapshot) != planned:
            raise ConflictError(
                f"{snapshot.table} was replaced while rows for it were written: its definition in"
                f" version {version:,} is another one",
                version=version,
                retryable=False,
            )
        require_writable(snapshot, "overwrite" if overwrite else "append")
        if not adds and not overwrite:
            return Outcome(None)
        change = _change(snapshot, adds, rows, options, overwrite=overwrite)
        if overwrite:
            removed = tuple(snapshot.files.entries())
            change = replace(change, removed=removed, reads=ReadSet(Always(), is_known=False))
        return Outcome(change)

    try:
        report = run(NoEngine(), lambda: open_snapshot(storage, version), "WRITE", prepare, options)
    except ConflictError as error:
        error.hint = "nothing was changed; run the write again"
        raise
    if report.version is None:
        # The transaction is in already, with files of an earlier attempt.
        delete_files(storage, messages)


def delete_files(storage: Storage, messages: Sequence[FilesWritten | None]) -> None:
    """Delete the files of tasks whose write is given up."""
    storage.delete(add["path"] for message in messages if message for add in message.adds)


def _create(storage: Storage, change: Change, state: TableState) -> None:
    change = replace(change, protocol=state.protocol, metadata=state.metadata)
    with UncommittedFiles(storage) as uncommitted:
        uncommitted.add(*(str(add["path"]) for add in change.added))
        commit(Base(storage, -1, state.protocol, state.metadata), change, uncommitted)


def _change(
    table: Any,  # noqa: ANN401 - a snapshot, or the state of a table that is created
    adds: tuple[dict[str, Any], ...],
    rows: int,
    options: CheckedOptions,
    *,
    overwrite: bool,
) -> Change:
    return Change(
        "WRITE",
        parameters={
            "mode": "Overwrite" if overwrite else "Append",
            "partitionBy": list(table.metadata.partition_columns),
        },
        metrics={"numOutputRows": rows},
        added=adds,
        # A data source is not told where its rows come from.
        reads=ReadSet(is_known=False),
        transaction=options.transaction,
        user_metadata=options.commit_metadata,
    )
