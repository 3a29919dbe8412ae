"""A small Delta table with deletion vectors, for the part of the demonstration without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec.delta.alter.definition import new_table
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.parquet.footer_statistics import file_statistics, statistics_json
from delvec.delta.pruning.predicate import Always
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.table import DeltaTable
from delvec.delta.write.base import Base
from delvec.delta.write.change import Change, ReadSet, VectorUpdate
from delvec.delta.write.commit import commit
from delvec.storage import Storage
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from delvec.cli.demo.stage import Teller
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["DAYS", "show_table", "write_orders"]

DAYS: Final = ("2026-01-29", "2026-01-30", "2026-01-31")
_ROWS: Final = 10_000
_COLUMNS: Final = (("id", "long"), ("amount", "double"), ("day", "date"))


def write_orders(path: str) -> None:
    """Write a file for each day, then delete every seventh row of the last two by vectors."""
    schema = StructType(tuple(Field(name, PrimitiveType(kind)) for name, kind in _COLUMNS))
    storage, state = Storage.open(path), new_table(schema, ["day"])
    base = Base(storage, -1, state.protocol, state.metadata)
    _commit(base, Change("CREATE TABLE", protocol=state.protocol, metadata=state.metadata))
    snapshot = open_snapshot(storage)
    adds = tuple(_data_file(snapshot, number, day) for number, day in enumerate(DAYS))
    _commit(Base.of(snapshot), Change("WRITE", added=adds))
    snapshot = open_snapshot(storage)
    updates = tuple(
        VectorUpdate(file, _ROWS, Bitmap(range(0, _ROWS, 7)))
        for file in snapshot.files.entries()
        if file.add["partitionValues"]["day"] != DAYS[0]
    )
    _commit(Base.of(snapshot), Change("DELETE", reads=ReadSet(Always()), vector_updates=updates))


def _commit(base: Base, change: Change) -> None:
    with UncommittedFiles(base.storage) as uncommitted:
        commit(base, change, uncommitted)


def _data_file(snapshot: Snapshot, number: int, day: str) -> dict[str, Any]:
    ids = range(number * _ROWS, (number + 1) * _ROWS)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids, "amount": [i / 100 for i in ids]}), sink)
    data = sink.getvalue()
    path = f"day={day}/part-{number:05d}.parquet"
    snapshot.storage.write_if_absent(path, data.to_pybytes())
    footer = pq.read_metadata(pa.BufferReader(data))
    return {
        "path": path,
        "partitionValues": {"day": day},
        "size": data.size,
        "modificationTime": 1_769_000_000_000,
        "dataChange": True,
        "stats": statistics_json(file_statistics(snapshot.metadata, footer, tight_bounds=True)),
    }


def show_table(tell: Teller, path: str) -> dict[str, Any]:
    """Write a table if there is none, and read it through its vectors; needs no JVM."""
    tell.begin(
        "A Delta table with deletion vectors, read without a JVM.",
        'delvec.DeltaTable.for_path(None, "orders").to_arrow()',
    )
    if not DeltaTable.is_delta_table(path):  # it exists in a folder that was kept
        write_orders(path)
    table = DeltaTable.for_path(None, path)
    files = table.arrow_files().select(["path", "row_count", "deleted_rows", "vector_bytes"])
    rows = sorted(files.to_pylist(), key=lambda row: str(row["path"]))
    titles = {
        "path": "file",
        "row_count": "rows",
        "deleted_rows": "deleted",
        "vector_bytes": "vector, bytes",
    }
    tell.table(titles, rows)
    counts = {"rows": table.to_arrow().num_rows, "rows_before": table.count(version=1)}
    tell.fact(
        f"version {table.version}: {counts['rows']:,} rows; version 1:"
        f" {counts['rows_before']:,} rows"
    )
    tell.why("The log says which rows are deleted; no data file was changed.")
    return {"files": rows, **counts}
