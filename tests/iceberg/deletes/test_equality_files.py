"""Ordinary equality-delete files, read by Iceberg's own readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from delvec.errors import UnsupportedFeatureError
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view, load_table
from delvec.iceberg.client.content_files import json_arrays
from delvec.iceberg.commit.branch_commit import commit_change
from delvec.iceberg.commit.commit import RowChange, row_changes
from delvec.iceberg.deletes import key_bits
from delvec.iceberg.deletes.equality_files import Scope, as_equality_delete, encode_files
from delvec.iceberg.deletes.key_columns import arrow_schema, key_columns
from delvec.iceberg.deletes.write_keys import write_deletes
from delvec.spark.engine import open_storage
from delvec.spark.input.key_values import KeyColumn
from delvec.spark.input.keys import Keys
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles
from tests.iceberg.deletes.foreign import column as field
from tests.iceberg.deletes.foreign import table_of
from tests.iceberg.deletes.key_tables import column
from tests.iceberg.deletes.tables import content_file

NOON = datetime(2024, 5, 6, 12, 30, 0, 7)  # noqa: DTZ001
WITH_UUIDS = pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 21, reason="pyarrow does not write Parquet's UUIDs"
)
NOT_OF_SPARK = ("time", "timestamp_ns", "timestamptz_ns")
UTC_NOON = NOON.replace(tzinfo=timezone.utc)


def parts(keys: Any, columns: list[KeyColumn], **limits: int) -> list[pq.ParquetFile]:  # noqa: ANN401
    return [
        pq.ParquetFile(BytesIO(each.data))
        for each in encode_files(Keys.of(keys, columns), **limits)
    ]


class TestBytes:
    @pytest.mark.parametrize(
        ("kind", "keys", "physical", "logical"),
        [
            ("boolean", [True], "BOOLEAN", "None"),
            ("int", [1], "INT32", "None"),
            ("long", [1], "INT64", "None"),
            ("date", [date(2024, 1, 1)], "INT32", "Date"),
            ("time", [time(1)], "INT64", "Time("),
            ("timestamp", [NOON], "INT64", "isAdjustedToUTC=false, timeUnit=microseconds"),
            ("timestamptz", [UTC_NOON], "INT64", "isAdjustedToUTC=true, timeUnit=microseconds"),
            ("timestamp_ns", [NOON], "INT64", "isAdjustedToUTC=false, timeUnit=nanoseconds"),
            ("timestamptz_ns", [UTC_NOON], "INT64", "isAdjustedToUTC=true, timeUnit=nanoseconds"),
            ("string", ["a"], "BYTE_ARRAY", "String"),
            pytest.param(
                *("uuid", [UUID(int=1)], "FIXED_LEN_BYTE_ARRAY", "UUID"), marks=WITH_UUIDS
            ),
            ("fixed[3]", [b"abc"], "FIXED_LEN_BYTE_ARRAY", "None"),
            ("binary", [b"a"], "BYTE_ARRAY", "None"),
            ("decimal(9, 2)", [1], "INT32", "Decimal(precision=9, scale=2)"),
            ("decimal(18, 2)", [1], "INT64", "Decimal(precision=18, scale=2)"),
            ("decimal(19, 2)", [1], "FIXED_LEN_BYTE_ARRAY", "Decimal(precision=19, scale=2)"),
        ],
    )
    def test_types_in_files(self, kind: str, keys: list[Any], physical: str, logical: str) -> None:
        [file] = parts(keys, [column(kind)])
        found = file.schema.column(0)
        assert found.physical_type == physical
        assert logical in str(found.logical_type)
        assert "field_id=7" in str(file.schema)
        described = file.metadata.row_group(0).column(0)
        assert described.compression == "ZSTD"
        assert not described.has_dictionary_page
        if kind.startswith(("string", "binary", "fixed", "uuid", "decimal(19")):
            assert "DELTA_BYTE_ARRAY" in described.encodings
        elif kind != "boolean":
            assert "DELTA_BINARY_PACKED" in described.encodings
        assert b"ARROW:schema" not in (file.metadata.metadata or {})

    @pytest.mark.parametrize(
        ("keys", "required", "written"),
        [
            ([3, -5, None, 3, 9], False, [None, -5, 3, 9]),
            ([None, 1], True, [1]),  # no row has null in a column that is required
            ([None], True, None),
            ([], False, None),
        ],
    )
    def test_keys_are_sorted_and_no_keys_make_no_file(
        self, keys: list[Any], written: list[Any] | None, *, required: bool
    ) -> None:
        files = parts(keys, [column(required=required)])
        assert [file.read()["k"].to_pylist() for file in files] == ([written] if written else [])

    def test_many_keys_are_split_into_files(self) -> None:
        keys = np.arange(10_000) * 7
        files = parts(keys, [column()], most_keys=4_000)
        assert [file.metadata.num_rows for file in files] == [4_000, 4_000, 2_000]
        assert [file.read()["k"][0].as_py() for file in files] == [0, 28_000, 56_000]
        wide = np.random.default_rng(1).integers(0, 2**62, 3 << 20)
        few = parts(wide, [column()], most_bytes=1 << 20)
        assert [file.metadata.num_rows for file in few] == [1 << 20] * 3
        [encoded, *_] = encode_files(Keys.of(keys, [column()]), most_keys=4_000)
        [metrics] = encoded.metrics
        assert (metrics.lower, metrics.upper) == (
            "00" * 8,
            (27_993).to_bytes(8, "little").hex().upper(),
        )

    def test_keys_of_type_fixed_have_a_file_each(self) -> None:
        """Iceberg's readers take the last value of a file for all of them."""
        files = parts([b"aa", b"ab", None], [column("fixed[2]")])
        assert [file.read()["k"].to_pylist() for file in files] == [[None], [b"aa"], [b"ab"]]
        many = [number.to_bytes(2, "big") for number in range(1001)]
        with pytest.raises(UnsupportedFeatureError, match="1,001 keys with column k"):
            parts(many, [column("fixed[2]")])

    @pytest.mark.parametrize(
        ("kind", "keys", "lower", "upper"),
        [
            ("boolean", [True, False], "00", "01"),
            ("int", [-1, 2], "FFFFFFFF", "02000000"),
            ("date", [date(1970, 1, 2)], "01000000", "01000000"),
            ("time", [time(0, 0, 1)], "40420F0000000000", "40420F0000000000"),
            (
                "timestamp_ns",
                [datetime(1970, 1, 1, 0, 0, 0, 1)],  # noqa: DTZ001
                "E803000000000000",
                "E803000000000000",
            ),
            ("string", ["a", "b" * 70], "61", None),
            ("string", ["a" * 70], "61" * 64, None),
            ("binary", [b"a" * 70, b"b"], "61" * 64, "62"),
            ("fixed[2]", [b"ab"], "6162", "6162"),
            ("decimal(9, 2)", [Decimal("-1.29"), Decimal("1.28")], "FF7F", "0080"),
            pytest.param("uuid", [UUID(int=1)], None, None, marks=WITH_UUIDS),
            ("long", [None], None, None),
        ],
    )
    def test_bounds(self, kind: str, keys: list[Any], lower: str | None, upper: str | None) -> None:
        [encoded] = encode_files(Keys.of(keys, [column(kind)]))
        [metrics] = encoded.metrics
        assert (metrics.lower, metrics.upper) == (lower, upper)

    @pytest.mark.parametrize(
        ("kind", "values", "numbers"),
        [
            (pa.int8(), [3, None, -3], [3, -3]),
            (pa.int64(), [-(1 << 63), (1 << 63) - 1], [-(1 << 63), (1 << 63) - 1]),
            (pa.date32(), [date(1969, 12, 31), None], [-1]),
            (pa.timestamp("us", "UTC"), [UTC_NOON, None], [1_714_998_600_000_007]),
            # Other units and clocks would be other numbers, other kinds none.
            (pa.timestamp("us"), [NOON], None),
            *((pa.timestamp(unit, "UTC"), [1], None) for unit in ("s", "ms", "ns")),
            *((kind, [1], None) for kind in (pa.date64(), pa.time64("us"), pa.float64())),
            *((kind, [None], None) for kind in (pa.string(), pa.decimal128(9, 0), pa.bool_())),
        ],
        ids=str,
    )
    def test_keys_are_numbers_only_as_rows_have_them(
        self, kind: pa.DataType, values: list[Any], numbers: list[int] | None
    ) -> None:
        found = key_bits._as_numbers(pa.chunked_array([pa.array(values, kind)]))
        assert (None if found is None else found.tolist()) == numbers

    def test_a_file_of_executors_becomes_a_delete_file(self) -> None:
        described = {
            **content_file("file:/x", 5, 2),
            "null-value-counts": {"keys": [1, 7], "values": [0, 1]},
            "lower-bounds": {"keys": [1, 7], "values": ["00", "01"]},
            "first-row-id": 4,
        }
        columns = [column("uuid"), KeyColumn(1, "id", "boolean", required=False)]
        found = json.loads(as_equality_delete(json.dumps(described), columns, Scope(3)))
        assert found["content"] == "equality-deletes"
        assert (found["spec-id"], found["partition"], found["equality-ids"]) == (3, [], [7, 1])
        assert found["sort-order-id"] == 0
        assert found["lower-bounds"] == {"keys": [1], "values": ["00"]}
        assert "first-row-id" not in found


