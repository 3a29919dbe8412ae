"""DuckDB, polars and pandas read tables with vectors as Arrow streams: delta-spark is the judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable, IcebergTable
from tests.spark.delta import spark_tables

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

Rows = set[tuple[Any, ...]]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Rows of several types in partitions, with vectors of delta-spark and of delvec."""
    path = tmp_path_factory.mktemp("streams") / "t"
    columns = "id BIGINT, v STRING, x DOUBLE, d DATE, n DECIMAL(10, 2), a ARRAY<INT>, p INT"
    spark_tables.create(spark, path, columns, partitioned_by=["p"])
    rows = (
        "SELECT id, IF(id % 5 = 0, NULL, concat('v', id)), id / 4, date_add(DATE'2026-01-01',"
        " INT(id)), CAST(id AS DECIMAL(10, 2)) / 4, array(INT(id), NULL), INT(id % 3)"
    )
    spark_tables.sql(
        spark, path, f"INSERT INTO {{T}} {rows} FROM range(200)", "DELETE FROM {T} WHERE id % 7 = 0"
    )
    made = DeltaTable.for_path(spark, path)
    made.delete(keys=range(50, 80), on="id")
    assert made.detail().files_with_vectors > 0
    return made


def by_duckdb(t: DeltaTable | IcebergTable) -> Rows:
    duckdb = pytest.importorskip("duckdb")
    assert t is not None  # DuckDB finds the variable by its name
    return {(*row[:-1], tuple(row[-1])) for row in duckdb.sql(QUERY).fetchall()}


def by_polars(t: DeltaTable | IcebergTable) -> Rows:
    frame = pytest.importorskip("polars").DataFrame(t).select("id", "v", "x", "d", "n", "p", "a")
    return {(*row[:-1], tuple(row[-1])) for row in frame.rows()}


def by_pyarrow(t: DeltaTable | IcebergTable) -> Rows:
    rows = pa.table(t).select(["id", "v", "x", "d", "n", "p", "a"]).to_pylist()
    return {(*list(row.values())[:-1], tuple(row["a"])) for row in rows}


QUERY = "SELECT id, v, x, d, n, p, a FROM t"
READERS: dict[str, Callable[[DeltaTable | IcebergTable], Rows]] = {
    "DuckDB": by_duckdb,
    "polars": by_polars,
    "pyarrow": by_pyarrow,
}


@pytest.mark.parametrize("name", READERS)
def test_others_read_rows_of_delta_spark(spark: SparkSession, table: DeltaTable, name: str) -> None:
    judge = spark_tables.as_delta_spark_reads(spark, table.storage.root)  # type: ignore[arg-type]
    judge.createOrReplaceTempView("judge")
    rows = spark_tables.collected(spark.sql(QUERY.replace("FROM t", "FROM judge")))
    expected = {(*tuple(row)[:-1], tuple(row.a)) for row in rows}
    assert len(expected) == 145
    for opened in (table, DeltaTable.for_path(None, table.storage.root)):
        assert READERS[name](opened) == expected


def test_a_filter_in_duckdb_reads_the_same_rows(table: DeltaTable) -> None:
    duckdb = pytest.importorskip("duckdb")
    t = table.to_batches([("p", "=", 1)], ["id", "p"])
    assert t.schema.names == ["id", "p"]
    [(count, least)] = duckdb.sql("SELECT count(*), min(id) FROM t WHERE id > 30").fetchall()
    assert (count, least) == (table.count("p = 1 AND id > 30"), 31)


def test_a_frame_of_polars_has_the_rows_of_a_condition_and_a_version(table: DeltaTable) -> None:
    pytest.importorskip("polars")
    assert table.to_polars(columns=["id"], version=1).shape == (200, 1)
    frame = table.to_polars([("id", "<", 3)])
    assert sorted(frame["id"].to_list()) == [1, 2]


def test_the_stream_of_a_table_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    from tests.delta.builder import small_table  # noqa: PLC0415

    builder, [first, second] = small_table(tmp_path)
    reader = pa.RecordBatchReader.from_stream(DeltaTable(tmp_path))
    (builder.root / first["path"]).unlink()
    (builder.root / second["path"]).unlink()
    with pytest.raises(OSError, match=r"part-\d"):
        reader.read_all()


@pytest.mark.more
def test_others_read_an_iceberg_table_through_its_deletes(spark: SparkSession) -> None:
    target = "lake.streams.t"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.streams")
    spark.sql(f"DROP TABLE IF EXISTS {target}")
    spark.sql(
        f"CREATE TABLE {target} (id BIGINT, v STRING, x DOUBLE, d DATE, n DECIMAL(10, 2), p INT,"
        " a ARRAY<INT>) USING iceberg TBLPROPERTIES ('format-version' = '3')"
    )
    table = IcebergTable.for_name(spark, target)
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", None], "a": [[1], [2], [3]]})
    for name in ("x", "d", "n", "p"):
        rows = rows.append_column(name, pa.nulls(3))
    table.append(rows)
    table.delete_keys(rows.slice(1, 1), "id")
    expected = {(1, "a", *[None] * 4, (1,)), (3, None, *[None] * 4, (3,))}
    assert [reader(table) for reader in READERS.values()] == [expected] * len(READERS)
    assert sorted(table.to_pandas(columns=["id"])["id"]) == [1, 3]
