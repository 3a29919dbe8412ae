"""Overwriting the partitions that new rows are in, and strings that stand for null in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from delvec import DeltaTable
from delvec.delta.schema.metadata import Metadata
from delvec.delta.write.targets import Partitions
from delvec.errors import ConstraintError, InvalidArgumentError
from tests.delta import log_files
from tests.delta.write.write_checks import before_commit
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import READERS, read
from tests.spark.delta.write.judge import FEED, copy_of, folder, judged_write

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

NULL = "__HIVE_DEFAULT_PARTITION__"
ROWS = (
    "VALUES (1, 'a', DATE'2024-01-01'), (2, 'a', DATE'2024-01-02'), (3, 'b', DATE'2024-01-01'),"
    " (4, NULL, NULL), (5, 'a', DATE'2024-01-01')"
)
SOURCES = {
    "two partitions, one of them new": "SELECT 9 id, 'a' p, DATE'2024-01-01' d"
    " UNION ALL SELECT 10, 'c', NULL",
    "null": "SELECT 9 id, CAST(NULL AS STRING) p, CAST(NULL AS DATE) d",
    "strings that are null": f"SELECT 9 id, '' p, CAST(NULL AS DATE) d UNION ALL"
    f" SELECT 10, '{NULL}', NULL",
    "no rows": "SELECT 9 id, 'a' p, DATE'2024-01-01' d WHERE FALSE",
}
FAST = "two partitions, one of them new"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("partitions") / "t"
    columns = "id INT, p STRING, d DATE"
    spark_tables.create(spark, path, columns, partitioned_by=["p", "d"], properties=FEED)
    spark_tables.sql(
        spark, path, f"INSERT INTO {{T}} {ROWS}", "DELETE FROM {T} WHERE id = 5 AND p = 'a'"
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_delta_spark_replaces_the_same(spark: SparkSession, table: Path, name: str) -> None:
    rows = spark.sql(SOURCES[name])
    plan = DeltaTable.for_path(spark, table).overwrite(rows, partitions="dynamic", dry_run=True)
    done = judged_write(
        spark,
        table,
        name,
        SOURCES[name],
        lambda t, rows: t.overwrite(rows, partitions="dynamic"),
        "numOutputRows",
        "numFiles",
        mode="overwrite",
        partitionOverwriteMode="dynamic",
    ).done
    assert (plan.rows_deleted, plan.rows_inserted) == (done.rows_deleted, done.rows_inserted)
    assert plan.files_removed == done.files_removed
    if name == "no rows":
        assert done.version is None
    if name == FAST:
        info = log_files.commits(table.parent / f"{name.replace(' ', '-')}-ours")[-1][0]
        told = info["commitInfo"]["operationParameters"]
        assert (told["mode"], told["isDynamicPartitionOverwrite"]) == ("Overwrite", "true")


@pytest.mark.parametrize(
    ("winner", "is_repeated"), [("SELECT 7 id, 'b' p", False), ("SELECT 7 id, 'a' p", True)]
)
def test_only_writers_of_the_same_partitions_conflict(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    winner: str,
    *,
    is_repeated: bool,
) -> None:
    t = DeltaTable.create(spark, tmp_path / "t", "id int, p string", partition_by=["p"])
    t.append(spark.sql("SELECT 1 id, 'a' p UNION ALL SELECT 2, 'b'"))
    other = DeltaTable.for_path(spark, tmp_path / "t")
    tried = before_commit(monkeypatch, lambda: other.append(spark.sql(winner)))
    t.overwrite(spark.sql("SELECT 9 id, 'a' p"), partitions="dynamic")
    assert len(tried) == 1 + is_repeated
    rows = {tuple(row) for row in t.to_df().collect()}
    assert rows == {(2, "b"), (9, "a")} | (set() if is_repeated else {(7, "b")})


def test_what_cannot_be_asked_for_together(spark: SparkSession, table: Path) -> None:
    t, rows = DeltaTable.for_path(spark, table), spark.sql("SELECT 9 id, 'a' p")
    before = folder(table)
    for options in ({"where": "p = 'a'"}, {"replace_schema": True}):
        with pytest.raises(InvalidArgumentError, match="replace"):
            t.overwrite(rows, partitions="dynamic", **options)
    with pytest.raises(InvalidArgumentError, match="partitions='p'"):
        t.overwrite(rows, partitions="p")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="lack the partition column d"):
        t.overwrite(rows, partitions="dynamic")
    assert folder(table) == before


def test_a_table_without_partitions_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    t = DeltaTable.create(spark, tmp_path / "t", "id int")
    t.append(spark.sql("SELECT 1 id"))
    t.overwrite(spark.sql("SELECT 2 id"), partitions="dynamic")
    assert [row.id for row in t.to_df().collect()] == [2]


@pytest.mark.slow
def test_a_widened_partition_is_replaced_where_delta_spark_keeps_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    properties = {"delta.enableTypeWidening": "true"}
    spark_tables.create(spark, path, "k INT, p INT", partitioned_by=["p"], properties=properties)
    spark_tables.sql(spark, path, "INSERT INTO {T} VALUES (1, 1), (2, 2)")
    theirs, rows = copy_of(path, "theirs"), spark.sql("SELECT 9 k, 1.0D p")
    writer = rows.write.format("delta").mode("overwrite").option("mergeSchema", "true")
    writer.option("partitionOverwriteMode", "dynamic").save(str(theirs))
    table = DeltaTable.for_path(spark, path)
    table.overwrite(rows, partitions="dynamic", merge_schema=True)
    found = [
        sorted(row.k for row in DeltaTable.for_path(spark, each).to_df().collect())
        for each in (theirs, path)
    ]
    assert found == [[1, 2, 9], [2, 9]]


def test_partitions_are_compared_by_their_values() -> None:
    schema = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("x", "double"), ("z", "timestamp"))
    ]
    metadata = Metadata.from_json(
        {
            "schemaString": json.dumps({"type": "struct", "fields": schema}),
            "partitionColumns": ["x", "z"],
        }
    )
    entries = [
        {"x": "NaN", "z": "2024-01-01 00:00:00"},
        {"x": "nan", "z": "2024-01-01T00:00:00.000000Z"},
        {"x": "0.0", "z": NULL},
        {"x": "-0.0", "z": ""},
    ]
    assert len(Partitions.of(metadata, "UTC", entries).values) == 3


@pytest.mark.parametrize("reader", slow_but({"to_df"}, READERS))
def test_hives_name_for_null_in_the_log(spark: SparkSession, tmp_path: Path, reader: str) -> None:
    # delta-spark reads it as null but in columns of strings.
    path = tmp_path / "t"
    spark_tables.create(spark, path, "id INT, p STRING, d DATE", partitioned_by=["p", "d"])
    spark_tables.sql(spark, path, "INSERT INTO {T} VALUES (1, 'x', DATE'2024-01-01')")
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


def test_a_string_that_is_stored_as_null_is_null_for_the_rules(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = StructType().add("id", "integer").add("p", "string", nullable=False)
    t = DeltaTable.create(spark, tmp_path / "t", schema, partition_by=["p"])
    for text in ("", NULL):
        with pytest.raises(ConstraintError, match="stored as one"):
            t.append(spark.sql(f"SELECT 1 id, '{text}' p"))
    t.append(spark.sql("SELECT 1 id, 'a' p"))
    with pytest.raises(ConstraintError, match="stored as one"):
        t.update({"p": "''"})
