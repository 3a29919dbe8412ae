"""Reads through equality deletes of other writers: delvec returns what stock Iceberg returns."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec import IcebergTable
from tests.iceberg.deletes.foreign import column, delete_by_java, table_of
from tests.iceberg.table.mirror import found, stock
from tests.marks import slow_but

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

STRUCT = {"type": "struct", "fields": [column(21, "x", "int"), column(22, "y", "string")]}
# Type, Spark's type, the values of rows 1 to 3 (row 4 has nulls), and the second one in JSON.
KINDS: dict[str, tuple[Any, str, list[Any], Any]] = {
    "i": ("int", "int", [-5, 0, 7], 0),
    "l": ("long", "bigint", [-5, 1 << 40, 7], 1 << 40),
    "d": ("date", "date", [date(1960, 1, 1), date(2024, 2, 29), date(2030, 1, 1)], "2024-02-29"),
    "ts": (
        "timestamp",
        "timestamp_ntz",
        [datetime(1960, 1, 1), datetime(2024, 5, 6, 7, 8, 9, 10), datetime(2030, 1, 1)],  # noqa: DTZ001
        "2024-05-06T07:08:09.000010",
    ),
    "s": ("string", "string", ["", "zoë", "zz"], "zoë"),
    "b": ("binary", "binary", [b"", b"\x00\xff", b"zz"], "00ff"),
    "n": (
        "decimal(9, 2)",
        "decimal(9, 2)",
        [Decimal("-1.29"), Decimal("1.28"), Decimal(5)],
        "1.28",
    ),
    "u": (
        "uuid",
        "string",
        [str(UUID(int=number)) for number in (1, 1 << 127, 3)],
        str(UUID(int=1 << 127)),
    ),
    "f": ("fixed[3]", "binary", [b"\x00aa", b"abc", b"zzz"], "616263"),
    "t": ("boolean", "boolean", [False, True, False], True),
}


@pytest.fixture(scope="module")
def types(spark: SparkSession) -> IcebergTable:
    """A table with a column of each type and a struct: a file for each of four rows."""
    columns = [column(1, "id", "int", required=True)]
    columns += [column(2 + at, name, kind[0]) for at, (name, kind) in enumerate(KINDS.items())]
    columns.append(column(20, "st", STRUCT))
    table = table_of(spark, columns)
    shown = ", ".join(f"{name} {kind[1]}" for name, kind in KINDS.items())
    ddl = f"id int, {shown}, st struct<x: int, y: string>"
    for number in range(4):
        values = [None if number == 3 else kind[2][number] for kind in KINDS.values()]
        row = (number + 1, *values, None if number == 3 else (number, "y"))
        spark.createDataFrame([row], ddl).coalesce(1).writeTo(table.name).append()
    return table


def ids(table: IcebergTable, branch: str) -> list[int]:
    """The ids that are left, which delvec and stock Iceberg agree on, however they are read."""
    theirs, ours = found(stock(table, branch)), found(table.to_df(branch))
    assert ours == theirs
    # A condition, and columns without those of the key.
    some = found(stock(table, branch).where("id > 1").select("id"))
    assert found(table.to_df(branch, where="id > 1", columns=["id"])) == some
    assert found(table.to_df(branch).where("id > 1").select("id")) == some
    return sorted(row[0] for row in theirs)


# Files of deletes: rows, key columns, format; then the rows that are left.
CASES: dict[str, tuple[list[tuple[list[dict[str, Any]], list[str], str]], list[int]]] = {
    **{
        f"{name} {format_}": ([([{name: kind[3]}], [name], format_)], [1, 3, 4])
        for name, kind in KINDS.items()
        for format_ in ("parquet", "avro", "orc")
    },
    **{
        f"{name} null": ([([{name: None}, {name: kind[3]}], [name], "parquet")], [1, 3])
        for name, kind in KINDS.items()
    },
    "required": ([([{"id": 1}, {"id": 3}, {"id": 9}], ["id"], "parquet")], [2, 4]),
    "absent": ([([{"id": 77}], ["id"], "avro")], [1, 2, 3, 4]),
    "all": ([([{"id": number} for number in range(9)], ["id"], "orc")], []),
    "unsorted, repeated": ([([{"i": 7}, {"i": -5}, {"i": 7}], ["i"], "parquet")], [2, 4]),
    "several columns": (
        [
            (
                [{"i": -5, "s": ""}, {"i": 0, "s": "other"}, {"i": None, "s": None}],
                ["i", "s"],
                "avro",
            )
        ],
        [2, 3],
    ),
    "more columns than the key": (
        [
            (
                [{"id": 3, "s": "wrong", "i": 1000}, {"id": 1, "s": None, "i": None}],
                ["id"],
                "parquet",
            )
        ],
        [2, 4],
    ),
    "more columns than the key, avro": (
        [([{"s": "zz", "id": 1, "d": "1960-01-01"}], ["s"], "avro")],
        [1, 2, 4],
    ),
    "several key sets": (
        [
            ([{"i": 7}], ["i"], "parquet"),
            ([{"s": "zoë"}], ["s"], "orc"),
            ([{"d": None, "id": 4}], ["d", "id"], "avro"),
        ],
        [1],
    ),
    "several files of one key": (
        [
            ([{"l": 7}], ["l"], "parquet"),
            ([{"l": -5}], ["l"], "avro"),
            ([{"l": None}], ["l"], "orc"),
        ],
        [2],
    ),
}
FAST = ("u avro", "several key sets")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("case", slow_but(FAST, CASES))
def test_deletes_of_other_writers(types: IcebergTable, case: str) -> None:
    files, left = CASES[case]
    branch = f"b{list(CASES).index(case)}"
    types.create_branch(branch)
    for rows, keys, format_ in files:
        delete_by_java(types, rows, keys, file_format=format_, branch=branch)
    assert ids(types, branch) == left
    types.drop_branch(branch)


def test_a_field_of_a_struct(types: IcebergTable) -> None:
    """Stock Iceberg's reader for Spark fails, or deletes other rows: see `key_columns`."""
    types.create_branch("nested")
    delete_by_java(types, [{"st.x": 1}], ["st.x"], branch="nested")
    left = found(types.to_df("nested", columns=["id"]))
    types.drop_branch("nested")
    assert left == Counter([(1,), (3,), (4,)])


