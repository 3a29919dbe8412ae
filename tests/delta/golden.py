"""Tables that Delta's own projects keep for their tests, and what is in them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.delta.rows import same_rows

# Rows that the folder's README tells where there are none in `expected`.
TOLD = {
    "basic-dv-no-checkpoint": pa.table({"id": pa.array(range(2, 10), pa.int64())}),
    "table-with-dv-small": pa.table({"value": pa.array(range(1, 9), pa.int32())}),
    "with-short-dv": pa.table({"id": pa.array([], pa.int64())}),
    "canonicalized-paths-special-a": pa.table({}),
}
# Rows, files with a live vector, rows that these delete.
TABLES = {
    "basic-dv-no-checkpoint": (8, 1, 2),
    "table-with-dv-small": (8, 1, 2),
    "with-short-dv": (7, 1, 3),
    "dv-partitioned-with-checkpoint": (35, 2, 2),
    "dv-with-columnmapping": (35, 2, 2),
    "multi-part-checkpoint": (31, 0, 0),
    "v2-checkpoint-json": (10, 0, 0),
    "corrupted-last-checkpoint-kernel": (100, 0, 0),
    "table-with-columnmapping-mode-id": (6, 0, 0),
    "data-reader-partition-values": (3, 0, 0),
    "data-reader-primitives": (11, 0, 0),
    "time-travel-start-start20-start40": (30, 0, 0),
    "canonicalized-paths-special-a": (0, 0, 0),
}
FUTURE = "deltalog-invalid-protocol-version"


def expected_rows(golden: Path, name: str) -> pa.Table | None:
    folder = golden / name / "expected"
    if folder.is_dir():
        return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])
    return TOLD.get(name)


def check(found: pa.Table, golden: Path, name: str) -> None:
    assert found.num_rows == TABLES[name][0]
    expected = expected_rows(golden, name)
    if expected is not None and found.num_rows and expected.num_rows:
        assert same_rows(found, expected)
