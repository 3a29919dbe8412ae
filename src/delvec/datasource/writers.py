"""The writers that Spark runs: batches and streams, in Python workers without a session.

`write` runs in tasks, `commit` and `abort` in a process of the driver. A task that is retried, or
runs twice by speculation, writes files of other names; only the messages of those that Spark
accepted are committed. Files of the others, and of tasks that ran on when their job had failed, are
orphans, which VACUUM deletes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from delvec.datasource.commits import FilesWritten, commit_files, delete_files
from delvec.datasource.data_files import write_files
from delvec.datasource.target import open_target, row_schema
from delvec.delta.alter.operations import TableDescription, create
from delvec.delta.log.segment import find_segment
from delvec.delta.write.change import AppTransaction
from delvec.errors import (
    ConflictError,
    EngineError,
    InvalidArgumentError,
    TableNotFoundError,
)
from delvec.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from delvec.datasource.target import Target
    from delvec.datasource.write_options import WriteSettings

__all__ = ["BatchWriter", "StreamWriter"]

_QUERY_ID: Final = "sql.streaming.queryId"  # set by Spark for the jobs of a streaming query


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
        target = self._target
        commit_files(
            target.storage,
            _complete(messages),
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
        return replace(_written(self._target, iterator), query_id=found)

    def plan(self) -> StreamWriter:
        """Open the table, or create it, before tasks write to it; return self."""
        settings = self._settings
        storage = Storage.open(settings.path, settings.storage_options)
        try:
            find_segment(storage)
        except TableNotFoundError:
            open_target(settings, self._schema, overwrite=self._overwrite)  # is it allowed?
            wanted = TableDescription(
                row_schema(self._schema),
                settings.partition_by,
                dict(settings.properties),
                None,
                None,
            )
            try:
                create(storage, wanted)
            except ConflictError:
                find_segment(storage)  # another query has created it
        self._target = open_target(settings, self._schema, overwrite=self._overwrite)
        return self

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Commit a batch, unless the table holds it already."""
        written = _complete(messages)
        if not self._overwrite and not any(message.adds for message in written):
            return  # a batch without rows can be repeated
        versions = {message.version for message in written}
        if len(versions) > 1:
            raise AssertionError(f"tasks of one batch were planned on versions {versions}")
        target = self._target
        commit_files(
            target.storage,
            written,
            replace(self._settings.checked, transaction=_transaction(written, batchId)),
            version=versions.pop() if versions else target.version,
            planned=target.state,
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


def _complete(messages: Sequence[WriterCommitMessage | None]) -> list[FilesWritten]:
    found = [message for message in messages if isinstance(message, FilesWritten)]
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


def _abort(storage: Storage, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the files of a job that failed.

    Spark calls this after a failed commit too, when all tasks have finished. Then the commit has
    deleted what is certainly not part of the table, and what is left may be part of it.
    """
    if any(message is None for message in messages):
        delete_files(storage, [m for m in messages if isinstance(m, FilesWritten)])
