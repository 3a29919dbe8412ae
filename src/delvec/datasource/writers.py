"""The writers that Spark runs: batches and streams, in Python workers without a session.

`write` runs in tasks, `commit` and `abort` in a process of the driver. A task that is retried, or
runs twice by speculation, writes files of other names; only the messages of those that Spark
accepted are committed. Files of the others, and of tasks that ran on when their job had failed, are
orphans, which VACUUM deletes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from delvec.datasource.commits import (
    FilesWritten,
    abort_files,
    commit_files,
    complete,
    delete_files,
    warn_of_repeat,
)
from delvec.datasource.data_files import write_files
from delvec.datasource.target import open_target
from delvec.delta.alter.operations import create_defined
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

# Set by Spark for the jobs of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
# With this property other engines drop old transaction identifiers.
_FORGETS: Final = "delta.setTransactionRetentionDuration"


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

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
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

    def plan(self) -> StreamWriter:
        """Open the table, or describe the one to create; return self."""
        self._target = open_target(self._settings, self._schema, overwrite=self._overwrite)
        return self

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the rows of one task; in the first batch, create the table before."""
        task, target = TaskContext.get(), self._target
        query = task.getLocalProperty(_QUERY_ID) if task is not None else None
        batch = int((task.getLocalProperty(_BATCH_ID) if task is not None else None) or 0)
        if target.version < 0 and (self._overwrite or batch == 0):
            target = self._created()
        elif target.version < 0:
            iterator = _refused(iterator, target.storage, AppTransaction(str(query), batch))
        files = _written(target, iterator)
        return StreamFiles(files.adds, files.rows, files.version, query, target.state)

    def _created(self) -> Target:
        """Create the table, unless another task of the batch has, or another query."""
        with suppress(ConflictError):
            create_defined(self._target.storage, self._target.state)
        find_segment(self._target.storage)  # it is there now
        return open_target(self._settings, self._schema, overwrite=self._overwrite)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
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
        if follows and _is_another(snapshot, transaction):
            delete_files(storage, written)
            raise _other_table(snapshot, transaction)
        warn_of_repeat(snapshot, transaction, written)
        commit_files(
            storage,
            written,
            replace(self._settings.checked, transaction=transaction),
            version=snapshot.version,
            planned=planned or self._target.state,
            overwrite=self._overwrite,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: ARG002, N803
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


def _is_another(snapshot: Snapshot, batch: AppTransaction) -> bool:
    """Return whether a query has never written to a table, though it is not its first batch."""
    forgets = _FORGETS in snapshot.metadata.configuration
    return not forgets and batch.app_id not in snapshot.transactions


def _other_table(snapshot: Snapshot, batch: AppTransaction) -> InvalidArgumentError:
    return _not_the_table(f"{snapshot.table} (id {snapshot.metadata.id})", batch)


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
        hint="was it dropped? Begin anew with another checkpointLocation; to go on without the"
        ' earlier batches, write a DataFrame without rows by df.write.format("delvec") with the'
        f" options txnAppId={batch.app_id} and txnVersion={batch.version - 1}",
    )