def created(spark: SparkSession, fields: list[dict[str, Any]]) -> LoadedTable:
    return table_of(spark, fields)._load()


def after_delete(table: LoadedTable, names: list[str], keys: Any) -> str:  # noqa: ANN401
    """Delete keys on a new branch of the table; return the branch."""
    table = load_table(table.spark, table.name)
    columns = key_columns(table.metadata.schema, names, str(table.name))
    storage = open_storage(table.spark, local_path(table.metadata.location))
    branch = f"b_{uuid4().hex[:8]}"
    with UncommittedFiles(storage) as files:
        done = write_deletes(keys, columns, table, Scope(0), staging=False, uncommitted=files)
        files.keep()
    if any(column.type in NOT_OF_SPARK for column in columns):
        table.handle.manageSnapshots().createBranch(branch).commit()
        add_by_java(table, done.delete_files, branch)
    else:
        change = RowChange(delete_files=done.delete_files)
        commit_change(table, branch, change, statistics=done.statistics)
    return branch


def add_by_java(table: LoadedTable, files: pa.Array, branch: str) -> None:
    """Commit files to a table that Spark cannot read."""
    changes, delta = row_changes(table.spark), table.handle.newRowDelta()
    changes.add(delta, table.handle.specs(), next(json_arrays(files)))
    delta.toBranch(branch).commit()


