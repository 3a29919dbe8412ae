"""Keys of Spark DataFrames."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec.errors import DelvecError, InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.deletes.equality_files import Scope
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.deletes.write_keys import write_deletes
from delvec.spark.input.keys import KEY_MEMORY, KeyFrame, Keys, read_keys
from delvec.storage import Storage
from delvec.storage.uncommitted import UncommittedFiles
from tests.iceberg.deletes.foreign import column as field
from tests.iceberg.deletes.key_tables import column, entries
from tests.iceberg.deletes.test_equality_files import after_delete, created, left
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(3)]


def collected(df: DataFrame, kind: str = "long") -> list[Any]:
    with read_keys(df, [column(kind)], "t") as keys:
        assert isinstance(keys, Keys)
        found: list[Any] = keys.table.column(0).to_pylist()
        return found


@pytest.mark.parametrize(
    ("sql", "kind", "expected"),
    [
        ("VALUES 3, 1, 3, null AS t(k)", "long", [None, 1, 3]),
        ("VALUES 3L AS t(K)", "int", [3]),
        ("VALUES 3.0 AS t(k)", "int", [3]),
        ("VALUES null AS t(k)", "int", [None]),
        ("VALUES 3 AS t(k)", "decimal(9, 2)", [Decimal("3.00")]),
        ("VALUES DATE'2024-01-01' AS t(k)", "date", [date(2024, 1, 1)]),
        ("VALUES '00000000-0000-0000-0000-000000000005' AS t(k)", "uuid", [UUID(int=5).bytes]),
        ("VALUES X'6162' AS t(k)", "fixed[2]", [b"ab"]),
        ("SELECT 1 AS k WHERE false", "long", []),
    ],
)
def test_keys_are_cast_once(spark: SparkSession, sql: str, kind: str, expected: list[Any]) -> None:
    assert collected(spark.sql(f"SELECT * FROM ({sql})"), kind) == expected


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("VALUES 3000000000 AS t(k)", "int", "a key is not a value of column k, which is int"),
        ("VALUES 1.0D AS t(k)", "int", "column k is int, and the keys are double\nHint: cast them"),
        ("VALUES 1.0D AS t(k)", "decimal(9, 2)", "and the keys are double"),
        ("VALUES 1.5 AS t(k)", "long", "a key is not a value of column k"),
        ("VALUES 3 AS t(k)", "string", "column k is string, and the keys are int"),
        ("VALUES TIMESTAMP'2024-01-01 10:00:00' AS t(k)", "date", "and the keys are timestamp"),
        ("VALUES DATE'2024-01-01' AS t(k)", "timestamp", "and the keys are date"),
        ("VALUES TIMESTAMP_NTZ'2024-01-01' AS t(k)", "timestamptz", "the keys are timestamp_ntz"),
        ("VALUES float(3) AS t(k)", "long", "and the keys are float"),
        ("VALUES 1.234 AS t(k)", "decimal(9, 2)", "a key is not a value of column k"),
        ("VALUES X'61' AS t(k)", "fixed[2]", "a key is not a value of column k"),
        ("VALUES 'x' AS t(k)", "uuid", "'x' is not a value of column k"),
        ("VALUES true AS t(k)", "long", "column k is long, and the keys are boolean"),
        ("VALUES 1 AS t(j)", "long", "the keys have no column k"),
        ("VALUES (1, 2) AS t(k, K)", "long", "or more than one"),
    ],
)
def test_other_values_are_refused(spark: SparkSession, sql: str, kind: str, message: str) -> None:
    for ansi in ("true", "false"):
        with settings_of(spark, {"spark.sql.ansi.enabled": ansi}):
            with pytest.raises(DelvecError) as error:
                collected(spark.sql(f"SELECT * FROM ({sql})"), kind)
            assert message in str(error.value)


@pytest.mark.parametrize("kind", ["time", "timestamp_ns"])
def test_types_that_spark_does_not_have_are_refused(spark: SparkSession, kind: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="Spark has no type for column k"):
        collected(spark.sql("SELECT 1 AS k"), kind)


def test_the_driver_collects_up_to_a_limit(spark: SparkSession) -> None:
    numbers = spark.range(100).selectExpr("id AS k")
    texts = spark.sql("SELECT * FROM VALUES 'abc', null, 'defgh' AS t(k)")
    for frame, kind, size, count, nulls in (
        (numbers, "long", 800, 100, 0),
        (texts, "string", 32, 3, 1),
    ):
        for limit in (size, size - 1):
            memory = settings_of(spark, {KEY_MEMORY: f"{limit}b"})
            with memory, read_keys(frame, [column(kind)], "t") as keys:
                assert isinstance(keys, Keys) == (limit == size)
                assert (len(keys), keys.nulls) == (count, nulls)
    wrong = pytest.raises(InvalidArgumentError, match="not a size")
    with settings_of(spark, {KEY_MEMORY: "much"}), wrong:
        collected(numbers)


class TestExecutors:
    @pytest.mark.slow
    def test_they_write_what_stock_iceberg_reads(self, spark: SparkSession) -> None:
        fields = [
            field(1, "id", "int", required=True),
            field(5, "k", "long"),
            field(6, "s", "string"),
            field(7, "u", "uuid"),
        ]
        table = created(spark, fields)
        rows = spark.sql(
            "SELECT cast(id AS int) id, IF(id = 9, null, id * 10) k, concat('s', id) s,"
            " concat('00000000-0000-0000-0000-00000000000', id) u FROM range(10)"
        )
        rows.writeTo(str(table.name)).append()
        keys = rows.where("id % 3 = 0")
        with settings_of(spark, {KEY_MEMORY: "0b"}):
            for names in (["k"], ["id"], ["s"], ["u"], ["s", "k", "id"]):
                assert left(table, after_delete(table, names, keys)) == [1, 2, 4, 5, 7, 8]
            nulls = spark.sql("SELECT * FROM VALUES (1), (null) AS t(id)")
            assert left(table, after_delete(table, ["id"], nulls)) == [0, *range(2, 10)]

    def test_what_they_wrote_is_described_and_removed(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        table = created(spark, [field(1, "k", "long")])
        columns = key_columns(table.metadata.schema, ["k"], "t")
        frame = spark.range(-50, 50).selectExpr("id AS k")
        with settings_of(spark, {KEY_MEMORY: "1b"}), UncommittedFiles(Storage.open(tmp_path)) as u:
            done = write_deletes(frame, columns, table, Scope(0), staging=True, uncommitted=u)
            found = entries(done)
            paths = [Path(each["file-path"].removeprefix("file:")) for each in found]
            assert all(path.exists() for path in paths)
        assert not any(path.exists() for path in paths)
        assert sum(each["record-count"] for each in found) == done.keys == 100
        assert all(each["equality-ids"] == [1] for each in found)
        assert all(each["content"] == "equality-deletes" for each in found)
        assert all("lower-bounds" in each for each in found)
        assert done.vectors == 0
        assert "written by executors" in done.forms[0]

    def test_keys_of_type_fixed_are_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        table = created(spark, [field(7, "k", "fixed[1]")])
        frame = spark.sql("SELECT X'61' AS k")
        with settings_of(spark, {KEY_MEMORY: "0b"}), UncommittedFiles(Storage.open(tmp_path)) as u:
            with read_keys(frame, [column("fixed[1]")], "t") as keys:
                assert isinstance(keys, KeyFrame)
            with pytest.raises(UnsupportedFeatureError, match="would need a file each"):
                write_deletes(
                    frame, [column("fixed[1]")], table, Scope(0), staging=False, uncommitted=u
                )
