"""A Delta table of any number of files without the files: a checkpoint and some commits.

Memory does not grow with the table: a checkpoint is written in pieces of 100,000 files. Names are
random, as those of writers are, so that they compress as badly. The last commits add some files
that exist, with ids below 0: a predicate `id < 0` has rows to find.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delvec.delta.log.actions import ADD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["COMMITS", "DAYS", "Form", "Shape", "write_delta_table"]

Form = Literal["parts", "classic", "sidecars"]

DAYS: Final = 1000
COMMITS: Final = 10
REAL_ROWS: Final = 1000
_PIECE: Final = 100_000
_VECTOR_EVERY: Final = 10
_ROWS: Final = 1_000_000
_MODIFIED: Final = 1_700_000_000_000
_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("v", "double"), ("name", "string"), ("day", "date"))
    ],
}
_BOUNDS: Final = pa.struct([("id", pa.int64()), ("v", pa.float64()), ("name", pa.string())])
_COUNTS: Final = pa.struct([(name, pa.int64()) for name in ("id", "v", "name")])
_STATS: Final = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("tightBounds", pa.bool_()),
        ("minValues", _BOUNDS),
        ("maxValues", _BOUNDS),
        ("nullCount", _COUNTS),
    ]
)
_ADD: Final = pa.struct([*ADD, ("stats_parsed", _STATS)])


@dataclass(frozen=True)
class Shape:
    """The shape of a table.

    Attributes:
        files: Files in the checkpoint.
        form: One Parquet file, parts, or a v2 checkpoint with sidecars.
        part: Files in each part or sidecar.
        row_group: Files in each row group of these.
        vectors_in_file: How many vectors one `.bin` file holds.
        statistics: Whether the checkpoint has statistics as JSON, as columns, or both.
    """

    files: int
    form: Form = "parts"
    part: int = _PIECE
    row_group: int = _PIECE
    vectors_in_file: int = 1000
    statistics: Literal["json", "columns", "both"] = "both"


def write_delta_table(folder: Path, shape: Shape, *, real_files: int = 10) -> None:
    """Write a table: a checkpoint of version 0, and `COMMITS` commits that follow it."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    small = [{"protocol": _protocol(shape)}, {"metaData": _metadata()}]
    info = {"commitInfo": {"timestamp": _MODIFIED, "operation": "WRITE"}}
    _write_json(log / f"{0:020d}.json", [info, *small])
    if shape.form == "sidecars":
        _write_sidecars(log, shape, small)
    else:
        _write_parts(log, shape, small)
    (log / "_last_checkpoint").write_text(json.dumps({"version": 0, "size": shape.files}))
    for version in range(1, COMMITS + 1):
        adds = [_json_add(at) for at in range(10 * version, 10 * version + 10)]
        if version == COMMITS:
            adds += [_real_file(folder, number) for number in range(real_files)]
        info = {"commitInfo": {"timestamp": _MODIFIED + version, "operation": "WRITE"}}
        _write_json(log / f"{version:020d}.json", [info, *adds])


def _protocol(shape: Shape) -> dict[str, Any]:
    features = ["deletionVectors", *(["v2Checkpoint"] if shape.form == "sidecars" else [])]
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }


def _metadata() -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {"delta.enableDeletionVectors": "true"},
        "createdTime": _MODIFIED,
    }


def _write_json(path: Path, actions: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions))


def _write_parts(log: Path, shape: Shape, small: list[dict[str, Any]]) -> None:
    ranges = list(_ranges(shape))
    for number, (start, end) in enumerate(ranges, 1):
        several = f".{number:010d}.{len(ranges):010d}" if shape.form == "parts" else ""
        first = _small_table(small) if number == 1 else None
        _write_part(log / f"{0:020d}.checkpoint{several}.parquet", shape, start, end, first)