def left(table: LoadedTable, branch: str) -> list[int]:
    """The ids that Spark finds on a branch."""
    rows = table.spark.sql(f"SELECT id FROM {table.name} VERSION AS OF '{branch}'").collect()
    return sorted(row[0] for row in rows)


def left_by_java(table: LoadedTable, branch: str) -> list[int]:
    """The ids that Iceberg's own reader finds on a branch, for types that Spark does not have."""
    table = load_table(table.spark, table.name)
    generics = iceberg_view(table.spark).data.IcebergGenerics
    snapshot = table.metadata.refs[branch].snapshot_id
    rows = generics.read(table.handle).useSnapshot(snapshot).build()
    try:
        return sorted(_each(rows.iterator()))
    finally:
        rows.close()


def _each(rows: Any) -> Iterator[int]:  # noqa: ANN401
    while rows.hasNext():
        yield rows.next().getField("id")


KINDS: dict[str, tuple[str, list[Any]]] = {
    "boolean": ("boolean", [True, False, True]),
    "int": ("int", [-5, 0, 2**31 - 1]),
    "long": ("bigint", [-5, 0, 2**63 - 1]),
    "date": ("date", [date(1960, 1, 1), date(1970, 1, 1), date(2024, 1, 1)]),
    "timestamp": ("timestamp_ntz", [datetime(1960, 1, 1), NOON, datetime(2030, 1, 1)]),  # noqa: DTZ001
    "timestamptz": (
        "timestamp",
        [UTC_NOON.replace(year=1960), UTC_NOON, UTC_NOON.replace(year=2030)],
    ),
    "string": ("string", ["", "zoë", "y" * 100]),
    "binary": ("binary", [b"", b"\x00\xff", b"y" * 100]),
    "decimal(9, 2)": ("decimal(9, 2)", [Decimal("-1.29"), Decimal("0.00"), Decimal("9999999.99")]),
    "decimal(18, 2)": ("decimal(18, 2)", [Decimal("-1.29"), Decimal("0.00"), Decimal(10**15)]),
    "decimal(38, 2)": ("decimal(38, 2)", [Decimal("-1.29"), Decimal("0.00"), Decimal(10**30)]),
    "uuid": ("string", [str(UUID(int=1)), str(UUID(int=1 << 127)), str(UUID(int=(1 << 128) - 1))]),
    "fixed[3]": ("binary", [b"\x00aa", b"abc", b"\xffaa"]),
}


