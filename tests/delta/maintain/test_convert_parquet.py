"""A folder of Parquet becomes a Delta table: its files, types, partitions and statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec import DeltaTable
from delvec.delta.maintain import convert_parquet
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import (
    DelvecError,
    FormatError,
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from tests.delta import log_files
from tests.delta.builder import field_of, small_table, struct_of
from tests.delta.rows import same_rows

Columns = dict[str, Any]
OFF = {"delta.enableDeletionVectors": "false"}


def write(path: Path, columns: Mapping[str, Any] | pa.Table, **options: Any) -> None:  # noqa: ANN401
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    pq.write_table(rows, path, **options)


def convert(root: Path, *args: Any, **kwargs: Any) -> DeltaTable:  # noqa: ANN401
    DeltaTable.convert_to_delta(None, root, *args, **kwargs)
    return DeltaTable.for_path(None, root)


def rows_of(table: DeltaTable) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=str)


def put_texts(root: Path, *names: str, text: str = "not Parquet") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def types_of(table: DeltaTable) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema.fields}


def adds(root: Path) -> dict[str, dict[str, Any]]:
    found = [each["add"] for each in log_files.commits(root)[0] if "add" in each]
    return {add["path"]: add for add in found}


def statistics(root: Path, name: str = "a.parquet") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(adds(root)[name]["stats"])
    return found


def test_all_rows_are_there_and_other_engines_read_them(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": [1, 2], "name": ["x", None]})
    write(tmp_path / "deep/er/b.parquet", {"id": [3], "name": ["y"]})
    report = DeltaTable.convert_to_delta(None, tmp_path, properties=OFF)
    assert (report.version, report.files_added) == (0, 2)
    assert "2 files with 3 rows" in report.notes
    table = DeltaTable.for_path(None, tmp_path)
    expected = pa.table({"id": [1, 2, 3], "name": ["x", None, "y"]})
    for rows in (table.to_arrow(), deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()):
        assert same_rows(rows, expected)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 2)


def test_statistics_come_from_footers_and_prune(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": [1, 2], "name": ["x", None]}, row_group_size=1)
    write(tmp_path / "b.parquet", {"id": [30], "name": ["y"]})
    table = convert(tmp_path)
    assert statistics(tmp_path) == {
        "numRecords": 2,
        "nullCount": {"id": 0, "name": 1},
        "tightBounds": True,
        "minValues": {"id": 1, "name": "x"},
        "maxValues": {"id": 2, "name": "x"},
    }
    (tmp_path / "a.parquet").unlink()
    assert table.to_arrow([("id", ">", 10)])["id"].to_pylist() == [30]


def test_the_history_is_that_of_delta_spark(tmp_path: Path) -> None:
    write(tmp_path / "day=2024-01-31/a.parquet", {"id": [1]})
    [entry] = convert(tmp_path, {"day": "date"}).arrow_history().to_pylist()
    parameters = {"numFiles": "1", "partitionedBy": '["day"]', "collectStats": "true"}
    assert entry["operation"] == "CONVERT"
    assert dict(entry["operationParameters"]) == parameters | {"sourceFormat": "parquet"}
    assert dict(entry["operationMetrics"]) == {"numConvertedFiles": "1"}


def test_a_dry_run_writes_nothing_and_vectors_are_on_as_in_new_tables(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": [1]})
    report = DeltaTable.convert_to_delta(None, tmp_path, dry_run=True)
    assert (report.version, report.files_added) == (None, 1)
    assert not (tmp_path / "_delta_log").exists()
    table = convert(tmp_path)
    assert table.properties["delta.enableDeletionVectors"] == "true"
    assert table.protocol.has_vectors


def test_a_delta_table_is_left_as_it_is(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    report = DeltaTable.convert_to_delta(None, tmp_path / "t")
    assert report.version is None
    assert report.notes == ("the folder is a Delta table already",)
    assert DeltaTable.for_path(None, tmp_path / "t").version == 2


def test_hidden_and_empty_files_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": [1]})
    put_texts(tmp_path, "_SUCCESS", ".a.parquet.crc", "_temporary/0/b.parquet", ".x/c.parquet")
    put_texts(tmp_path, "folder_marker", text="")
    convert(tmp_path)
    assert list(adds(tmp_path)) == ["a.parquet"]


@pytest.mark.parametrize(
    ("folder", "columns", "given", "row"),
    [
        ("_day=1", {"id": [1]}, {"_day": "int"}, {"id": 1, "_day": 1}),
        ("p=5", {"p": [99], "id": [1]}, None, {"p": 5, "id": 1}),
        ("city=K\u00f6ln", {"id": [1]}, None, {"id": 1, "city": "K\u00f6ln"}),
    ],
    ids=["named as if hidden", "in the files too, where it keeps its place", "beyond ASCII"],
)
def test_folders_of_partitions(
    tmp_path: Path, folder: str, columns: Columns, given: Columns | None, row: Columns
) -> None:
    write(tmp_path / folder / "a.parquet", columns)
    assert [list(each.items()) for each in rows_of(convert(tmp_path, given))] == [list(row.items())]


@pytest.mark.parametrize("name", ["a b#1.parquet", "50%.parquet", "ä:ö.parquet", "x%20y.parquet"])
def test_names_are_percent_encoded(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, {"id": [1]})
    assert rows_of(convert(tmp_path, properties=OFF)) == [{"id": 1}]
    [path] = adds(tmp_path)
    assert not {" ", "#"} & set(path)
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 1


def test_other_files_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"id": [1]})
    put_texts(tmp_path, "readme.txt")
    with pytest.raises(FormatError, match=r"readme\.txt"):
        convert(tmp_path)
    assert not (tmp_path / "_delta_log").exists()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(TableNotFoundError, match="no Parquet files"):
            convert(path)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("metadata/v1.metadata.json", "an Iceberg table"),
        ("inner/metadata/v1.metadata.json.gz", "inner is an Iceberg table"),
        (".hoodie/hoodie.properties", "a Hudi table"),
        ("inner/_spark_metadata/0", "the target of a stream"),
        ("inner/_delta_log/00000000000000000000.json", "inner is a Delta table"),
    ],
)
def test_tables_of_other_formats_are_refused(tmp_path: Path, name: str, what: str) -> None:
    write(tmp_path / "data/a.parquet", {"id": [1]})
    put_texts(tmp_path, name, text="{}")
    with pytest.raises(UnsupportedFeatureError, match=f"(?s){what}.*would come back"):
        convert(tmp_path)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ({"0": "v2"}, "another form in .*_spark_metadata/0: expected v1"),
        ({"0": "v1\n{root}/a.parquet", "2": "v1"}, "missing in .*_spark_metadata/1"),
        ({"2.compact": "v1", "4": "v1"}, "missing in .*_spark_metadata/3: expected batches 2 to 4"),
        ({"0": "v1\n/elsewhere/a.parquet"}, "outside of the folder.*found file:///elsewhere"),
        ({"0": "v1\n{root}/../a.parquet"}, "by `.` or `..`"),
        ({"0": "v1\n{root}/gone.parquet"}, "1 file that the log of the stream names is not in"),
        ({"0": "v1\nnull"}, "adds no file"),
        ({"0": "v1"}, "no Parquet files"),
    ],
)
def test_a_streams_log_must_be_whole(tmp_path: Path, batches: dict[str, str], message: str) -> None:
    write(tmp_path / "a.parquet", {"id": [1]})
    (tmp_path / "_spark_metadata").mkdir()
    for name, text in batches.items():
        version, _, file = text.format(root=tmp_path).partition("\n")
        entry = json.dumps({"path": f"file://{file}", "action": "add"}) if "/" in file else file
        (tmp_path / "_spark_metadata" / name).write_text("\n".join(filter(None, [version, entry])))
    with pytest.raises(DelvecError, match=message):
        convert(tmp_path)
    assert not (tmp_path / "_delta_log").exists()


SAME: dict[str, tuple[pa.DataType, str]] = {
    "bool": (pa.bool_(), "boolean"),
    "int8": (pa.int8(), "byte"),
    "int16": (pa.int16(), "short"),
    "int32": (pa.int32(), "integer"),
    "int64": (pa.int64(), "long"),
    "uint8": (pa.uint8(), "short"),
    "uint16": (pa.uint16(), "integer"),
    "uint32": (pa.uint32(), "long"),
    "uint64": (pa.uint64(), "decimal(20,0)"),
    "float": (pa.float32(), "float"),
    "double": (pa.float64(), "double"),
    "decimal": (pa.decimal128(38, 10), "decimal(38,10)"),
    "date": (pa.date32(), "date"),
    "instant": (pa.timestamp("us", "UTC"), "timestamp"),
    "berlin": (pa.timestamp("ms", "Europe/Berlin"), "timestamp"),
    "local": (pa.timestamp("us"), "timestamp_ntz"),
    "local_ms": (pa.timestamp("ms"), "timestamp_ntz"),
    "string": (pa.string(), "string"),
    "large_string": (pa.large_string(), "string"),
    "codes": (pa.dictionary(pa.int32(), pa.string()), "string"),
    "binary": (pa.binary(), "binary"),
    "fixed": (pa.binary(3), "binary"),
    "array": (pa.list_(pa.uint8()), "array<short>"),
    "large_array": (pa.large_list(pa.string()), "array<string>"),
    "pair": (pa.list_(pa.int32(), 2), "array<integer>"),
    "map": (pa.map_(pa.string(), pa.uint32()), "map<string,long>"),
    "struct": (
        pa.struct([("a", pa.uint16()), ("b", pa.list_(pa.struct([("c", pa.date32())])))]),
        "struct<a:integer,b:array<struct<c:date>>>",
    ),
}
VALUES: dict[str, Any] = {
    "bool": True,
    "uint64": 2**64 - 1,
    "uint32": 2**32 - 1,
    "uint16": 2**16 - 1,
    "uint8": 255,
    "decimal": Decimal("1.5"),
    "date": datetime(2024, 1, 31, tzinfo=timezone.utc).date(),
    "instant": datetime(2024, 1, 31, tzinfo=timezone.utc),
    "berlin": datetime(2024, 1, 31, tzinfo=timezone.utc),
    "local": datetime(2024, 1, 31),  # noqa: DTZ001
    "local_ms": datetime(2024, 1, 31),  # noqa: DTZ001
    "string": "a",
    "large_string": "a",
    "codes": "a",
    "binary": b"abc",
    "fixed": b"abc",
    "array": [255, None],
    "large_array": ["a"],
    "pair": [1, 2],
    "map": [("a", 2**32 - 1)],
    "struct": {"a": 65535, "b": [{"c": None}]},
}


@pytest.mark.parametrize("name", SAME)
def test_types_are_those_of_spark_and_values_are_read(tmp_path: Path, name: str) -> None:
    stored, expected = SAME[name]
    value = VALUES.get(name, 1)
    # Older versions of Arrow do not read back a null among lists of fixed size.
    rows = [value] if name == "pair" else [value, None]
    write(tmp_path / "a.parquet", {"a": pa.array(rows, stored)})
    table = convert(tmp_path, properties=OFF)
    assert (str(table.schema), table.to_arrow()["a"].to_pylist()) == (f"struct<a:{expected}>", rows)
    assert table.schema.field("a").nullable
    features = {"timestampNtz"} if expected == "timestamp_ntz" else set()
    assert table.protocol.reader_features == features


def test_int96_is_an_instant_without_bounds(tmp_path: Path) -> None:
    moment = datetime(2024, 1, 31, 10, 20, 30, 123_456)  # noqa: DTZ001
    rows = pa.table({"a": pa.array([moment], pa.timestamp("us")), "id": [1]})
    write(tmp_path / "a.parquet", rows, use_deprecated_int96_timestamps=True)
    table = convert(tmp_path)
    assert types_of(table)["a"] == "timestamp"
    assert table.to_arrow()["a"].to_pylist() == [moment.replace(tzinfo=timezone.utc)]
    assert statistics(tmp_path)["maxValues"] == {"id": 1}


@pytest.mark.parametrize(
    ("stored", "what"),
    [
        (pa.time32("ms"), "a time of day"),
        (pa.time64("us"), "a time of day"),
        (pa.timestamp("ns"), "a timestamp in nanoseconds"),
        (pa.timestamp("ns", "UTC"), "a timestamp in nanoseconds"),
        (pa.float16(), "a number of 16 bits"),
        (pa.decimal256(50, 2), "a decimal of 50 digits"),
        (pa.null(), "of no type"),
    ],
)
def test_types_unknown_to_delta_are_refused(tmp_path: Path, stored: pa.DataType, what: str) -> None:
    inner = pa.struct([("t", stored)])
    write(tmp_path / "sub/bad.parquet", {"id": [1], "s": pa.array([{"t": None}], inner)})
    with pytest.raises(UnsupportedFeatureError) as raised:
        convert(tmp_path)
    assert f"column s.t of sub/bad.parquet is {what}" in str(raised.value)
    assert raised.value.hint
    assert not (tmp_path / "_delta_log").exists()


def write_with_schema(root: Path, field: dict[str, Any]) -> None:
    """Write a file of integers that has a schema of Spark's."""
    key = b"org.apache.spark.sql.parquet.row.metadata"
    rows = pa.table({"a": pa.array([1], pa.int32())})
    text = json.dumps(struct_of(field))
    write(root / "a.parquet", rows.replace_schema_metadata({key: text.encode()}))


