from __future__ import annotations

import json
import struct as packing
from pathlib import Path
from typing import Any

import pytest

from delvec.conversion.schema.iceberg_schema import TargetSchema, target_schema
from delvec.conversion.schema.metrics import metrics_json
from delvec.delta.schema.metadata import Metadata
from tests.conversion.schema.columns import array, column, files_of, mapped, metadata_of, struct

VECTOR: dict[str, Any] = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}
LONG = metadata_of(column("c", "long"))


def schema_of(metadata: Metadata) -> TargetSchema:
    return target_schema(metadata, table="t", format_version=3, current=None, last_column_id=0)


def metrics(
    root: Path, metadata: Metadata, *adds: dict[str, Any], schema: TargetSchema | None = None
) -> list[dict[str, Any]]:
    """Give the metrics of each file, each a dict from id to value."""
    files = files_of(root, metadata, *adds)
    return [
        {
            name: dict(zip(member["keys"], member["values"], strict=True))
            for name, member in json.loads(f"{{{text}}}").items()
        }
        for text in metrics_json(files, schema or schema_of(metadata)).to_pylist()
    ]


def stats(low: Any, high: Any, nulls: Any = 0, rows: int = 10, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Statistics of the column c."""
    values = {"minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": nulls}}
    return {"stats": {"numRecords": rows, **values, **more}}


def hexed(form: str, *values: object) -> str:
    return packing.pack(form, *values).hex().upper()


MOMENTS = (hexed("<q", 1000), hexed("<q", 1_001_000))  # texts of the log are cut


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("integer", -2, 5, (hexed("<i", -2), hexed("<i", 5))),
        ("short", 1, 2, (hexed("<i", 1), hexed("<i", 2))),
        ("byte", -128, 127, (hexed("<i", -128), hexed("<i", 127))),
        ("long", -(2**63), 2**63 - 1, (hexed("<q", -(2**63)), hexed("<q", 2**63 - 1))),
        ("date", "1969-12-31", "2020-01-01", (hexed("<i", -1), hexed("<i", 18262))),
        ("string", "", "zoë", ("", "7A6FC3AB")),
        ("string", "a" * 100, "b" * 100, ("61" * 64, None)),  # cut below, left out above
        ("decimal(5,2)", 1.28, 655.36, ("0080", "010000")),
        ("decimal(38,0)", -129, -1, ("FF7F", "FF")),
        ("timestamp", "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:01.000Z", MOMENTS),
        ("timestamp_ntz", "1970-01-01T00:00:00.001", "1970-01-01T00:00:01.000", MOMENTS),
        # Writers leave NaN out of the largest value, and Spark holds it larger than any.
        ("double", -1.5, 2.5, (hexed("<d", -1.5), None)),
        ("float", 0.1, 0.2, (hexed("<f", 0.1), None)),
        ("double", 0.0, 0.0, (hexed("<d", -0.0), None)),
        ("float", "NaN", "NaN", (None, None)),
        ("binary", "a", "b", (None, None)),
        ("boolean", False, True, (None, None)),
    ],
)
def test_each_type_has_its_bytes(
    tmp_path: Path, kind: str, low: object, high: object, expected: object
) -> None:
    [found] = metrics(tmp_path, metadata_of(column("c", kind)), stats(low, high))
    assert (found.get("lower-bounds", {}).get(1), found.get("upper-bounds", {}).get(1)) == expected


@pytest.mark.parametrize(
    ("kind", "wide", "low", "expected"),
    [
        ("integer", "long", -2, hexed("<q", -2)),
        ("float", "double", 0.5, hexed("<d", 0.5)),
        ("date", "date", "1969-12-31", hexed("<i", -1)),
    ],
)
def test_bounds_have_the_targets_type_where_it_is_wider(
    tmp_path: Path, kind: str, wide: str, low: object, expected: str
) -> None:
    """As after a RESTORE of the source to before it widened a column."""
    schema = schema_of(metadata_of(column("c", wide)))
    [found] = metrics(tmp_path, metadata_of(column("c", kind)), stats(low, low), schema=schema)
    assert found["lower-bounds"] == {1: expected}


def test_counts_are_of_all_rows_and_a_file_without_statistics_has_no_metrics(
    tmp_path: Path,
) -> None:
    known = stats(None, None, nulls=10), stats(1, 2, nulls=3)
    found = metrics(tmp_path, LONG, {}, {"stats": {"numRecords": 4}}, *known)
    assert found[:3] == [{}, {}, {"value-counts": {1: 10}, "null-value-counts": {1: 10}}]
    assert found[3] == {
        "value-counts": {1: 10},
        "null-value-counts": {1: 3},
        "lower-bounds": {1: hexed("<q", 1)},
        "upper-bounds": {1: hexed("<q", 2)},
    }


def test_bounds_need_a_count_of_nulls(tmp_path: Path) -> None:
    values = {"minValues": {"c": 1, "d": 1}, "maxValues": {"c": 2, "d": 2}}
    add = {"stats": {"numRecords": 3, **values, "nullCount": {"c": 0}}}
    [found] = metrics(tmp_path, metadata_of(column("c", "long"), column("d", "long")), add)
    assert [list(found[name]) for name in found] == [[1]] * 4


def test_impossible_counts_and_bounds_in_the_wrong_order_are_not_told(tmp_path: Path) -> None:
    found = metrics(tmp_path, LONG, stats(1, 2, nulls=-1), stats(1, 2, nulls=11), stats(2, 1))
    assert found[:2] == [{}, {}]
    assert list(found[2]) == ["value-counts", "null-value-counts"]


def test_wide_bounds_are_those_of_all_rows_and_others_are_not_told_beside_a_vector(
    tmp_path: Path,
) -> None:
    tight: tuple[dict[str, Any], ...] = ({}, {"tightBounds": True}, {"tightBounds": None})
    marked = [
        stats(1, 2, nulls=4, **more) | {"deletionVector": VECTOR}
        for more in ({"tightBounds": False}, *tight)
    ]
    first, *others = metrics(tmp_path, LONG, *marked, *(stats(1, 2, **more) for more in tight))
    assert first["null-value-counts"] == {1: 4}
    assert first["upper-bounds"] == {1: hexed("<q", 2)}
    assert others[:3] == [{}] * 3
    assert [each["lower-bounds"] for each in others[3:]] == [{1: hexed("<q", 1)}] * 3


def test_fields_of_structs_have_metrics_and_lists_and_partitions_have_none(tmp_path: Path) -> None:
    fields = struct(mapped(3, "x", "long"), mapped(4, "l", array("long")))
    columns = mapped(1, "p", "long"), mapped(2, "s", fields)
    inner = {"col-2": {"col-3": 5}}
    counts = {"numRecords": 2, "nullCount": {"col-2": {"col-3": 1, "col-4": 0}}}
    stats = {**counts, "minValues": inner, "maxValues": inner}
    add = {"partitionValues": {"col-1": "1"}, "stats": stats}
    [found] = metrics(tmp_path, metadata_of(*columns, mode="name", partitions=["p"]), add)
    assert found == {
        "value-counts": {3: 2},
        "null-value-counts": {3: 1},
        **{name: {3: hexed("<q", 5)} for name in ("lower-bounds", "upper-bounds")},
    }


def test_only_columns_that_the_table_keeps_statistics_for_are_looked_at(tmp_path: Path) -> None:
    values = {f"c{at}": at for at in range(40)}
    bounds = {"minValues": values, "maxValues": values, "nullCount": dict.fromkeys(values, 0)}
    add = {"stats": {"numRecords": 1, **bounds}}
    columns = [column(name, "long") for name in values]
    [first] = metrics(tmp_path / "first", metadata_of(*columns), add)
    assert list(first["lower-bounds"]) == list(range(1, 33))
    everything = metadata_of(*columns, delta__dataSkippingNumIndexedCols="-1")
    [found] = metrics(tmp_path / "all", everything, add)
    assert found["lower-bounds"] == {at + 1: hexed("<q", at) for at in range(40)}