@pytest.fixture(scope="module")
def types(spark: SparkSession) -> LoadedTable:
    """A table with a column of each type: rows 1 to 3 with values, row 4 with nulls."""
    named = {kind: f"c{number}" for number, kind in enumerate(KINDS)}
    fields = [field(1, "id", "int")]
    fields += [field(10 + i, name, kind) for i, (kind, name) in enumerate(named.items())]
    table = created(spark, fields)
    ddl = ", ".join(["id int", *(f"{named[kind]} {sql}" for kind, (sql, _) in KINDS.items())])
    for row in range(4):  # a data file each, so that planners may skip it
        values = [None if row == 3 else values[row] for _, values in KINDS.values()]
        frame = spark.createDataFrame([(row + 1, *values)], ddl)
        frame.coalesce(1).writeTo(str(table.name)).append()
    return table


@pytest.mark.spark
@pytest.mark.first_cases(2)
class TestStockIceberg:
    @pytest.mark.parametrize(
        "kind", [pytest.param(kind, marks=WITH_UUIDS) if kind == "uuid" else kind for kind in KINDS]
    )
    def test_every_type_deletes_exactly_its_row(self, types: LoadedTable, kind: str) -> None:
        name, values = f"c{list(KINDS).index(kind)}", KINDS[kind][1]
        assert left(types, after_delete(types, [name], [values[1]])) == [1, 3, 4]
        assert left(types, after_delete(types, [name], [None])) == [1, 2, 3]
        assert left(types, after_delete(types, [name], [values[0], None, values[2]])) == [2]

    def test_composite_keys(self, types: LoadedTable) -> None:
        keys = [(1, ""), (2, "other"), (3, None), (4, None)]
        assert left(types, after_delete(types, ["id", "c6"], keys)) == [2, 3]

    @pytest.mark.parametrize(
        "kind",
        ["binary", "fixed[3]", "string", "decimal(38, 2)", pytest.param("uuid", marks=WITH_UUIDS)],
    )
    def test_keys_whose_memory_readers_reuse(self, spark: SparkSession, kind: str) -> None:
        table = created(spark, [field(1, "id", "int"), field(2, "k", kind)])
        sql = KINDS[kind][0]
        others: dict[str, list[Any]] = {
            "string": ["aaa", "aab", "aac", "aad"],
            "uuid": [str(UUID(int=number)) for number in range(4)],
            "decimal(38, 2)": [Decimal(number) for number in range(4)],
        }
        values = others.get(kind, [b"aaa", b"aab", b"aac", b"aad"])
        frame = spark.createDataFrame(list(enumerate(values)), f"id int, k {sql}")
        frame.coalesce(1).writeTo(str(table.name)).append()
        assert left(table, after_delete(table, ["k"], values[:3])) == [3]
        keys = [(number, values[number]) for number in (0, 2)]
        assert left(table, after_delete(table, ["id", "k"], keys)) == [1, 3]

    def test_a_null_key_of_a_required_column(self, spark: SparkSession) -> None:
        table = created(spark, [field(1, "id", "int", required=True)])
        spark.sql(f"INSERT INTO {table.name} VALUES 1, 2, 3")
        assert left(table, after_delete(table, ["id"], [None, 1])) == [2, 3]

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            ("time", [time(0), time(12, 30, 0, 7), time(23, 59, 59, 999_999)]),
            ("timestamp_ns", [datetime(1960, 1, 1), NOON, datetime(2200, 1, 1)]),  # noqa: DTZ001
            (
                "timestamptz_ns",
                [UTC_NOON.replace(year=1960), UTC_NOON, UTC_NOON.replace(year=2200)],
            ),
        ],
    )
    def test_types_that_spark_lacks(
        self, spark: SparkSession, kind: str, values: list[Any]
    ) -> None:
        table = created(spark, [field(1, "id", "int"), field(2, "k", kind)])
        columns = key_columns(table.metadata.schema, ["id", "k"], "t")
        path = f"{table.metadata.location}/data/rows.parquet"
        schema = arrow_schema(columns)
        rows = pa.table({"id": [1, 2, 3, 4], "k": [*values, None]}, schema=schema)
        sink = BytesIO()
        pq.write_table(rows, sink, store_schema=False)
        open_storage(spark, local_path(table.metadata.location)).write(
            "data/rows.parquet", sink.getvalue()
        )
        entry = content_file(path, sink.tell(), 4)
        add_by_java(table, pa.array([json.dumps(entry)]), "main")
        assert left_by_java(table, after_delete(table, ["k"], [values[1]])) == [1, 3, 4]
        assert left_by_java(table, after_delete(table, ["k"], [None, values[0]])) == [2, 3]