def _write_sidecars(log: Path, shape: Shape, small: list[dict[str, Any]]) -> None:
    (log / "_sidecars").mkdir()
    actions = [{"checkpointMetadata": {"version": 0}}, *small]
    for start, end in _ranges(shape):
        path = log / "_sidecars" / f"{uuid.uuid4()}.parquet"
        _write_part(path, shape, start, end, None)
        entry = {"path": path.name, "sizeInBytes": path.stat().st_size, "modificationTime": 0}
        actions.append({"sidecar": entry})
    _write_json(log / f"{0:020d}.checkpoint.{uuid.uuid4()}.json", actions)


def _ranges(shape: Shape) -> Iterator[tuple[int, int]]:
    size = shape.files if shape.form == "classic" else shape.part
    for start in range(0, shape.files, max(1, size)):
        yield start, min(start + size, shape.files)


def _small_table(actions: list[dict[str, Any]]) -> pa.Table:
    [protocol] = [each["protocol"] for each in actions if "protocol" in each]
    [metadata] = [each["metaData"] for each in actions if "metaData" in each]
    maps = pa.map_(pa.string(), pa.string())
    kind = pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", maps)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", maps),
            ("createdTime", pa.int64()),
        ]
    )
    pairs = {
        **metadata,
        "configuration": list(metadata["configuration"].items()),
        "format": {"provider": "parquet", "options": []},
    }
    return pa.table(
        {"protocol": pa.array([protocol, None]), "metaData": pa.array([None, pairs], kind)}
    )


def _write_part(path: Path, shape: Shape, start: int, end: int, small: pa.Table | None) -> None:
    fields = [field for field in _ADD if _has(shape, field.name)]
    schema = pa.schema([*(small.schema if small is not None else ()), ("add", pa.struct(fields))])
    with pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=False) as writer:
        if small is not None:
            writer.write_table(_completed(small, schema))
        for first in range(start, end, shape.row_group):
            adds = _adds(first, min(first + shape.row_group, end), shape)
            kept = pa.StructArray.from_arrays(
                [adds.field(field.name) for field in fields], fields=fields
            )
            writer.write_table(_completed(pa.table({"add": kept}), schema))


def _has(shape: Shape, name: str) -> bool:
    unwanted = {"json": "stats_parsed", "columns": "stats", "both": ""}[shape.statistics]
    return name != unwanted


def _completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _adds(start: int, end: int, shape: Shape) -> pa.StructArray:
    """Return the entries of some files as columns."""
    numbers, count = np.arange(start, end), end - start
    days = (np.datetime64("2024-01-01") + numbers % DAYS).astype("datetime64[D]").astype("U10")
    rng = np.random.default_rng(start)
    low, high = numbers * _ROWS, (numbers + 1) * _ROWS - 1
    values = {
        "path": _paths(rng, days.tolist()),
        "partitionValues": pa.MapArray.from_arrays(
            np.arange(count + 1, dtype=np.int32), pa.array(["day"] * count), pa.array(days)
        ),
        "size": pa.array(rng.integers(50 << 20, 200 << 20, count)),
        "modificationTime": pa.array(np.full(count, _MODIFIED)),
        "dataChange": pa.array(np.zeros(count, dtype=np.bool_)),
        "stats": _json_statistics(low.tolist(), high.tolist()),
        "deletionVector": _vectors(rng, numbers, shape),
        "stats_parsed": _parsed_statistics(low, high),
    }
    arrays = [values.get(field.name, pa.nulls(count, field.type)) for field in _ADD]
    return pa.StructArray.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, _ADD, strict=True)],
        fields=list(_ADD),
    )


def _paths(rng: np.random.Generator, days: list[str]) -> pa.Array:
    digits = rng.bytes(16 * len(days)).hex()
    names = (digits[at : at + 32] for at in range(0, len(digits), 32))
    return pa.array(
        [
            f"day={day}/part-00000-{n[:8]}-{n[8:12]}-{n[12:16]}-{n[16:20]}-{n[20:]}.c000"
            ".snappy.parquet"
            for day, n in zip(days, names, strict=True)
        ]
    )


def _json_statistics(low: list[int], high: list[int]) -> pa.Array:
    return pa.array([_statistics_text(*bounds) for bounds in zip(low, high, strict=True)])