def test_the_schema_that_spark_left_is_taken(tmp_path: Path) -> None:
    metadata = {"comment": "mine", "delta.generationExpression": "1 + 1"}
    write_with_schema(tmp_path, field_of("a", "short", **metadata) | {"nullable": False})
    found = convert(tmp_path).schema.field("a")
    assert (str(found.type), found.nullable) == ("short", True)
    assert dict(found.metadata) == {"comment": "mine"}


def test_types_of_spark_that_delta_does_not_have_are_refused(tmp_path: Path) -> None:
    write_with_schema(tmp_path, field_of("a", "interval year to month"))
    with pytest.raises(UnsupportedFeatureError, match=r"interval year to month \(in a.parquet\)"):
        convert(tmp_path)


def test_old_calendars_have_no_bounds(tmp_path: Path) -> None:
    rows = pa.table({"id": [1]}).replace_schema_metadata({b"org.apache.spark.version": b"2.4.8"})
    write(tmp_path / "a.parquet", rows)
    convert(tmp_path)
    expected = {"numRecords": 1, "nullCount": {"id": 0}, "tightBounds": True}
    assert statistics(tmp_path) == expected


def test_columns_of_all_files_are_united(tmp_path: Path) -> None:
    one = pa.struct([("x", pa.int8())])
    two = pa.struct([("x", pa.int32()), ("y", pa.string())])
    write(tmp_path / "a.parquet", {"id": [1], "s": pa.array([{"x": 1}], one)})
    write(tmp_path / "b.parquet", {"S": pa.array([{"x": 7, "y": "z"}], two), "new": ["n"]})
    table = convert(tmp_path)
    assert str(table.schema) == "struct<id:long,s:struct<x:integer,y:string>,new:string>"
    assert rows_of(table) == [
        {"id": 1, "s": {"x": 1, "y": None}, "new": None},
        {"id": None, "s": {"x": 7, "y": "z"}, "new": "n"},
    ]
    nulls = {"id": 1, "s": {"x": 0, "y": 0}, "new": 0}
    assert statistics(tmp_path, "b.parquet")["nullCount"] == nulls


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int32(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.decimal128(5, 2), pa.decimal128(6, 2)),
        (pa.list_(pa.int8()), pa.list_(pa.string())),
        (pa.struct([("x", pa.int8())]), pa.int8()),
    ],
)
def test_differing_types_are_named(tmp_path: Path, first: pa.DataType, second: pa.DataType) -> None:
    write(tmp_path / "a.parquet", {"v": pa.nulls(1, first)})
    write(tmp_path / "b.parquet", {"v": pa.nulls(1, second)})
    with pytest.raises(InvalidArgumentError, match=r"column v\S* is .* in b\.parquet"):
        convert(tmp_path)


