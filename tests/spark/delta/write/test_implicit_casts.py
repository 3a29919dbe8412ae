"""Values of another type than their column: what UPDATE, MERGE and WRITE make of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delvec.delta.schema.types import PrimitiveType
from delvec.errors import InvalidArgumentError
from delvec.spark.delta.write.conform_rows import Conversion
from delvec.spark.failures import translate_errors
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import Judged, judged, judged_merge

pytestmark = [pytest.mark.spark, pytest.mark.more]

# Each column's type, what is stored in it, and what is refused.
CASES = {
    "i": ("INT", "' 5 '", "'x'"),
    "d": ("DATE", "'2024-02-29'", "'2024-02-30'"),
    "z": ("TIMESTAMP", "'2024-02-29 01:02:03.5'", "'no'"),
    "n": ("TIMESTAMP_NTZ", "'2024-02-29'", "''"),
    "c": ("DECIMAL(5, 2)", "'1.255'", "'12345.6'"),
    "b": ("BOOLEAN", "'yes'", "'maybe'"),
    "f": ("DOUBLE", "'1e3'", "'1,5'"),
    "y": ("TINYINT", "TRUE", "'300'"),
    "g": ("BIGINT", "TIMESTAMP'2024-01-01 00:00:00'", "'9999999999999999999'"),
    "x": ("BINARY", "'ab'", "5"),
    "t": ("TIMESTAMP", "5", "array(1)"),
    "q": ("BOOLEAN", "2", "DATE'2024-01-01'"),
    "w": ("STRING", "DATE'2024-01-01'", "INTERVAL '1' YEAR"),
    "v": ("STRING", "array(1, NULL)", "INTERVAL '1' YEAR"),
    "s": (
        "STRUCT<a: INT, d: DATE>",
        "named_struct('d', '2024-02-29', 'a', '1')",
        "named_struct('d', 'no', 'a', '1')",
    ),
    "l": ("ARRAY<INT>", "array('1', NULL)", "array('1', '1.5')"),
    "m": ("MAP<INT, DATE>", "map('7', '2024-02-29')", "map('seven', '2024-02-29')"),
}
REFUSED = {name: bad for name, (kind, _, bad) in CASES.items() if kind != "STRING"}
SOURCE = "SELECT 2 AS id, {} UNION ALL SELECT 3, {}"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("casts") / "t"
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in CASES.items())
    spark_tables.create(spark, path, f"id INT, {columns}")
    nulls = ", ".join("NULL" for _ in CASES)
    spark_tables.sql(spark, path, f"INSERT INTO {{T}} VALUES (1, {nulls}), (2, {nulls})")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_an_update_casts_as_delta_spark_does(spark: SparkSession, table: Path, ansi: str) -> None:
    values = {name: good for name, (_, good, _) in CASES.items()}
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    with settings_of(spark, {"spark.sql.ansi.enabled": ansi}):
        done = judged(
            spark,
            table,
            f"update-{ansi}",
            f"UPDATE {{T}} SET {listed} WHERE id = 1",
            lambda t: t.update(values, "id = 1"),
        )
    assert done.done.rows_updated == 1


@pytest.mark.slow
def test_a_merge_casts_as_delta_spark_does(spark: SparkSession, table: Path) -> None:
    values = ", ".join(f"{good} AS {name}" for name, (_, good, _) in CASES.items())
    query = SOURCE.format(values, ", ".join(good for _, good, _ in CASES.values()))
    done = judged_merge(spark, table, "merge", query)
    assert (done.done.rows_updated, done.done.rows_inserted) == (1, 1)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_value_that_does_not_fit_is_named_with_its_column(spark: SparkSession, ansi: str) -> None:
    conversion = Conversion(spark)
    with settings_of(spark, {"spark.sql.ansi.enabled": ansi}):
        for kind in ("integer", "date", "timestamp", "timestamp_ntz", "boolean", "decimal(5,2)"):
            rows = spark.sql("SELECT 'bad' AS v")
            value = conversion.value(
                rows["v"], rows.schema["v"].dataType, PrimitiveType(kind), "s.v"
            )
            with pytest.raises(InvalidArgumentError, match=r"s\.v = bad"), translate_errors("t"):
                rows.select(value).collect()


def appended(spark: SparkSession, table: Path, word: str, query: str) -> Judged:
    """Append the rows of a query by both engines."""
    return judged(
        spark,
        table,
        word,
        lambda path: spark.sql(query).writeTo(f"delta.`{path}`").append(),
        lambda t: t.append(spark.sql(query)),
    )


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_an_append_casts_as_delta_spark_does(spark: SparkSession, table: Path, ansi: str) -> None:
    values = ", ".join(f"{good} AS {name}" for name, (_, good, _) in CASES.items())
    with settings_of(spark, {"spark.sql.ansi.enabled": ansi}):
        done = appended(spark, table, f"append-{ansi}", f"SELECT 4 AS id, {values}")
    assert done.done.rows_inserted == 1


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", slow_but({"i", "s"}, REFUSED))
def test_delta_spark_refuses_the_same(spark: SparkSession, table: Path, name: str) -> None:
    bad = REFUSED[name]
    query = f"SELECT 4 AS id, {bad} AS {name}"
    assert name in str(appended(spark, table, f"append-{name}", query).error)
    statement = f"UPDATE {{T}} SET {name} = {bad} WHERE id = 1"
    done = judged(spark, table, f"set-{name}", statement, lambda t: t.update({name: bad}, "id = 1"))
    assert name in str(done.error)