class TestEvolution:
    """Columns and specs that change after other writers deleted."""

    @pytest.fixture(
        params=[
            "parquet",
            *(pytest.param(each, marks=pytest.mark.slow) for each in ("avro", "orc")),
        ]
    )
    def table(self, spark: SparkSession, request: pytest.FixtureRequest) -> IcebergTable:
        """Keys 2 and null are deleted."""
        columns = [column(1, "a", "string"), column(2, "k", "int"), column(3, "p", "string")]
        table = table_of(spark, columns)
        spark.sql(f"INSERT INTO {table.name} VALUES ('x', 1, 'a'), ('y', 2, 'b'), ('z', NULL, 'a')")
        delete_by_java(table, [{"k": 2}, {"k": None}], ["k"], file_format=request.param)
        return table

    def both(self, table: IcebergTable) -> Counter[Any]:
        theirs = found(stock(table))
        assert found(table.to_df()) == theirs
        return theirs

    @pytest.mark.slow
    def test_columns(self, table: IcebergTable, spark: SparkSession) -> None:
        assert self.both(table) == Counter([("x", 1, "a")])
        spark.sql(f"ALTER TABLE {table.name} RENAME COLUMN k TO key")
        assert self.both(table) == Counter([("x", 1, "a")])
        spark.sql(f"ALTER TABLE {table.name} ALTER COLUMN key FIRST")
        spark.sql(f"INSERT INTO {table.name} VALUES (2, 'new', 'a')")
        assert self.both(table) == Counter([(1, "x", "a"), (2, "new", "a")])
        spark.sql(f"ALTER TABLE {table.name} DROP COLUMN key")
        assert self.both(table) == Counter([("x", "a"), ("new", "a")])

    @pytest.mark.slow
    def test_a_key_that_was_widened(self, table: IcebergTable, spark: SparkSession) -> None:
        spark.sql(f"ALTER TABLE {table.name} ALTER COLUMN k TYPE bigint")
        spark.sql(f"INSERT INTO {table.name} VALUES ('new', 2, 'a')")
        # Stock Iceberg must not have read it before: executors keep keys of 32 bits of Avro and ORC
        # files in memory, which equal none of 64 bits.
        assert self.both(table) == Counter([("x", 1, "a"), ("new", 2, "a")])

    @pytest.mark.slow
    def test_partitions(self, table: IcebergTable, spark: SparkSession) -> None:
        spark.sql(f"ALTER TABLE {table.name} ADD PARTITION FIELD p")
        rows = [("n", 5, "a"), ("n", 5, "b"), ("n", 6, "a")]
        spark.createDataFrame(rows, "a string, k int, p string").writeTo(table.name).append()
        delete_by_java(table, [{"k": 5}, {"k": 1}], ["k"], partition="p=a")
        # Not the row of the old spec, nor that of the other partition.
        assert self.both(table) == Counter([("x", 1, "a"), ("n", 5, "b"), ("n", 6, "a")])
        table.delete_keys([1, 6], "k")
        assert self.both(table) == Counter([("n", 5, "b")])