@pytest.mark.parametrize(
    ("columns", "properties", "message"),
    [
        ({"id": [1], "ID": [2]}, {}, "same name"),
        ({"my id": [1]}, {}, "'my id'"),
        ({"id": [1]}, {"delta.columnMapping.mode": "name"}, "columnMapping"),
    ],
)
def test_names_and_mappings_that_are_refused(
    tmp_path: Path, columns: Columns, properties: dict[str, str], message: str
) -> None:
    write(tmp_path / "a.parquet", columns)
    with pytest.raises((InvalidArgumentError, UnsupportedFeatureError), match=message):
        convert(tmp_path, properties=properties)


def test_row_tracking_gives_ids_to_all_files(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.parquet", {"id": [1, 2, 3]})
    table = convert(tmp_path, properties={"delta.enableRowTracking": "true"})
    assert [add["baseRowId"] for add in adds(tmp_path).values()] == [0, 3]
    assert table.snapshot().domains["delta.rowTracking"] == '{"rowIdHighWaterMark":5}'


def test_footers_that_find_no_room_are_read_again(tmp_path: Path) -> None:
    names = [f"{number}.parquet" for number in range(3)]
    for number, name in enumerate(names):
        write(tmp_path / name, {"id": [number]})
    with patch.object(convert_parquet, "_FOOTER_BYTES", 0):
        assert convert(tmp_path).count() == 3
    assert [statistics(tmp_path, name)["minValues"]["id"] for name in names] == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", "0"], "integer"),
        (["1", "3000000000"], "long"),
        (["2024-01-31", "__HIVE_DEFAULT_PARTITION__"], "date"),
        (["north", "south west"], "string"),
    ],
)
def test_certain_types_are_inferred(tmp_path: Path, values: list[str], kind: str) -> None:
    for number, value in enumerate(values):
        write(tmp_path / f"p={value}/{number}.parquet", {"id": [number]})
    table = convert(tmp_path)
    assert (types_of(table), table.partition_columns) == ({"id": "long", "p": kind}, ("p",))
    found = {add["partitionValues"]["p"] for add in adds(tmp_path).values()}
    assert found == {None if "HIVE" in value else value for value in values}
    assert table.to_arrow().num_rows == len(values)


