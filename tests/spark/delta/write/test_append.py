"""What new rows mean, appended or in place of others, with delta-spark as the judge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable
from delvec.errors import (
    ConstraintError,
    DelvecError,
    InvalidArgumentError,
    UnsupportedFeatureError,
)
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import KINDS, bag, folder, judged_write, lazily_made, rows_of

pytestmark = pytest.mark.spark


def ids(table: DeltaTable) -> list[int]:
    return sorted(row.id for row in table.to_df().select("id").collect())


@pytest.mark.slow
def test_columns_are_found_by_name(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, s struct<a: int, b: string>, v int")
    rows = spark.sql("SELECT 7S V, named_struct('B', 'x', 'A', int(NULL)) S, 1 ID")
    report = table.append(rows, commit_metadata="first rows", txn_app_id="loader", txn_version=3)
    assert (report.version, report.rows_inserted) == (1, 1)
    assert list(map(repr, table.to_df().collect())) == ["Row(id=1, s=Row(a=None, b='x'), v=7)"]
    [entry] = table.history(1).collect()
    assert (entry.userMetadata, entry.operation) == ("first rows", "WRITE")
    again = table.append(rows, txn_app_id="loader", txn_version=3)
    assert again.version is None
    assert "already" in again.notes[0]
    before = folder(tmp_path / "t")
    assert table.append(spark.range(3), dry_run=True).rows_inserted == 3
    assert table.append(spark.range(0)).version is None
    for wrong in (
        "SELECT 1 id, 2 other",
        "SELECT 'x' v",
        "SELECT 1 v, 2 V",
        "SELECT 1L << 40 v",
        "SELECT named_struct('a', 1) s",
    ):
        with pytest.raises(DelvecError):
            table.append(spark.sql(wrong))
    assert folder(tmp_path / "t") == before
    wider = spark.sql("SELECT 2 id, named_struct('c', 1.5D, 'a', 3) s, 'y' other")
    assert table.append(wider, merge_schema=True).rows_inserted == 1
    assert sorted(map(repr, table.to_df().collect())) == [
        "Row(id=1, s=Row(a=None, b='x', c=None), v=7, other=None)",
        "Row(id=2, s=Row(a=3, b=None, c=1.5), v=None, other='y')",
    ]
    assert sum(rows_of(spark, tmp_path / "t").values()) == 2


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rows = "INSERT INTO {T} SELECT id, INT(id % 2) FROM range(0, 8, 1, 1)"
    return lazily_made(spark, tmp_path_factory, KINDS, "id BIGINT, p INT", rows)


# The kind of table, the condition, the new rows.
OVERWRITES: dict[str, tuple[str, str | None, str]] = {
    "a partition": ("parts", "p = 1", "SELECT id + 100 id, 1 p FROM range(3)"),
    "rows": ("feed", "id > 4", "SELECT id + 50 id, 9 p FROM range(2)"),
    "rows, copied": ("copied", "id > 4 AND p = 0", "SELECT 10L id, 0 p"),
    "a row outside": ("feed", "id > 4", "SELECT id + 4 id, 1 p FROM range(2)"),
    "a row for which it is null": ("feed", "p = 1", "SELECT 1L id, INT(NULL) p"),
    "rows by nothing": ("parts", "p = 0", "SELECT 1L id, 0 p FROM range(0)"),
    "all": ("feed", None, "SELECT 1L id, 2 p"),
    "all by nothing": ("copied", None, "SELECT 1L id, 2 p FROM range(0)"),
}
FAST = {"a partition", "rows, copied", "a row outside"}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(FAST, OVERWRITES))
def test_rows_come_in_place_of_others(
    spark: SparkSession, tables: dict[str, Path], name: str
) -> None:
    kind, where, rows = OVERWRITES[name]
    options = {} if where is None else {"replaceWhere": where}
    result = judged_write(
        spark,
        tables[kind],
        name,
        rows,
        lambda table, df: table.overwrite(df, where),
        mode="overwrite",
        **options,
    )
    if result.error is not None:
        assert isinstance(result.error, ConstraintError)
        assert result.error.constraint == "replace where"


@pytest.mark.slow
def test_a_table_is_overwritten_by_itself_and_gets_another_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, p int", partition_by=["p"])
    table.append(spark.range(8).selectExpr("id", "int(id % 2) p"))
    report = table.overwrite(table.to_df().where("id > 2"))
    assert (report.rows_inserted, report.rows_deleted) == (5, 8)
    assert ids(table) == [3, 4, 5, 6, 7]
    own = table.to_df().where("p = 1").withColumn("id", functions.expr("id * 10"))
    assert table.overwrite(own, where=functions.col("p") == 1).rows_deleted == 3
    assert ids(table) == [4, 6, 30, 50, 70]
    before = folder(tmp_path / "t")
    dry = table.overwrite(spark.sql("SELECT 4L id, 0 p"), where="id = 4", dry_run=True)
    assert (dry.version, dry.rows_deleted, dry.rows_inserted) == (None, 1, 1)
    other = spark.sql("SELECT 'x' name, 1 p")
    with pytest.raises(InvalidArgumentError, match="name"):
        table.overwrite(other)
    with pytest.raises(InvalidArgumentError, match="choose one"):
        table.overwrite(other, replace_schema=True, merge_schema=True)
    with pytest.raises(InvalidArgumentError):
        table.overwrite(other, "p = 1", replace_schema=True)
    assert folder(tmp_path / "t") == before
    table.overwrite(other, replace_schema=True)
    assert Counter(["Row(name='x', p=1)"]) == rows_of(spark, tmp_path / "t")
    assert bag(table.to_df(version=1)) == bag(spark.range(8).selectExpr("id", "int(id % 2) p"))


@pytest.mark.slow
def test_columns_are_added_where_no_row_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark_tables.create(spark, path, "k INT, p INT")
    done = judged_write(
        spark,
        path,
        "added",
        "SELECT 9 k, 5 p, 'n' n WHERE false",
        lambda t, rows: t.overwrite(rows, "p = 5", merge_schema=True),
        mode="overwrite",
        mergeSchema="true",
        replaceWhere="p = 5",
    )
    for each in (done.path, tmp_path / "added-theirs"):
        assert DeltaTable.for_path(spark, each).schema.names == ("k", "p", "n")


@pytest.mark.slow
def test_a_replaced_schema_is_nullable_as_that_of_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark_tables.create(spark, path, "id INT")
    done = judged_write(
        spark,
        path,
        "replaced",
        "SELECT 1 k, array(1) a, map('x', named_struct('y', 1)) m",
        lambda t, rows: t.overwrite(rows, replace_schema=True),
        mode="overwrite",
        overwriteSchema="true",
    )
    ours, theirs = (
        spark_tables.as_delta_spark_reads(spark, each).schema
        for each in (done.path, tmp_path / "replaced-theirs")
    )
    assert ours == theirs
    nulls = "SELECT CAST(NULL AS INT) k, array(NULL) a, map('x', NULL) m"
    assert DeltaTable.for_path(spark, done.path).append(spark.sql(nulls)).rows_inserted == 1


def test_tables_of_others_have_columns_without_a_type(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "k int")
    with monkeypatch.context() as patched:
        patched.setattr("delvec.delta.alter.columns.require_valid_schema", lambda _: None)
        patched.setattr("delvec.delta.schema.traversal.nullable", lambda kind: kind)
        query = "SELECT 1 k, array() a, array(NULL) n, named_struct('b', array()) s, map() m"
        table.append(spark.sql(query), merge_schema=True)
    assert table.to_arrow(columns=["a", "n", "s"]).to_pylist() == [
        {"a": [], "n": [None], "s": {"b": []}}
    ]
    with pytest.raises(UnsupportedFeatureError, match="keys of the type void"):
        table.to_arrow()


@pytest.mark.slow
def test_texts_of_a_length_are_declared_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = "c char(3), v varchar(2), a array<varchar(2)>"
    table = DeltaTable.create(spark, path, columns)
    table.append(spark.sql("SELECT 'ab' c, 'xy' v, array('zz') a"))
    theirs = spark.read.format("delta").load(str(path))
    assert theirs.collect() == table.to_df().collect() == [("ab ", "xy", ["zz"])]
    for wrong in ("'abcd', 'x', array('z')", "'a', 'xyz', array('z')", "'a', 'x', array('zzz')"):
        with pytest.raises(ConstraintError, match="is longer than"):
            table.append(spark.sql(f"SELECT * FROM VALUES ({wrong}) AS x(c, v, a)"))
    assert table.version == 1