def _statistics_text(low: int, high: int) -> str:
    return (
        f'{{"numRecords":{_ROWS},"minValues":{{"id":{low},"v":0.5,"name":"customer{low:012d}"}},'
        f'"maxValues":{{"id":{high},"v":99.5,"name":"customer{high:012d}"}},'
        '"nullCount":{"id":0,"v":0,"name":0},"tightBounds":true}'
    )


def _parsed_statistics(low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> pa.StructArray:
    count = len(low)

    def bounds(ids: np.ndarray[Any, Any], value: float) -> pa.StructArray:
        names = pa.array([f"customer{each:012d}" for each in ids.tolist()])
        return pa.StructArray.from_arrays(
            [pa.array(ids), pa.array(np.full(count, value)), names], fields=list(_BOUNDS)
        )

    zeros = pa.array(np.zeros(count, dtype=np.int64))
    return pa.StructArray.from_arrays(
        [
            pa.array(np.full(count, _ROWS)),
            pa.array(np.ones(count, dtype=np.bool_)),
            bounds(low, 0.5),
            bounds(high, 99.5),
            pa.StructArray.from_arrays([zeros, zeros, zeros], fields=list(_COUNTS)),
        ],
        fields=list(_STATS),
    )


def _vectors(
    rng: np.random.Generator, numbers: np.ndarray[Any, Any], shape: Shape
) -> pa.StructArray:
    """Return the descriptors: one of every ten files has a vector, many in one `.bin` file."""
    has, in_file = numbers % _VECTOR_EVERY == 0, shape.vectors_in_file
    places = numbers // _VECTOR_EVERY
    texts = [f"{place:020d}" for place in (places // in_file).tolist()]
    kind = ADD.field(ADD.get_field_index("deletionVector")).type
    return pa.StructArray.from_arrays(
        [
            pa.array(["u"] * len(numbers)),
            pa.array(texts),
            pa.array(1 + places % in_file * 1000, pa.int32()),
            pa.array(np.full(len(numbers), 900), pa.int32()),
            pa.array(rng.integers(1, 400, len(numbers))),
        ],
        fields=list(kind),
        mask=pa.array(~has),
    )


def _json_add(number: int) -> dict[str, Any]:
    low = -(number + 1) * 10 * _ROWS  # far below the ids of files that exist
    day = str(np.datetime64("2024-01-01") + number % DAYS)
    return {
        "add": {
            "path": f"day={day}/part-{number:05d}-{uuid.uuid4()}.c000.snappy.parquet",
            "partitionValues": {"day": day},
            "size": 100 << 20,
            "modificationTime": _MODIFIED,
            "dataChange": True,
            "stats": _statistics_text(low, low + _ROWS - 1),
        }
    }


def _real_file(folder: Path, number: int) -> dict[str, Any]:
    """Write a data file of few rows, with ids from -1 downwards; return its add."""
    high = -1 - number * REAL_ROWS
    low = high - REAL_ROWS + 1
    rows = {
        "id": np.arange(low, high + 1),
        "v": np.full(REAL_ROWS, 0.5),
        "name": [f"customer{at}" for at in range(REAL_ROWS)],
    }
    path = folder / "day=2024-01-01" / f"part-{number:05d}-{uuid.uuid4()}.c000.snappy.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(rows), path)
    stats = {
        "numRecords": REAL_ROWS,
        "minValues": {"id": low, "v": 0.5, "name": "customer0"},
        "maxValues": {"id": high, "v": 0.5, "name": "customer999"},
        "nullCount": {"id": 0, "v": 0, "name": 0},
        "tightBounds": True,
    }
    return {
        "add": {
            "path": path.relative_to(folder).as_posix(),
            "partitionValues": {"day": "2024-01-01"},
            "size": path.stat().st_size,
            "modificationTime": _MODIFIED,
            "dataChange": True,
            "stats": json.dumps(stats, separators=(",", ":")),
        }
    }