@pytest.mark.slow
def test_positions_of_version_2_vectors_and_keys(spark: SparkSession) -> None:
    columns = [column(1, "id", "long"), column(2, "n", "int")]
    table = table_of(spark, columns, {"format-version": "2"})
    spark.range(20).selectExpr("id", "CAST(id % 3 AS INT) AS n").coalesce(1).writeTo(
        table.name
    ).append()
    left = set(range(20))

    def check(*gone: int) -> None:
        left.difference_update(gone)
        expected = Counter((number, number % 3) for number in left)
        assert found(stock(table)) == found(table.to_df()) == expected

    spark.sql(f"DELETE FROM {table.name} WHERE id = 3")
    delete_by_java(table, [{"id": 4}, {"id": 5}], ["id"], file_format="avro")
    check(3, 4, 5)
    spark.sql(f"DELETE FROM {table.name} WHERE id = 6")
    table.delete_keys([7], "id")
    check(6, 7)
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version' = '3')")
    check()
    spark.sql(f"DELETE FROM {table.name} WHERE id = 8")
    check(8)
    delete_by_java(table, [{"id": 9, "n": 77}], ["id"], file_format="orc")
    table.delete_keys([2], "n")
    check(9, *range(2, 20, 3))
    again = delvec.IcebergTable.for_name(spark, table.name)
    assert found(again.to_df(where="n = 1 AND id > 9")) == Counter(
        (number, 1) for number in left if number > 9 and number % 3 == 1
    )


@pytest.mark.slow
def test_row_groups_and_files(spark: SparkSession) -> None:
    columns = [column(1, "id", "long"), column(2, "s", "string")]
    small = {
        "write.parquet.row-group-size-bytes": "4096",
        "write.parquet.row-group-check-min-record-count": "100",
        "write.parquet.row-group-check-max-record-count": "200",
        "read.split.target-size": "20000",
        "read.split.open-file-cost": "1",
    }
    table = table_of(spark, columns, small)
    frame = spark.range(0, 20_000, 1, 3).selectExpr("id", "uuid() AS s")
    frame.writeTo(table.name).append()
    gone = range(0, 20_000, 7)
    delete_by_java(table, [{"id": number} for number in gone[:50]], ["id"])
    table.delete_keys(gone[50:], "id")
    spark.sql(f"DELETE FROM {table.name} WHERE id BETWEEN 5000 AND 5100")
    expected = set(range(20_000)) - set(gone) - set(range(5000, 5101))
    for rows in (table.to_df(), stock(table)):
        assert sorted(rows.toArrow()["id"].to_pylist()) == sorted(expected)
    assert table.to_df(where="id >= 19000", columns=["s"]).count() == sum(
        number >= 19_000 for number in expected
    )
