"""The one commit of a write: what tasks have written becomes a version of the table, or nothing.

A write starts from the version that it was planned on. An append is rebased onto commits that came
since; an overwrite conflicts with them, so that no row of theirs is lost unseen. Neither can be
repeated here: only Spark could compute the rows again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from delvec.errors import ConflictError, EngineError
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.change import AppTransaction
    from delvec.delta.write.options import CheckedOptions
    from delvec.delta.write.transaction import Attempt
    from delvec.storage import Storage

__all__ = [
    "FilesWritten",
    "abort_files",
    "commit_files",
    "complete",
    "delete_files",
    "warn_of_repeat",
]

_LOG: Final = logging.getLogger("delvec")
_Message = TypeVar("_Message", bound="FilesWritten")


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


def complete(
    messages: Sequence[WriterCommitMessage | None], kind: type[_Message]
) -> list[_Message]:
    """Return the messages of all tasks.

    Raises:
        EngineError: Some did not finish.
    """
    found = [message for message in messages if isinstance(message, kind)]
    if len(found) != len(messages):
        raise EngineError(
            f"Spark commits a write of which {len(messages) - len(found)} tasks did not finish",
            hint="nothing was changed; run the write again",
        )
    return found


def warn_of_repeat(
    snapshot: Snapshot, transaction: AppTransaction, written: Sequence[FilesWritten]
) -> None:
    """Log that rows of a batch are dropped, since the table holds a later one."""
    held = snapshot.transactions.get(transaction.app_id, -1)
    if held >= transaction.version and any(message.adds for message in written):
        _LOG.warning(
            "%s holds transaction %d of %s, and %d is not written again (rows: %d)",
            snapshot.table,
            held,
            transaction.app_id,
            transaction.version,
            sum(message.rows for message in written),
        )


def abort_files(storage: Storage, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the files of a job that failed.

    Spark calls this after a failed commit too, when all tasks have finished. Then the commit has
    deleted what is certainly not part of the table, and what is left may be part of it.
    """
    if any(message is None for message in messages):
        delete_files(storage, [m for m in messages if isinstance(m, FilesWritten)])


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
