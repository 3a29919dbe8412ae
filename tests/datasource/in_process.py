"""What Spark does with the data source, done in this process: no JVM, the same objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource
from tests.delta.log_files import live_adds

FEED = {"delta.enableChangeDataFeed": "true"}
_SERIALIZER = CloudPickleSerializer()  # type: ignore[no-untyped-call]


def pickled(value: Any) -> Any:  # noqa: ANN401
    """Return an object as a worker gets it."""
    return _SERIALIZER.loads(_SERIALIZER.dumps(value))  # type: ignore[no-untyped-call]


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def held(path: Path) -> list[int]:
    """Return the ids of a table, sorted."""
    return sorted(DeltaTable.for_path(None, path).to_arrow()["id"].to_pylist())


def forget_zone(path: Path, version: int) -> None:
    """Write the one value of a partition column `at` as some writers do: without a zone."""
    commit = path / f"_delta_log/{version:020}.json"
    written = commit.read_text()
    [value] = {add["partitionValues"]["at"] for add in live_adds(path)}
    commit.write_text(written.replace(f'"at":"{value}"', '"at":"2026-07-01 10:00:00"'))
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)


def write_each(path: Path, *values: int, **options: str) -> None:
    """Write a commit of as many files as values."""
    write(path, *(ids(value) for value in values), **options)


def write(path: Path, *tasks: pa.Table, mode: str = "append", **options: str) -> None:
    """Write as Spark does, each table by a task of its own."""
    source = DelvecDataSource({"path": str(path), **options})
    schema = from_arrow_schema(tasks[0].schema, prefer_timestamp_ntz=True)
    writer = source.writer(schema, mode == "overwrite")
    written = [pickled(writer).write(iter(task.to_batches())) for task in tasks]
    pickled(writer).commit([pickled(message) for message in written])


def stream_of(path: Path, **options: str) -> DataSourceStreamReader:
    """Return the reader of a new stream."""
    source = DelvecDataSource({"path": str(path), **options})
    schema = source.schema()
    return pickled(source).streamReader(schema)  # type: ignore[no-any-return]


def rows_between(
    reader: DataSourceStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """Return the rows of a batch, sorted."""
    tasks = reader.partitions(start, end)
    found: Sequence[pa.RecordBatch] = [
        batch for task in tasks for batch in pickled(reader).read(pickled(task))
    ]
    return sorted(tuple(row.values()) for batch in found for row in batch.to_pylist())
