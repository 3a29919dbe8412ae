"""Statistics of the log against rows: bounds that would hide live rows are found."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.delta.builder import TableBuilder
from tests.delta.check.checks import checked, found

MOMENT = datetime(2024, 1, 31, 12, 0, 0, 123456, tzinfo=timezone.utc)
VALUES: dict[str, tuple[str, Any, list[Any]]] = {
    "integer": ("integer", pa.int32(), [1, 5, 9]),
    "double": ("double", pa.float64(), [1.5, 2.5, float("nan")]),
    "string": ("string", pa.string(), ["a", "b", "\U0001f600"]),
    "date": ("date", pa.date32(), [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)]),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC"), [MOMENT, MOMENT, MOMENT]),
    "decimal": ("decimal(5,2)", pa.decimal128(5, 2), [Decimal("1.10"), Decimal("2.20"), None]),
}
BOUNDS: dict[str, tuple[Any, Any]] = {
    "integer": (1, 9),
    "double": (1.5, 2.5),
    "string": ("a", "\U0001f600"),
    "date": ("2024-01-01", "2024-01-03"),
    "timestamp": ("2024-01-31T12:00:00.123Z", "2024-01-31T12:00:00.123Z"),
    "decimal": (1.10, 2.20),
}
TOO_HIGH: dict[str, Any] = {
    "integer": 2,
    "double": 1.6,
    "string": "aa",
    "date": "2024-01-02",
    "timestamp": "2024-01-31T12:00:01.000Z",
    "decimal": 1.11,
}
TOO_LOW: dict[str, Any] = {
    "integer": 8,
    "double": 2.4,
    "string": "b",
    "date": "2024-01-02",
    "timestamp": "2024-01-31T12:00:00.100Z",
    "decimal": 2.19,
}


def write(root: Path, name: str, low: Any, high: Any, nulls: int | None = None) -> TableBuilder:  # noqa: ANN401
    kind, arrow, values = VALUES[name]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    table = TableBuilder.made(root, fields={"v": kind}, protocol=protocol)
    add = table.write_file("a.parquet", pa.table({"v": pa.array(values, arrow)}))
    stats = {"numRecords": 3, "minValues": {"v": low}, "maxValues": {"v": high}}
    if nulls is not None:
        stats["nullCount"] = {"v": nulls}
    table.add(add | {"stats": json.dumps(stats)})
    return table


@pytest.mark.parametrize("name", VALUES)
def test_bounds_that_hold_are_no_finding(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, *BOUNDS[name])
    report = checked(tmp_path)
    assert (report.findings, report.sampled_files) == ((), 1)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("side", ["minimum", "maximum"])
def test_bounds_that_hide_a_row_are_an_error(tmp_path: Path, name: str, side: str) -> None:
    low, high = BOUNDS[name]
    if side == "minimum":
        low = TOO_HIGH[name]
    else:
        high = TOO_LOW[name]
    write(tmp_path, name, low, high)
    report = checked(tmp_path)
    assert found(report) == [("error", "wrong-statistics", "a.parquet")]
    assert f"{side} of v" in report.findings[0].message
    assert [each.kind for each in report.repairs] == ["replace-statistics"]
    repaired = checked(tmp_path, repair=True)
    assert (repaired.findings, repaired.repaired_version) == ((), 2)


@pytest.mark.parametrize(
    ("name", "nulls", "words"),
    [
        ("decimal", 0, "nullCount of v is 0, and 1 rows are null"),
        ("decimal", 3, "nullCount of v is that of all rows, and 2 rows are not null"),
        ("integer", 3, "3 rows are not null"),
        ("decimal", 2, None),
        ("integer", 0, None),
    ],
)
def test_null_counts_that_hide_rows(
    tmp_path: Path, name: str, nulls: int, words: str | None
) -> None:
    write(tmp_path, name, *BOUNDS[name], nulls)
    findings = checked(tmp_path).findings
    assert [each.kind for each in findings] == (["wrong-statistics"] if words else [])
    assert not words or words in findings[0].message


def test_deleted_rows_may_be_outside_of_tight_bounds(tmp_path: Path) -> None:
    table = write(tmp_path, "integer", 5, 9)
    assert found(checked(tmp_path)) == [("error", "wrong-statistics", "a.parquet")]
    [add] = [
        json.loads(line)["add"]
        for line in table.commit_path(1).read_text().splitlines()
        if '"add"' in line
    ]
    table.delete_rows(add, [0])
    assert checked(tmp_path).findings == ()
    table.delete(add | {"deletionVector": None}, table.write_vectors([1], prefix="b")[0])


def test_fields_of_structs_and_columns_that_the_file_lacks(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path)
    struct = {
        "type": "struct",
        "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
    }
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("s", struct), ("new", "long"))
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    table.commit(
        {"protocol": table.protocol}, {"metaData": table.metadata() | {"schemaString": schema}}
    )
    rows = pa.table({"s": pa.array([{"x": 1}, {"x": None}, None])})
    add = table.write_file("a.parquet", rows)
    for nulls, expected in ((2, []), (0, ["wrong-statistics"])):
        stats = {
            "numRecords": 3,
            "minValues": {"s": {"x": 1}},
            "maxValues": {"s": {"x": 1}},
            "nullCount": {"s": {"x": nulls}, "new": 3},
        }
        table.add(add | {"stats": json.dumps(stats)})
        assert [each.kind for each in checked(tmp_path).findings] == expected


def test_a_sample_is_spread_and_holds_files_with_vectors(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    adds = []
    for number in range(40):
        add = table.write_file(f"{number}.parquet", {"id": [1, 2]})
        stats = {"numRecords": 2, "minValues": {"id": 1}, "tightBounds": False}
        adds.append(add | {"stats": json.dumps(stats)})
    [vector] = table.write_vectors([0])
    wrong = {"numRecords": 2, "minValues": {"id": 3}, "tightBounds": False}
    adds[17] |= {"deletionVector": vector, "stats": json.dumps(wrong)}
    table.add(*adds)
    report = checked(tmp_path, sample=4)
    assert (report.sampled_files, found(report)) == (
        4,
        [("error", "wrong-statistics", "17.parquet")],
    )
    everything = checked(tmp_path, sample=1000)
    assert everything.sampled_files == 40
    assert checked(tmp_path, sample=0).ok


def test_statistics_that_say_nothing_are_no_finding(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    add = table.write_file("a.parquet", {"id": [1]})
    del add["stats"]
    other = table.write_file("b.parquet", {"id": [1]}) | {"stats": "{"}
    table.commit({"add": add}, {"add": other})
    assert checked(tmp_path).findings == ()
