"""The writers that Spark runs: batches and streams, in Python workers without a session.

`write` runs in tasks, `commit` and `abort` in a process of the driver. A task that is retried, or
runs twice by speculation, writes files of other names; only the messages of those that Spark
accepted are committed. Files of the others, and of tasks that ran on when their job had failed, are
orphans, which VACUUM deletes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from delvec.datasource.commits import FilesWritten, commit_files, delete_files
from delvec.datasource.data_files import write_files
from delvec.datasource.target import open_target, row_schema
from delvec.delta.alter.operations import TableDescription, create
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.write.change import AppTransaction
from delvec.errors import ConflictError, EngineError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from delvec.datasource.target import Target
    from delvec.datasource.write_options import WriteSettings
    from delvec.delta.alter.table_state import TableState
    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import Storage

__all__ = ["BatchWriter", "StreamWriter"]

_LOG: Final = logging.getLogger("delvec")
_QUERY_ID: Final = "sql.streaming.queryId"  # set by Spark for the jobs of a streaming query
# With this property other engines drop old transaction identifiers.
_FORGETS: Final = "delta.setTransactionRetentionDuration"
_Message = TypeVar("_Message", bound=FilesWritten)


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
        """Write the rows of one task."""
        return _written(self._target, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what all tasks have written."""
        target, transaction = self._target, self._settings.checked.transaction
        written = _complete(messages, FilesWritten)
        if transaction is not None and target.version >= 0:
            _tell_of_repeat(open_snapshot(target.storage, target.version), transaction, written)
        commit_files(
            target.storage,
            written,
            self._settings.checked,
            version=target.version,
            planned=target.state,
            overwrite=self._overwrite,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what tasks have written; see `_abort`."""
        _abort(self._target.storage, messages)


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes each batch of a stream exactly once.

    The commit of a batch carries a transaction identifier: the query's id, which is kept in its
    checkpoint, and the number of the batch. A batch that the table holds is not written again.

    The first batch is committed even without rows. So a table without an identifier of the query
    is not the one that earlier batches went to: it was dropped, maybe created again by the writer
    itself. Appending to it is refused, after restarts of the query too: Spark makes new writers
    for each batch, and they remember nothing. A table that was set back to an earlier state of its
    own, as from a backup of its folder, has an identifier and is not noticed.

    The second base class makes Spark 4.0 hand over Arrow batches.
    """

    def __init__(self, settings: WriteSettings, schema: StructType, *, overwrite: bool) -> None:
        if settings.checked.transaction is not None:
            raise InvalidArgumentError(
                "txnAppId and txnVersion are for batches: a stream is known by its query's id",
                hint="omit both options",
            )
        self._settings, self._schema, self._overwrite = settings, schema, overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the rows of one task."""
        query = TaskContext.get()
        found = query.getLocalProperty(_QUERY_ID) if query is not None else None
        files, target = _written(self._target, iterator), self._target
        return StreamFiles(files.adds, files.rows, files.version, found, target.state)

    def plan(self) -> StreamWriter:
        """Open the table, or create it, before tasks write to it; return self."""
        settings = self._settings
        target = open_target(settings, self._schema, overwrite=self._overwrite)
        if target.version < 0:
            wanted = TableDescription(
                row_schema(self._schema),
                settings.partition_by,
                dict(settings.properties),
                None,
                None,
            )
            try:
                create(target.storage, wanted)
            except ConflictError:
                find_segment(target.storage)  # another query has created it
            target = open_target(settings, self._schema, overwrite=self._overwrite)
        self._target = target
        return self

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Commit a batch, unless the table holds it already."""
        written, storage = _complete(messages, StreamFiles), self._target.storage
        follows = not self._overwrite and batchId > 0
        if follows and not any(message.adds for message in written):
            return  # a batch without rows can be repeated
        transaction = _transaction(written, batchId)
        versions = {message.version for message in written}
        if len(versions) > 1:
            raise AssertionError(f"tasks of one batch were planned on versions {versions}")
        snapshot = open_snapshot(storage, versions.pop())
        if follows and _is_another(snapshot, transaction):
            delete_files(storage, written)
            raise _other_table(snapshot, transaction)
        _tell_of_repeat(snapshot, transaction, written)
        commit_files(
            storage,
            written,
            replace(self._settings.checked, transaction=transaction),
            version=snapshot.version,
            planned=written[0].planned or self._target.state,
            overwrite=self._overwrite,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: ARG002, N803
        """Delete what tasks have written; see `_abort`."""
        _abort(self._target.storage, messages)


def _written(target: Target, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in iterator:
            rows += batch.num_rows
            yield batch

    adds = write_files(target, counted())
    return FilesWritten(tuple(adds), rows, target.version)


def _complete(
    messages: Sequence[WriterCommitMessage | None], kind: type[_Message]
) -> list[_Message]:
    found = [message for message in messages if isinstance(message, kind)]
    if len(found) != len(messages):
        raise EngineError(
            f"Spark commits a write of which {len(messages) - len(found)} tasks did not finish",
            hint="nothing was changed; run the write again",
        )
    return found


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


def _is_another(snapshot: Snapshot, batch: AppTransaction) -> bool:
    """Return whether a query has never written to a table, though it is not its first batch."""
    forgets = _FORGETS in snapshot.metadata.configuration
    return not forgets and batch.app_id not in snapshot.transactions


def _other_table(snapshot: Snapshot, batch: AppTransaction) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{snapshot.table} (id {snapshot.metadata.id}) is not the table that the streaming query"
        f" {batch.app_id} wrote its earlier batches to: it holds none before batch {batch.version}",
        hint="was it dropped? Begin anew with another checkpointLocation; to go on without the"
        ' earlier batches, write a DataFrame without rows by df.write.format("delvec") with the'
        f" options txnAppId={batch.app_id} and txnVersion={batch.version - 1}",
    )


def _tell_of_repeat(
    snapshot: Snapshot, transaction: AppTransaction, written: Sequence[FilesWritten]
) -> None:
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


def _abort(storage: Storage, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the files of a job that failed.

    Spark calls this after a failed commit too, when all tasks have finished. Then the commit has
    deleted what is certainly not part of the table, and what is left may be part of it.
    """
    if any(message is None for message in messages):
        delete_files(storage, [m for m in messages if isinstance(m, FilesWritten)])
