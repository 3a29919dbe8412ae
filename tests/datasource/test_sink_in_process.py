"""What `writeStream.format("delvec")` creates, writes and refuses; without a JVM."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StructField, StructType

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource, writers
from delvec.datasource.writers import StreamWriter
from delvec.errors import ConflictError, EngineError, InvalidArgumentError, UnsupportedFeatureError
from tests.datasource.in_process import held, ids, pickled, write

MAPPED = {"delta.columnMapping.mode": "name"}
GONE = r"(?s)none before batch 2.*Begin again"


def create(path: Path, properties: dict[str, str] | None = None) -> None:
    DeltaTable.create(None, path, ids().schema, properties=properties)


def sink(path: Path, **options: str) -> StreamWriter:
    source = DelvecDataSource({"path": str(path), **options})
    found = source.streamWriter(StructType([StructField("id", LongType())]), False)
    assert isinstance(found, StreamWriter)
    return found


def write_batch(path: Path, batch: int, *values: int, writer: StreamWriter | None = None) -> None:
    """Write a batch as Spark does: planned by one writer, committed by another."""
    sink(path).commit([write_task(writer or sink(path), batch, *values)], batch)


def write_task(writer: StreamWriter, batch: int, *values: int) -> WriterCommitMessage:
    """Write the rows of a task, with what Spark tells it of the batch."""
    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": str(batch)}
    task = SimpleNamespace(getLocalProperty=properties.get)
    with patch.object(writers, "TaskContext", SimpleNamespace(get=lambda: task)):
        return pickled(pickled(writer).write(iter(ids(*values).to_batches())))  # type: ignore[no-any-return]


def test_of_batches_without_rows_only_the_first_makes_a_version(tmp_path: Path) -> None:
    for batch in (0, 1):
        write_batch(tmp_path, batch)
        # The table itself, and the query's id.
        assert DeltaTable.for_path(None, tmp_path).version == 1
    write_batch(tmp_path, 2, 7)
    assert held(tmp_path) == [7]


def test_a_sink_that_was_dropped_does_not_get_later_batches_only(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, 1)
    write_batch(tmp_path, 1, 2)
    shutil.rmtree(tmp_path)
    for _ in range(2):  # again after a restart of the query
        with pytest.raises(InvalidArgumentError, match=GONE):
            write_batch(tmp_path, 2, 3)
        write_batch(tmp_path, 2)  # without rows it is no batch
    assert not tmp_path.exists()  # and nothing was created
    create(tmp_path)  # by somebody else
    with pytest.raises(InvalidArgumentError, match=GONE):
        write_batch(tmp_path, 2, 3)
    assert not list(tmp_path.glob("*.parquet"))
    write(tmp_path, ids(), txnAppId="q", txnVersion="1")  # as the hint says
    write_batch(tmp_path, 2, 3)
    assert held(tmp_path) == [3]


def test_tasks_of_the_first_batch_create_one_table(tmp_path: Path) -> None:
    writer = sink(tmp_path, **MAPPED)
    assert not list(tmp_path.iterdir())  # planning creates nothing
    messages = [write_task(writer, 0, number) for number in range(3)]
    assert DeltaTable.for_path(None, tmp_path).version == 0
    sink(tmp_path).commit(messages, 0)
    assert held(tmp_path) == [0, 1, 2]


def test_a_first_batch_that_was_killed_is_written_again(tmp_path: Path) -> None:
    write_task(sink(tmp_path), 0, 1)  # and then nothing more
    write_batch(tmp_path, 0, 1)
    assert held(tmp_path) == [1]


def test_two_queries_may_begin_to_write_to_one_table_at_the_same_time(tmp_path: Path) -> None:
    late = sink(tmp_path)
    write(tmp_path, ids(7))
    messages = [write_task(late, 0, 1)]
    write(tmp_path, ids(8))
    messages.append(write_task(late, 0, 2))
    sink(tmp_path).commit(messages, 0)
    assert held(tmp_path) == [1, 2, 7, 8]


def test_a_table_that_changes_between_the_tasks_that_create_it_is_a_conflict(
    tmp_path: Path,
) -> None:
    late = sink(tmp_path)
    write(tmp_path, ids(7))
    messages = [write_task(late, 0, 1)]
    DeltaTable.for_path(None, tmp_path).set_properties({"delta.appendOnly": "true"})
    messages.append(write_task(late, 0, 2))
    with pytest.raises(ConflictError, match="start the query again"):
        sink(tmp_path).commit(messages, 0)
    assert held(tmp_path) == [7]


def test_a_sink_that_is_replaced_during_a_batch_does_not_get_its_files(tmp_path: Path) -> None:
    create(tmp_path, MAPPED)
    writer = sink(tmp_path)
    shutil.rmtree(tmp_path)
    create(tmp_path, MAPPED)  # with other names in its files
    with pytest.raises(ConflictError, match="was replaced"):
        write_batch(tmp_path, 0, 1, writer=writer)
    assert held(tmp_path) == []
    writer = sink(tmp_path)
    DeltaTable.for_path(None, tmp_path).set_properties({"delta.appendOnly": "true"})
    with pytest.raises(ConflictError, match="changed the metadata of the table"):
        write_batch(tmp_path, 0, 1, writer=writer)


def test_rows_of_a_batch_that_the_sink_holds_are_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_batch(tmp_path, 0, 1)
    write_batch(tmp_path, 3, 2)
    assert not caplog.records
    write_batch(tmp_path, 1, 8, 9)
    assert "holds transaction 3 of q, and 1 is not written again (rows: 2)" in caplog.text
    assert held(tmp_path) == [1, 2]


def test_a_stream_that_is_refused_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="known by its query's id"):
        sink(tmp_path, txnAppId="a", txnVersion="1")
    with pytest.raises(UnsupportedFeatureError):
        sink(tmp_path, **{"delta.constraints.positive": "id > 0"})
    assert not list(tmp_path.iterdir())
    writer = sink(tmp_path)
    message = pickled(writer).write(iter(ids(1).to_batches()))  # of a query that is not known
    with pytest.raises(EngineError, match="written twice"):
        writer.commit([message], 0)
