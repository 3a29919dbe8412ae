"""The writers that Spark runs, batch and stream, and their one commit; Python without a session.

`write` runs in tasks, `commit` and `abort` in a process of the driver. A task that is retried, or
runs twice by speculation, writes files of other names; only the messages of those that Spark
accepted are committed. Other files are orphans, which VACUUM deletes.

A write starts from the version that it was planned on. An append is rebased onto commits that came
since; an overwrite conflicts with them, so that no row of theirs is lost unseen. Neither can be
repeated here: only Spark could compute the rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from delvec.datasource.data_files import write_files
from delvec.datasource.target import Target, open_target
from delvec.delta.alter.operations import create_defined
from delvec.delta.alter.table_state import TableState
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.skipping.predicate import Always
from delvec.delta.write.change import AppTransaction, Change, Operation, ReadSet
from delvec.delta.write.transaction import Attempt, CheckedOptions, NoEngine, Outcome, create, run
from delvec.delta.write.writable import require_writable
from delvec.errors import ConflictError, EngineError, InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from delvec.datasource.options import WriteSettings
    from delvec.storage import Storage

    Messages = Sequence[WriterCommitMessage | None]

_LOG: Final = logging.getLogger("delvec")
# Set by Spark for the jobs of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
# With this property other engines drop old transaction identifiers.
_FORGETS: Final = "delta.setTransactionRetentionDuration"
_Message = TypeVar("_Message", bound="FilesWritten")


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """What one task has written: the bodies of the add actions, and how many rows they have."""

    adds: tuple[dict[str, Any], ...]
    rows: int
    version: int  # of the table that the write was planned on
    query_id: str | None = None  # of the streaming query, which outlives its restarts


def commit_files(
    storage: Storage,
    messages: Sequence[FilesWritten],
    options: CheckedOptions,
    *,
    version: int,
    planned: TableState,
    overwrite: bool,
) -> None:
    """Commit the files of all tasks as one version; if that fails, they are deleted."""
    adds = tuple(add for message in messages for add in message.adds)
    paths = [str(add["path"]) for add in adds]
    mode = "Overwrite" if overwrite else "Append"
    parameters = {"mode": mode, "partitionBy": list(planned.metadata.partition_columns)}
    metrics = {"numOutputRows": sum(message.rows for message in messages)}
    # A data source is not told where its rows come from.
    reads = ReadSet(Always() if overwrite else None, is_known=False)
    change = Change(Operation("WRITE", parameters, metrics, reads), added=adds)
    if version < 0:
        change = replace(change, protocol=planned.protocol, metadata=planned.metadata)
        create(storage, change, options, paths)
        return

    def prepare(attempt: Attempt) -> Outcome:
        attempt.uncommitted.add(*paths)
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
        removed = tuple(snapshot.files.entries()) if overwrite else ()
        return Outcome(replace(change, removed=removed))

    try:
        report = run(NoEngine(), lambda: open_snapshot(storage, version), "WRITE", prepare, options)
    except ConflictError as error:
        error.hint = "nothing was changed; run the write again"
        raise
    if report.version is None:
        # The transaction is in already, with files of an earlier attempt.
        delete_files(storage, messages)


def delete_files(storage: Storage, messages: Sequence[FilesWritten]) -> None:
    """Delete the files of tasks whose write is given up."""
    storage.delete(add["path"] for message in messages for add in message.adds)


def complete(messages: Messages, kind: type[_Message]) -> list[_Message]:
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


def abort_files(storage: Storage, messages: Messages) -> None:
    """Delete the files of a job that failed.

    Spark calls this after a failed commit too, when all tasks have finished. Then the commit has
    deleted what is certainly not part of the table, and what is left may be part of it.
    """
    if any(message is None for message in messages):
        delete_files(storage, [m for m in messages if isinstance(m, FilesWritten)])


@dataclass(frozen=True)
class StreamFiles(FilesWritten):
    """What one task of a stream has written, and for which table.

    The writer that commits is another one than the tasks': it was made when they had finished.
    """

    planned: TableState | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame; planned on the driver, pickled for tasks and for the commit."""

    def __init__(self, settings: WriteSettings, schema: StructType, *, overwrite: bool) -> None:
        self._settings, self._overwrite = settings, overwrite
        self._target: Target = open_target(settings, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        return _written(self._target, iterator)

    def commit(self, messages: Messages) -> None:
        target, transaction = self._target, self._settings.checked.transaction
        written = complete(messages, FilesWritten)
        if transaction is not None and target.version >= 0:
            warn_of_repeat(open_snapshot(target.storage, target.version), transaction, written)
        commit_files(
            target.storage,
            written,
            self._settings.checked,
            version=target.version,
            planned=target.state,
            overwrite=self._overwrite,
        )

    def abort(self, messages: Messages) -> None:
        """Delete what tasks have written; see `abort_files`."""
        abort_files(self._target.storage, messages)


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes each batch of a stream exactly once.

    The commit of a batch carries a transaction identifier: the query's id, which is kept in its
    checkpoint, and the number of the batch. A batch that the table holds is not written again.

    The first batch is committed even without rows. So a table without an identifier of the query
    is not the one that earlier batches went to: it was dropped and created again. Writing to it is
    refused, after restarts of the query too: Spark makes new writers for each batch, and they
    remember nothing. A table that was set back to an earlier state of its own, as from a backup of
    its folder, has an identifier and is not noticed.

    Tasks of the first batch create a table that is not there, before they write files: a query that
    is killed meanwhile finds a table when it starts again, and not a folder with files of nobody.
    Where a later batch finds no table, none is created.

    The second base class makes Spark 4.0 hand over Arrow batches.
    """

    def __init__(self, settings: WriteSettings, schema: StructType, *, overwrite: bool) -> None:
        if settings.checked.transaction is not None:
            raise InvalidArgumentError(
                "txnAppId and txnVersion are for batches: a stream is known by its query's id",
                hint="omit both options",
            )
        self._settings, self._schema, self._overwrite = settings, schema, overwrite
        self._target = open_target(settings, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the rows of one task; in the first batch, create the table before."""
        task, target = TaskContext.get(), self._target
        query = task.getLocalProperty(_QUERY_ID) if task is not None else None
        batch = int((task.getLocalProperty(_BATCH_ID) if task is not None else None) or 0)
        if target.version < 0 and (self._overwrite or batch == 0):
            with suppress(ConflictError):  # another task of the batch was first, or another query
                create_defined(target.storage, target.state)
            find_segment(target.storage)  # it is there now
            target = open_target(self._settings, self._schema, overwrite=self._overwrite)
        elif target.version < 0:
            iterator = _refused(iterator, target.storage, AppTransaction(str(query), batch))
        files = _written(target, iterator)
        return StreamFiles(files.adds, files.rows, files.version, query, target.state)

    def commit(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Commit a batch, unless the table holds it already."""
        written, storage = complete(messages, StreamFiles), self._target.storage
        follows = not self._overwrite and batchId > 0
        if follows and not any(message.adds for message in written):
            return  # a batch without rows can be repeated
        transaction = _transaction(written, batchId)
        planned = written[0].planned
        if any(message.planned != planned for message in written):
            delete_files(storage, written)
            raise ConflictError(
                f"{storage.root} was created by another query while tasks wrote to it",
                hint="start the query again",
            )
        # They differ where tasks created the table, and another query wrote to it at once.
        snapshot = open_snapshot(storage, min(message.version for message in written))
        forgets = _FORGETS in snapshot.metadata.configuration
        if follows and not forgets and transaction.app_id not in snapshot.transactions:
            delete_files(storage, written)
            other = f"{snapshot.table} (id {snapshot.metadata.id})"
            raise _not_the_table(other, transaction)
        warn_of_repeat(snapshot, transaction, written)
        commit_files(
            storage,
            written,
            replace(self._settings.checked, transaction=transaction),
            version=snapshot.version,
            planned=planned or self._target.state,
            overwrite=self._overwrite,
        )

    def abort(self, messages: Messages, batchId: int) -> None:  # type: ignore[override]  # noqa: ARG002, N803
        """Delete what tasks have written; see `abort_files`."""
        abort_files(self._target.storage, messages)


def _written(target: Target, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in iterator:
            rows += batch.num_rows
            yield batch

    adds = write_files(target, counted())
    return FilesWritten(tuple(adds), rows, target.version)


def _transaction(written: Sequence[FilesWritten], batch: int) -> AppTransaction:
    queries = {message.query_id for message in written}
    if len(queries) != 1 or None in queries:
        raise EngineError(
            "Spark does not tell the id of the streaming query, without which a batch could be"
            " written twice",
            hint="write in foreachBatch, by delvec.DeltaTable.append(df, txn_app_id=...,"
            " txn_version=batch_id)",
        )
    return AppTransaction(str(queries.pop()), batch)


def _refused(
    rows: Iterator[pa.RecordBatch], storage: Storage, batch: AppTransaction
) -> Iterator[pa.RecordBatch]:
    """Refuse rows of a later batch where there is no table; a batch without rows is none."""
    for each in rows:
        if each.num_rows:
            raise _not_the_table(f"{storage.root}, where there is no table,", batch)
    yield from ()


def _not_the_table(found: str, batch: AppTransaction) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{found} is not the table that the streaming query {batch.app_id} wrote its earlier"
        f" batches to: it holds none before batch {batch.version}",
        hint="was it dropped? Begin again with another checkpointLocation; to go on without the"
        ' earlier batches, write a DataFrame without rows by df.write.format("delvec") with the'
        f" options txnAppId={batch.app_id} and txnVersion={batch.version - 1}",
    )
