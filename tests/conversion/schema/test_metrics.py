from __future__ import annotations

import json
import struct as packing
from pathlib import Path
from typing import Any

import pytest

from delvec.conversion.schema.iceberg_schema import target_schema
from delvec.conversion.schema.metrics import metrics_json
from delvec.delta.schema.metadata import Metadata
from tests.conversion.schema.columns import array, column, files_of, mapped, metadata_of, struct

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}


def metrics(root: Path, metadata: Metadata, *adds: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the metrics of each file, each a dict from id to value."""
    schema = target_schema(metadata, table="t", format_version=3, current=None, last_column_id=0)
    texts = metrics_json(files_of(root, metadata, *adds), schema).to_pylist()
    return [
        {
            name: dict(zip(member["keys"], member["values"], strict=True))
            for name, member in json.loads(f"{{{text}}}").items()
        }
        for text in texts
    ]


def stats(low: Any, high: Any, nulls: Any = 0, rows: int = 10, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Statistics of the column c."""
    values = {"minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": nulls}}
    return {"stats": {"numRecords": rows, **values, **more}}


def bounds(root: Path, kind: str, low: Any, high: Any) -> tuple[str | None, str | None]:  # noqa: ANN401
    [found] = metrics(root, metadata_of(column("c", kind)), stats(low, high))
    lower, upper = (found.get(name, {}).get(1) for name in ("lower-bounds", "upper-bounds"))
    return lower, upper


def hexed(form: str, *values: object) -> str:
    return packing.pack(form, *values).hex().upper()