@pytest.mark.parametrize(
    "values",
    [["01", "02"], ["1", "x"], ["1.5"], ["2024-01"], ["true"], ["__HIVE_DEFAULT_PARTITION__"]],
)
def test_ambiguous_values_of_partitions_are_refused(tmp_path: Path, values: list[str]) -> None:
    for value in values:
        write(tmp_path / f"p={value}/a.parquet", {"id": [1]})
    with pytest.raises(InvalidArgumentError, match=r"partition_by=\{'p': 'string'\}"):
        convert(tmp_path)
    assert convert(tmp_path, {"p": "string"}).to_arrow().num_rows == len(values)


NIGHT = datetime(2024, 1, 31, 10, 20, 30, 0, timezone.utc)


@pytest.mark.parametrize(
    ("given", "text", "value"),
    [
        ({"p": "int"}, "007", 7),
        ({"p": "decimal(4,2)"}, "1.50", Decimal("1.50")),
        ({"p": "decimal(10,2)"}, "1.5", Decimal("1.50")),  # deltalake wants all digits
        ({"p": "bool"}, "TRUE", True),
        ({"p": "timestamp"}, "2024-01-31 10%3A20%3A30", NIGHT),
        ({"p": "string"}, "a%2Fb%3Dc %25", "a/b=c %"),
        (["p"], "17", 17),
        (StructType((Field("p", PrimitiveType("double")),)), "1e3", 1000.0),
    ],
)
def test_partitions_get_given_types(tmp_path: Path, given: Any, text: str, value: object) -> None:  # noqa: ANN401
    write(tmp_path / f"p={text}/a.parquet", {"id": [1]})
    assert convert(tmp_path, given, OFF).to_arrow()["p"].to_pylist() == [value]
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 1


