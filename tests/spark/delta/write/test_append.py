"""What new rows mean, appended or in place of others, with delta-spark as the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from delvec import DeltaTable
from delvec.delta.write.report import WriteReport
from delvec.errors import (
    ConstraintError,
    DelvecError,
    InvalidArgumentError,
    UnsupportedFeatureError,
)
from tests.delta import log_files
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import Lazily, bag, folder, judged, rows_of

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}
OFF = {"delta.enableDeletionVectors": "false"}


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


def test_a_value_that_does_not_fit_fails_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id int")
    before = folder(tmp_path / "t")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(DelvecError):
            table.append(spark.sql("SELECT 3000000000 id"))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert folder(tmp_path / "t") == before


TYPES = {
    "string": ("'a'", "''", "'é ü/%=:\\\\ \\'\"{}[]#?&+~\\n'", "'__HIVE_DEFAULT_PARTITION_'"),
    "int": ("1", "-2147483648"),
    "bigint": ("1", "9223372036854775807"),
    "smallint": ("1", "-1"),
    "tinyint": ("1", "127"),
    "float": ("1.5", "'NaN'"),
    "double": ("1e300", "'-Infinity'"),
    "boolean": ("true", "false"),
    "date": ("'2024-02-29'", "'0001-01-01'"),
    "timestamp": ("'2024-02-29 01:02:03.000456'", "'1969-12-31 23:59:59.999999'"),
    "timestamp_ntz": ("'2024-02-29 01:02:03'", "'1999-01-01 00:00:00.5'"),
    "decimal(20,3)": ("1.5", "-12345678901234567.891"),
    "binary": ("'ab'", "''"),
}


@pytest.mark.slow
def test_partition_values_are_written_as_delta_spark_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [f"p{place} {kind}" for place, kind in enumerate(TYPES)]
    rows = []
    for number in range(5):
        values = [
            f"CAST({given[number] if number < len(given) else 'NULL'} AS {kind}) p{place}"
            for place, (kind, given) in enumerate(TYPES.items())
        ]
        rows.append(f"SELECT {number} id, " + ", ".join(values))
    df = spark.sql(" UNION ALL ".join(rows)).repartition(1)
    parts = [f"p{place}" for place in range(len(TYPES))]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    spark_tables.create(spark, theirs, ", ".join(["id INT", *columns]), partitioned_by=parts)
    df.write.format("delta").mode("append").save(str(theirs))
    table = DeltaTable.create(spark, ours, ", ".join(["id int", *columns]), partition_by=parts)
    table.append(df)
    told = [
        sorted(repr(sorted(add["partitionValues"].items())) for add in log_files.live_adds(path))
        for path in (ours, theirs)
    ]
    assert told[0] == told[1]
    assert rows_of(spark, ours) == rows_of(spark, theirs)
    assert table.delete("p0 IS NULL").scans == 0


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    def make(kind: str) -> Path:
        path = tmp_path_factory.mktemp(kind) / "t"
        parts = ["p"] if kind == "parts" else []
        properties = FEED | OFF if kind == "copied" else FEED
        columns = "id BIGINT, p INT"
        spark_tables.create(spark, path, columns, partitioned_by=parts, properties=properties)
        spark_tables.sql(
            spark, path, "INSERT INTO {T} SELECT id, INT(id % 2) FROM range(0, 8, 1, 1)"
        )
        return path

    return Lazily(make)


Overwrite = tuple[str, str | None, str]
# The kind of table, the condition, the new rows.
OVERWRITES: dict[str, Overwrite] = {
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


def as_delta_spark_does(df: DataFrame, where: str | None) -> Callable[[Path], None]:
    writer = df.write.format("delta").mode("overwrite")
    writer = writer if where is None else writer.option("replaceWhere", where)
    return lambda path: writer.save(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(FAST, OVERWRITES))
def test_rows_come_in_place_of_others(
    spark: SparkSession, tables: dict[str, Path], name: str
) -> None:
    kind, where, rows = OVERWRITES[name]
    df = spark.sql(rows)

    def ours(table: DeltaTable) -> WriteReport:
        return table.overwrite(df, where)

    theirs = as_delta_spark_does(df, where)
    result = judged(spark, tables[kind], name.replace(" ", "-"), theirs, ours)
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
    rows = spark.sql("SELECT 9 k, 5 p, 'n' n WHERE false")

    def by_delta_spark(path: Path) -> None:
        writer = rows.write.format("delta").mode("overwrite").option("mergeSchema", "true")
        writer.option("replaceWhere", "p = 5").save(str(path))

    done = judged(
        spark,
        path,
        "added",
        by_delta_spark,
        lambda t: t.overwrite(rows, "p = 5", merge_schema=True),
    )
    for each in (done.path, tmp_path / "added-theirs"):
        assert DeltaTable.for_path(spark, each).schema.names == ("k", "p", "n")


@pytest.mark.slow
def test_a_replaced_schema_is_nullable_as_that_of_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark_tables.create(spark, path, "id INT")
    query = "SELECT 1 k, array(1) a, map('x', named_struct('y', 1)) m"

    def by_delta_spark(path: Path) -> None:
        writer = spark.sql(query).write.format("delta").mode("overwrite")
        writer.option("overwriteSchema", "true").save(str(path))

    done = judged(
        spark,
        path,
        "replaced",
        by_delta_spark,
        lambda t: t.overwrite(spark.sql(query), replace_schema=True),
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