class TestBytes:
    @pytest.mark.parametrize(
        ("kind", "low", "high", "expected"),
        [
            ("integer", -2, 5, (hexed("<i", -2), hexed("<i", 5))),
            ("short", 1, 2, (hexed("<i", 1), hexed("<i", 2))),
            ("byte", -128, 127, (hexed("<i", -128), hexed("<i", 127))),
            ("long", -(2**63), 2**63 - 1, (hexed("<q", -(2**63)), hexed("<q", 2**63 - 1))),
            ("date", "1969-12-31", "2020-01-01", (hexed("<i", -1), hexed("<i", 18262))),
            ("string", "", "zoë", ("", "7A6FC3AB")),
            ("decimal(5,2)", 1.28, 655.36, ("0080", "010000")),
            ("decimal(38,0)", -129, -1, ("FF7F", "FF")),
            (
                "timestamp",
                "1970-01-01T00:00:00.001Z",
                "1970-01-01T00:00:01.000Z",
                (hexed("<q", 1000), hexed("<q", 1_001_000)),  # texts of the log are cut
            ),
            (
                "timestamp_ntz",
                "1970-01-01T00:00:00.001",
                "1970-01-01T00:00:01.000",
                (hexed("<q", 1000), hexed("<q", 1_001_000)),
            ),
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
        self, tmp_path: Path, kind: str, low: object, high: object, expected: object
    ) -> None:
        assert bounds(tmp_path, kind, low, high) == expected

    def test_bounds_have_the_targets_type_where_it_is_wider(self, tmp_path: Path) -> None:
        """As after a RESTORE of the source to before it widened a column."""
        for number, (kind, wide, low, expected) in enumerate(
            (
                ("integer", "long", -2, hexed("<q", -2)),
                ("float", "double", 0.5, hexed("<d", 0.5)),
                ("date", "date", "1969-12-31", hexed("<i", -1)),
            )
        ):
            metadata = metadata_of(column("c", kind))
            schema = target_schema(
                metadata_of(column("c", wide)),
                table="t",
                format_version=3,
                current=None,
                last_column_id=0,
            )
            files = files_of(tmp_path / str(number), metadata, stats(low, low))
            [text] = metrics_json(files, schema).to_pylist()
            assert json.loads(f"{{{text}}}")["lower-bounds"]["values"] == [expected]

    def test_long_texts_are_cut_below_and_left_out_above(self, tmp_path: Path) -> None:
        low, high = bounds(tmp_path, "string", "a" * 100, "b" * 100)
        assert low is not None
        assert bytes.fromhex(low) == b"a" * 64
        assert high is None


class TestCounts:
    def test_counts_are_of_all_rows(self, tmp_path: Path) -> None:
        [found] = metrics(tmp_path, metadata_of(column("c", "long")), stats(1, 2, nulls=3))
        assert found["value-counts"] == {1: 10}
        assert found["null-value-counts"] == {1: 3}

    def test_a_file_without_statistics_has_no_metrics(self, tmp_path: Path) -> None:
        found = metrics(
            tmp_path,
            metadata_of(column("c", "long")),
            {},
            {"stats": {"numRecords": 4}},
            stats(None, None, nulls=10),
            stats(1, 2),
        )
        assert found[:3] == [{}, {}, {"value-counts": {1: 10}, "null-value-counts": {1: 10}}]
        assert found[3]["lower-bounds"] == {1: hexed("<q", 1)}

    def test_bounds_need_a_count_of_nulls(self, tmp_path: Path) -> None:
        columns = column("c", "long"), column("d", "long")
        values = {"minValues": {"c": 1, "d": 1}, "maxValues": {"c": 2, "d": 2}}
        add = {"stats": {"numRecords": 3, **values, "nullCount": {"c": 0}}}
        [found] = metrics(tmp_path, metadata_of(*columns), add)
        assert [list(found[name]) for name in found] == [[1]] * 4

    @pytest.mark.parametrize("nulls", [-1, 11])
    def test_an_impossible_count_is_not_told(self, tmp_path: Path, nulls: int) -> None:
        assert metrics(tmp_path, metadata_of(column("c", "long")), stats(1, 2, nulls)) == [{}]

    def test_bounds_in_the_wrong_order_are_not_told(self, tmp_path: Path) -> None:
        [found] = metrics(tmp_path, metadata_of(column("c", "long")), stats(2, 1))
        assert list(found) == ["value-counts", "null-value-counts"]


class TestWithVectors:
    def test_wide_bounds_are_those_of_all_rows(self, tmp_path: Path) -> None:
        add = stats(1, 2, nulls=4, tightBounds=False) | {"deletionVector": VECTOR}
        [found] = metrics(tmp_path, metadata_of(column("c", "long")), add)
        assert found["null-value-counts"] == {1: 4}
        assert found["upper-bounds"] == {1: hexed("<q", 2)}

    @pytest.mark.parametrize("more", [{}, {"tightBounds": True}, {"tightBounds": None}])
    def test_bounds_of_the_rows_that_are_left_are_not_told(
        self, tmp_path: Path, more: dict[str, Any]
    ) -> None:
        add = stats(1, 2, **more) | {"deletionVector": VECTOR}
        whole = stats(1, 2, **more)
        found = metrics(tmp_path, metadata_of(column("c", "long")), add, whole)
        assert found[0] == {}
        assert found[1]["lower-bounds"] == {1: hexed("<q", 1)}


class TestColumns:
    def test_fields_of_structs_have_metrics_and_lists_and_partitions_have_none(
        self, tmp_path: Path
    ) -> None:
        metadata = metadata_of(
            mapped(1, "p", "long"),
            mapped(2, "s", struct(mapped(3, "x", "long"), mapped(4, "l", array("long")))),
            mode="name",
            partitions=["p"],
        )
        inner = {"col-2": {"col-3": 5}}
        add = {
            "partitionValues": {"col-1": "1"},
            "stats": {
                "numRecords": 2,
                "minValues": inner,
                "maxValues": inner,
                "nullCount": {"col-2": {"col-3": 1, "col-4": 0}},
            },
        }
        [found] = metrics(tmp_path, metadata, add)
        assert found == {
            "value-counts": {3: 2},
            "null-value-counts": {3: 1},
            "lower-bounds": {3: hexed("<q", 5)},
            "upper-bounds": {3: hexed("<q", 5)},
        }

    def test_only_columns_that_the_table_keeps_statistics_for_are_looked_at(
        self, tmp_path: Path
    ) -> None:
        values = {f"c{at}": at for at in range(40)}
        add = {
            "stats": {
                "numRecords": 1,
                "minValues": values,
                "maxValues": values,
                "nullCount": dict.fromkeys(values, 0),
            }
        }
        columns = [column(name, "long") for name in values]
        [first] = metrics(tmp_path / "first", metadata_of(*columns), add)
        assert list(first["lower-bounds"]) == list(range(1, 33))
        everything = metadata_of(*columns, delta__dataSkippingNumIndexedCols="-1")
        [found] = metrics(tmp_path / "all", everything, add)
        assert found["lower-bounds"] == {at + 1: hexed("<q", at) for at in range(40)}