def test_nested_partitions_are_in_order(tmp_path: Path) -> None:
    write(tmp_path / "year=2024/month=1/a.parquet", {"id": [1]})
    write(tmp_path / "year=2024/month=2/extra/b.parquet", {"id": [2]})
    table = convert(tmp_path)
    assert table.partition_columns == ("year", "month")
    assert table.to_arrow([("month", "=", 2)])["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (["p=1/a", "b"], None, r"p=1/a\.parquet .* b\.parquet is not partitioned"),
        (["p=1/a", "q=1/b"], None, "q=1/b.parquet .* partitioned by q"),
        (["p=1/a"], ["q"], "by p, by its folders, and the table is partitioned by q"),
        (["p=1/a"], [], "and the table is not partitioned"),
        (["a"], {"p": "int"}, "not partitioned, .* the table is partitioned by p"),
        (["p=x/a"], {"p": "int"}, "the folder p=x .* is no integer"),
        (["p=/a"], None, "no value"),
        (["p=1/a"], "p int", "partition_by is a mapping"),
        (["p=1/a"], {"p": "array<int>"}, "array<int>"),
    ],
)
def test_odd_folders_are_refused(
    tmp_path: Path,
    names: list[str],
    given: Any,  # noqa: ANN401
    message: str,
) -> None:
    for name in names:
        write(tmp_path / f"{name}.parquet", {"id": [1]})
    with pytest.raises((InvalidArgumentError, UnsupportedFeatureError), match=message):
        convert(tmp_path, given)
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize("folder", ["city=K%C3%B6ln", "city=K%f6ln", "%C3%B6=1"])
def test_letters_that_writers_escape_in_two_ways_are_refused(tmp_path: Path, folder: str) -> None:
    write(tmp_path / f"{folder}/a.parquet", {"id": [1]})
    with pytest.raises(InvalidArgumentError, match=f"{folder}.*two ways"):
        convert(tmp_path)
