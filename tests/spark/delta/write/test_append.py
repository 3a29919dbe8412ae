"""What new rows mean, appended or in place of others, with delta-spark as the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions
from pyspark.sql.types import StructType

from delvec import DeltaTable
from delvec.delta.schema.metadata import Metadata
from delvec.delta.write.targets import Partitions
from delvec.errors import (
    ConflictError,
    ConstraintError,
    DelvecError,
    InvalidArgumentError,
    UnsupportedFeatureError,
)
from tests.delta import log_files
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import READERS, read
from tests.spark.delta.write.judge import (
    FEED,
    KINDS,
    Meanwhile,
    New,
    bag,
    copy_of,
    folder,
    judged_write,
    lazily_made,
    made,
    rows_of,
)

pytestmark = pytest.mark.spark


def ids(table: DeltaTable) -> list[int]:
    return sorted(row.id for row in table.to_df().select("id").collect())


def texts(table: DeltaTable) -> list[str]:
    return sorted(map(repr, table.to_df().collect()))


@pytest.mark.slow
def test_columns_are_found_by_name(spark: SparkSession, tmp_path: Path, new: New) -> None:
    table = new("id long, s struct<a: int, b: string>, v int")
    rows = spark.sql("SELECT 7S V, named_struct('B', 'x', 'A', int(NULL)) S, 1 ID")
    report = table.append(rows, commit_metadata="first rows", txn_app_id="loader", txn_version=3)
    assert (report.version, report.rows_inserted) == (1, 1)
    assert texts(table) == ["Row(id=1, s=Row(a=None, b='x'), v=7)"]
    [entry] = table.history(1).collect()
    assert (entry.userMetadata, entry.operation) == ("first rows", "WRITE")
    again = table.append(rows, txn_app_id="loader", txn_version=3)
    assert again.version is None
    assert "already" in again.notes[0]
    before = folder(tmp_path / "t")
    assert table.append(spark.range(3), dry_run=True).rows_inserted == 3
    assert table.append(spark.range(0)).version is None
    for wrong in ("1 id, 2 other", "'x' v", "1 v, 2 V", "1L << 40 v", "named_struct('a', 1) s"):
        with pytest.raises(DelvecError):
            table.append(spark.sql(f"SELECT {wrong}"))
    assert folder(tmp_path / "t") == before
    wider = spark.sql("SELECT 2 id, named_struct('c', 1.5D, 'a', 3) s, 'y' other")
    assert table.append(wider, merge_schema=True).rows_inserted == 1
    assert texts(table) == [
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


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERWRITES)
def test_rows_replace_others(spark: SparkSession, tables: dict[str, Path], name: str) -> None:
    kind, where, rows = OVERWRITES[name]
    options = {"mode": "overwrite"} | ({} if where is None else {"replaceWhere": where})
    act: Callable[..., Any] = lambda table, df: table.overwrite(df, where)  # noqa: E731
    error = judged_write(spark, tables[kind], name, rows, act, **options).error
    if error is not None:
        assert isinstance(error, ConstraintError)
        assert error.constraint == "replace where"


@pytest.mark.slow
def test_a_table_is_overwritten_by_its_own_rows(
    spark: SparkSession, tmp_path: Path, new: New
) -> None:
    table = new("id long, p int", partition_by=["p"])
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
    for options, message in (
        ({}, "name"),
        ({"replace_schema": True, "merge_schema": True}, "choose one"),
        ({"where": "p = 1", "replace_schema": True}, "only where all rows are"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            table.overwrite(other, **options)
    assert folder(tmp_path / "t") == before
    table.overwrite(other, replace_schema=True)
    assert Counter(["Row(name='x', p=1)"]) == rows_of(spark, tmp_path / "t")
    assert bag(table.to_df(version=1)) == bag(spark.range(8).selectExpr("id", "int(id % 2) p"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "ours", "theirs"),
    [
        (
            "SELECT 9 k, 5 p, 'n' n WHERE false",
            {"where": "p = 5", "merge_schema": True},
            {"replaceWhere": "p = 5", "mergeSchema": "true"},
        ),
        (
            "SELECT 1 k, array(1) a, map('x', named_struct('y', 1)) m",
            {"replace_schema": True},
            {"overwriteSchema": "true"},
        ),
    ],
    ids=["columns are added where no row is replaced", "replaced columns are nullable"],
)
def test_an_overwrite_leaves_the_schema_of_delta_spark(
    spark: SparkSession, tmp_path: Path, rows: str, ours: dict[str, Any], theirs: dict[str, str]
) -> None:
    path = made(spark, tmp_path / "t", "k INT, p INT")
    act: Callable[..., Any] = lambda t, df: t.overwrite(df, **ours)  # noqa: E731
    done = judged_write(spark, path, "done", rows, act, mode="overwrite", **theirs)
    schemas = [
        spark_tables.as_delta_spark_reads(spark, each).schema
        for each in (done.path, tmp_path / "done-theirs")
    ]
    assert schemas[0] == schemas[1]
    assert schemas[0].names == spark.sql(rows).columns
    if "replace_schema" in ours:
        nulls = spark.sql("SELECT CAST(NULL AS INT) k, array(NULL) a, map('x', NULL) m")
        assert DeltaTable.for_path(spark, done.path).append(nulls).rows_inserted == 1


def test_tables_of_others_have_columns_without_a_type(
    spark: SparkSession, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new("k int")
    with monkeypatch.context() as patched:
        patched.setattr("delvec.delta.alter.columns.require_valid_schema", lambda _: None)
        patched.setattr("delvec.delta.schema.traversal.nullable", lambda kind: kind)
        query = "SELECT 1 k, array() a, array(NULL) n, named_struct('b', array()) s, map() m"
        table.append(spark.sql(query), merge_schema=True)
    found = table.to_arrow(columns=["a", "n", "s"]).to_pylist()
    assert found == [{"a": [], "n": [None], "s": {"b": []}}]
    with pytest.raises(UnsupportedFeatureError, match="keys of the type void"):
        table.to_arrow()


@pytest.mark.slow
def test_texts_of_a_length_are_kept(spark: SparkSession, tmp_path: Path, new: New) -> None:
    table = new("c char(3), v varchar(2), a array<varchar(2)>")
    table.append(spark.sql("SELECT 'ab' c, 'xy' v, array('zz') a"))
    theirs = spark.read.format("delta").load(str(tmp_path / "t"))
    assert theirs.collect() == table.to_df().collect() == [("ab ", "xy", ["zz"])]
    for wrong in ("'abcd', 'x', array('z')", "'a', 'xyz', array('z')", "'a', 'x', array('zzz')"):
        with pytest.raises(ConstraintError, match="is longer than"):
            table.append(spark.sql(f"SELECT * FROM VALUES ({wrong}) AS x(c, v, a)"))
    assert table.version == 1


# The partitions that new rows are in are replaced.
NULL = "__HIVE_DEFAULT_PARTITION__"
ROWS = (
    "VALUES (1, 'a', DATE'2024-01-01'), (2, 'a', DATE'2024-01-02'), (3, 'b', DATE'2024-01-01'),"
    " (4, NULL, NULL), (5, 'a', DATE'2024-01-01')"
)
FAST = "two partitions, one of them new"
SOURCES = {
    FAST: "SELECT 9 id, 'a' p, DATE'2024-01-01' d UNION ALL SELECT 10, 'c', NULL",
    "null": "SELECT 9 id, CAST(NULL AS STRING) p, CAST(NULL AS DATE) d",
    "strings that are null": "SELECT 9 id, '' p, CAST(NULL AS DATE) d UNION ALL"
    f" SELECT 10, '{NULL}', NULL",
    "no rows": "SELECT 9 id, 'a' p, DATE'2024-01-01' d WHERE FALSE",
}


@pytest.fixture(scope="module")
def parts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, columns = tmp_path_factory.mktemp("partitions") / "t", "id INT, p STRING, d DATE"
    rows = (f"INSERT INTO {{T}} {ROWS}", "DELETE FROM {T} WHERE id = 5 AND p = 'a'")
    return made(spark, path, columns, *rows, partitioned_by=["p", "d"], properties=FEED)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_delta_spark_replaces_the_same(spark: SparkSession, parts: Path, name: str) -> None:
    rows = spark.sql(SOURCES[name])
    plan = DeltaTable.for_path(spark, parts).overwrite(rows, partitions="dynamic", dry_run=True)
    done = judged_write(
        spark,
        parts,
        name,
        SOURCES[name],
        lambda t, rows: t.overwrite(rows, partitions="dynamic"),
        *("numOutputRows", "numFiles"),
        mode="overwrite",
        partitionOverwriteMode="dynamic",
    ).done
    for figure in ("rows_deleted", "rows_inserted", "files_removed"):
        assert getattr(plan, figure) == getattr(done, figure)
    if name == "no rows":
        assert done.version is None
    if name == FAST:
        info = log_files.commits(parts.parent / f"{name.replace(' ', '-')}-ours")[-1][0]
        told = info["commitInfo"]["operationParameters"]
        assert (told["mode"], told["isDynamicPartitionOverwrite"]) == ("Overwrite", "true")


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(("winner", "is_repeated"), [("b", False), ("a", True)])
def test_only_writers_of_the_same_partitions_conflict(
    spark: SparkSession, new: New, meanwhile: Meanwhile, winner: str, *, is_repeated: bool
) -> None:
    t = new("id int, p string", partition_by=["p"])
    t.append(spark.sql("SELECT 1 id, 'a' p UNION ALL SELECT 2, 'b'"))
    tried = meanwhile(lambda: t.append(spark.sql(f"SELECT 7 id, '{winner}' p")))
    t.overwrite(spark.sql("SELECT 9 id, 'a' p"), partitions="dynamic")
    assert len(tried) == 1 + is_repeated
    rows = {tuple(row) for row in t.to_df().collect()}
    assert rows == {(2, "b"), (9, "a")} | (set() if is_repeated else {(7, "b")})


@pytest.mark.slow
def test_an_overwrite_of_no_rows_still_depends_on_its_condition(
    spark: SparkSession, new: New, meanwhile: Meanwhile
) -> None:
    table = new("id long, day string", ["day"])
    mine, other = spark.sql("SELECT 1 id, 'a' day"), spark.sql("SELECT 2 id, 'a' day")
    meanwhile(lambda: table.append(other))
    report = table.overwrite(mine, where="day = 'a'")
    assert (report.attempts, report.rows_deleted) == (2, 1)
    assert ids(table) == [1]
    meanwhile(lambda: table.overwrite(other, where="day = 'b' or day = 'a'"))
    with pytest.raises(ConflictError, match="removed or rewrote files"):
        table.overwrite(mine, where="day = 'a'", max_retries=0)
    assert ids(table) == [2]


def test_what_cannot_be_asked_for_together(spark: SparkSession, parts: Path) -> None:
    t, rows = DeltaTable.for_path(spark, parts), spark.sql("SELECT 9 id, 'a' p")
    before = folder(parts)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"partitions": "dynamic", "where": "p = 'a'"}, "replace"),
        ({"partitions": "dynamic", "replace_schema": True}, "replace"),
        ({"partitions": "p"}, "partitions='p'"),
        ({"partitions": "dynamic"}, "lack the partition column d"),
    ]
    for options, message in refused:
        with pytest.raises(InvalidArgumentError, match=message):
            t.overwrite(rows, **options)
    assert folder(parts) == before


def test_a_table_without_partitions_is_replaced(spark: SparkSession, new: New) -> None:
    t = new("id int")
    t.append(spark.sql("SELECT 1 id"))
    t.overwrite(spark.sql("SELECT 2 id"), partitions="dynamic")
    assert ids(t) == [2]


@pytest.mark.slow
def test_a_widened_partition_that_delta_spark_keeps_goes(
    spark: SparkSession, tmp_path: Path
) -> None:
    insert, widening = "INSERT INTO {T} VALUES (1, 1), (2, 2)", {"delta.enableTypeWidening": "true"}
    columns, path = "id INT, p INT", tmp_path / "t"
    made(spark, path, columns, insert, partitioned_by=["p"], properties=widening)
    theirs, rows = copy_of(path, "theirs"), spark.sql("SELECT 9 id, 1.0D p")
    writer = rows.write.format("delta").mode("overwrite").option("mergeSchema", "true")
    writer.option("partitionOverwriteMode", "dynamic").save(str(theirs))
    table = DeltaTable.for_path(spark, path)
    table.overwrite(rows, partitions="dynamic", merge_schema=True)
    assert (ids(DeltaTable.for_path(spark, theirs)), ids(table)) == ([1, 2, 9], [2, 9])


def test_partitions_are_compared_by_their_values() -> None:
    schema = StructType().add("x", "double").add("z", "timestamp").json()
    metadata = Metadata.from_json({"schemaString": schema, "partitionColumns": ["x", "z"]})
    entries = [
        {"x": "NaN", "z": "2024-01-01 00:00:00"},
        {"x": "nan", "z": "2024-01-01T00:00:00.000000Z"},
        {"x": "0.0", "z": NULL},
        {"x": "-0.0", "z": ""},
    ]
    assert len(Partitions.of(metadata, "UTC", entries).values) == 3


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("reader", slow_but({"to_df"}, READERS))
def test_hives_name_for_null_in_the_log(spark: SparkSession, tmp_path: Path, reader: str) -> None:
    # delta-spark reads it as null but in columns of strings.
    path, one = tmp_path / "t", "INSERT INTO {T} VALUES (1, 'x', DATE'2024-01-01')"
    made(spark, path, "id INT, p STRING, d DATE", one, partitioned_by=["p", "d"])
    commit = path / "_delta_log" / f"{1:020}.json"
    text = commit.read_text().replace('"p":"x","d":"2024-01-01"', f'"p":"{NULL}","d":"{NULL}"')
    assert NULL in text
    for checksum in commit.parent.glob("*.crc"):
        checksum.unlink()
    commit.write_text(text)
    rows = read(reader, spark, path).to_pylist()
    assert rows == [{"id": 1, "p": NULL, "d": None}]
    assert [row.asDict() for row in spark.read.format("delta").load(str(path)).collect()] == rows
    t = DeltaTable.for_path(spark, path)
    assert t.to_df().where("d IS NULL").count() == 1
    t.update({"id": "2"})
    assert [tuple(row) for row in t.to_df().collect()] == [(2, None, None)]


def test_a_string_that_is_stored_as_null_is_a_null(spark: SparkSession, new: New) -> None:
    schema = StructType().add("id", "integer").add("p", "string", nullable=False)
    t = new(schema, partition_by=["p"])
    for text in ("", NULL):
        with pytest.raises(ConstraintError, match="stored as one"):
            t.append(spark.sql(f"SELECT 1 id, '{text}' p"))
    t.append(spark.sql("SELECT 1 id, 'a' p"))
    with pytest.raises(ConstraintError, match="stored as one"):
        t.update({"p": "''"})
