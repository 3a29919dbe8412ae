"""A small Delta table with deletion vectors, for the demonstration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec.vector import Bitmap, pack

if TYPE_CHECKING:
    from delvec.storage import Storage

__all__ = ["DAYS", "write_orders"]

DAYS: Final = ("2026-01-29", "2026-01-30", "2026-01-31")
_ROWS: Final = 10_000
_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("amount", "double"), ("day", "date"))
    ],
}


def write_orders(storage: Storage) -> None:
    """Write a file for each day, then delete every seventh row of the last two by vectors."""
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {"delta.enableDeletionVectors": "true"},
    }
    adds = [_data_file(storage, number, day) for number, day in enumerate(DAYS)]
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    _commit(storage, 0, "WRITE", [*actions, *({"add": add} for add in adds)])
    [file] = pack([Bitmap(range(0, _ROWS, 7)), Bitmap(range(0, _ROWS, 7))])
    storage.write_if_absent(file.path, file.data)
    actions = []
    for add, descriptor in zip(adds[1:], file.descriptors, strict=True):
        stats = json.loads(add["stats"]) | {"tightBounds": False}
        vector = {"deletionVector": descriptor.to_json(), "stats": json.dumps(stats)}
        actions += [{"remove": {"path": add["path"], "dataChange": True}}, {"add": add | vector}]
    _commit(storage, 1, "DELETE", actions)


def _data_file(storage: Storage, number: int, day: str) -> dict[str, Any]:
    ids = range(number * _ROWS, (number + 1) * _ROWS)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids, "amount": [i / 100 for i in ids]}), sink)
    path, data = f"day={day}/part-{number:05d}.parquet", sink.getvalue().to_pybytes()
    storage.write_if_absent(path, data)
    statistics = {
        "numRecords": _ROWS,
        "minValues": {"id": ids[0], "amount": ids[0] / 100},
        "maxValues": {"id": ids[-1], "amount": ids[-1] / 100},
        "nullCount": {"id": 0, "amount": 0},
    }
    return {
        "path": path,
        "partitionValues": {"day": day},
        "size": len(data),
        "modificationTime": 1_769_000_000_000,
        "dataChange": True,
        "stats": json.dumps(statistics),
    }


def _commit(storage: Storage, version: int, operation: str, actions: list[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": 1_769_000_000_000 + version, "operation": operation}}
    text = "".join(json.dumps(action) + "\n" for action in (info, *actions))
    storage.write_if_absent(f"_delta_log/{version:020d}.json", text.encode())
