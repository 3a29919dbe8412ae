"""`format("delvec")` against delta-spark: same rows, whatever the options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import delvec
from delvec.delta.snapshot import open_snapshot
from delvec.spark.task_scan import by_tasks
from delvec.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DELTA_ROWS = "id", "name", "price", "seen", "tags", "day"


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of 100 rows; version 1 deletes on two of them, version 2 adds a clean file."""
    path = tmp_path_factory.mktemp("orders") / "a b%20ü"
    rows = spark.range(300).selectExpr(
        "id",
        "concat('n', id) name",
        "cast(id / 4 as decimal(8,2)) price",
        "timestamp'2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, cast(id as int)) seen",
        "array(struct(id as k, named_struct('m', map('x', id)) as v)) tags",
        "date_add(date'2026-01-01', cast(id div 100 as int)) day",
    )
    rows.repartition(1).write.format("delta").partitionBy("day").option(
        "delta.enableDeletionVectors", "true"
    ).save(str(path))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 3 AND day < '2026-01-03'")
    rows.where("id < 5").withColumn("id", rows.id + 1000).write.format("delta").mode("append").save(
        str(path)
    )
    return path


def read(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    return spark.read.format("delvec").options(**options).load(str(path))


def rows_of(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in df.collect())


def error_of(df: DataFrame) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ
        df.collect()
    return str(caught.value)


def test_the_rows_are_those_of_delta_spark(spark: SparkSession, orders: Path) -> None:
    theirs = spark.read.format("delta").load(str(orders))
    ours = read(spark, orders)
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    assert ours.columns == list(DELTA_ROWS)
    assert rows_of(ours) == rows_of(theirs)
    assert ours.count() == 285


def test_sql_needs_no_register_call(spark: SparkSession, orders: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING delvec OPTIONS (path '{orders}', VERSIONasof 1)"
    )
    count = "SELECT count(*) n, count(DISTINCT id) d FROM v WHERE day = '2026-01-01'"
    assert spark.sql(count).collect() == [(90, 90)]
    joined = spark.sql("SELECT a.id FROM v a JOIN v b ON a.id = b.id + 1 WHERE a.id < 5")
    assert rows_of(joined) == [(1,), (2,)]


def test_versions_times_and_columns(spark: SparkSession, orders: Path) -> None:
    assert read(spark, orders, versionAsOf="0").count() == 300
    history = {row.version: row.timestamp for row in read(spark, orders, view="history").collect()}
    assert sorted(history) == [0, 1, 2]
    moment = history[1].astimezone(timezone.utc).isoformat(" ", "microseconds")
    chosen = read(spark, orders, timestampAsOf=moment, columns="_pos, NAME,_file, day")
    assert chosen.columns == ["_pos", "name", "_file", "day"]
    found = {
        (row.day.day, row.name_): row for row in chosen.withColumnRenamed("name", "name_").collect()
    }
    assert len(found) == 280
    assert found[1, "n4"]._pos == 4
    assert found[3, "n203"]._pos == 3
    assert Path(found[1, "n4"]._file).is_file()
    assert "names no zone" in str(
        pytest.raises(PySparkException, read, spark, orders, timestampAsOf="2026-01-01").value
    )
    zoned = read(spark, orders, timestampAsOf=moment[:-6], timeZone="UTC")
    assert zoned.count() == 280
    own_schema = spark.read.schema("day date, ID long").format("delvec").load(str(orders))
    assert own_schema.columns == ["day", "ID"]
    assert own_schema.where("ID < 5").count() == 4
    wrong = spark.read.schema("id int").format("delvec").load(str(orders))
    assert "column id is of type bigint, not int" in error_of(wrong)


def test_a_dataframe_stays_at_its_version(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"id": [1, 2]}))
    df = read(spark, path)
    deltalake.write_deltalake(path, pa.table({"id": [3]}), mode="append")
    assert df.count() == 2
    assert df.where("id > 1").count() == 1
    assert read(spark, path).count() == 3


def test_filters_of_one_query_do_not_reach_another(spark: SparkSession, orders: Path) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    df = read(spark, orders)
    assert df.where("id < 10").count() == 9
    assert df.count() == 285
    few, more = df.where("id < 10").select("id"), df.where("id < 100").select("id")
    assert few.union(more).count() == 99


def test_the_option_filters_reads_only_files_that_can_match(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "t"
    subprocess.run(["cp", "-r", orders, copy], check=True)
    for file in copy.glob("day=2026-01-0[23]/*.parquet"):
        file.write_bytes(b"not to be read")
    for file in copy.glob("*.bin"):
        assert file.stat().st_size > 0
    first = read(spark, copy, filters='[["day", "=", "2026-01-01"]]', columns="id,price")
    assert first.count() == 95
    exact = '[["day", "<=", "2026-01-01"], ["price", ">=", 1.25], ["id", "in", [3, 4, 5, 6, 7]]]'
    assert rows_of(read(spark, copy, filters=exact, columns="id")) == [(5,), (6,), (7,)]
    either = '[[["id", "=", 4]], [["id", "=", 13]], [["name", "=", "n5"], ["id", "<", 1000]]]'
    assert rows_of(read(spark, copy, filters=either, columns="id")) == [(4,), (5,)]
    assert "not a readable Parquet file" in error_of(read(spark, copy))


def test_views_tell_what_the_log_says(spark: SparkSession, orders: Path) -> None:
    files = read(spark, orders, view="files").collect()
    assert sorted(row.deleted_rows for row in files) == [0, 0, 10, 10]
    vectored = next(row for row in files if row.deleted_rows)
    assert vectored.partition_values["day"] in ("2026-01-01", "2026-01-02")
    assert vectored.row_count == 100
    assert vectored.statistics["price"].null_count == 0
    low, high = (vectored.statistics["id"][name] for name in ("minimum", "maximum"))
    assert (low, high) in (("0", "99"), ("100", "199"))
    vectors = read(spark, orders, view="VECTORS").collect()
    assert {(row.path, row.cardinality) for row in vectors} == {
        (row.path, row.deleted_rows) for row in files if row.vector
    }
    assert all((orders / row.vector_file).is_file() and row.offset >= 1 for row in vectors)
    positions = read(spark, orders, view="positions", splitBytes="160")
    assert positions.rdd.getNumPartitions() == 2
    assert rows_of(positions.select("_pos")) == sorted((p,) for p in [*range(3, 100, 10)] * 2)
    assert positions.where("path like 'day=2026-01-01%'").count() == 10
    assert read(spark, orders, view="positions", versionAsOf="0").count() == 0
    history = read(spark, orders, view="history", columns="version,operation").collect()
    assert history == [(2, "WRITE"), (1, "DELETE"), (0, "WRITE")]


def test_small_files_go_together_and_large_ones_are_cut(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    assert read(spark, orders).rdd.getNumPartitions() <= os.cpu_count()  # type: ignore[operator]
    assert read(spark, orders, splitBytes="1g").rdd.getNumPartitions() == 1
    path = str(tmp_path / "large")
    spark.range(200_000).selectExpr("id", "uuid() text").repartition(1).sortWithinPartitions(
        "id"
    ).write.format("delta").option("delta.enableDeletionVectors", "true").option(
        "parquet.block.size", str(1 << 20)
    ).save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 1000 < 5 OR id >= 190000")
    [file] = open_snapshot(Storage.open(path)).files.data_files()
    assert file.descriptor is not None
    cut = read(spark, path, splitBytes="1500k", columns="id,_pos")
    assert cut.rdd.getNumPartitions() >= 3
    summed = "count(1)", "count(distinct id)", "sum(id)", "sum(abs(id - _pos))"
    expected = sum(i for i in range(190_000) if i % 1000 >= 5)
    assert cut.selectExpr(*summed).collect() == [(189_050, 189_050, expected, 0)]


def test_tasks_read_the_files_with_vectors_of_one_version(
    spark: SparkSession, orders: Path
) -> None:
    snapshot = open_snapshot(Storage.open(str(orders)), 1)
    df = by_tasks(spark, snapshot, ["_pos", "id", "day"])
    assert df.columns == ["_pos", "id", "day"]
    assert df.count() == 180
    theirs = spark.read.format("delta").option("versionAsOf", 1).load(str(orders))
    assert rows_of(df.select("id", "day")) == rows_of(
        theirs.where("day < '2026-01-03'").select("id", "day")
    )
    assert by_tasks(spark, open_snapshot(Storage.open(str(orders)), 0)).collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versionAsOf": "x"}, "versionAsOf is the number of a version"),
        ({"versionAsOf": "99"}, "99"),
        ({"view": "file"}, "did you mean 'files'?"),
        ({"colums": "id"}, "did you mean 'columns'?"),
        ({"columns": "idd"}, "idd"),
        ({"splitBytes": "0"}, "splitBytes is a size above 0"),
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01Z"}, "name one of them"),
        ({"view": "history", "versionAsOf": "1"}, "lists all versions"),
        ({"view": "files", "columns": "pat"}, "view=files has no column 'pat'"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, orders: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, orders, **options)
    assert message in str(caught.value)


def test_wrong_filters_and_paths_are_refused(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    assert "is not JSON" in error_of(read(spark, orders, filters="id = 1"))
    assert "malformed" in error_of(read(spark, orders, filters='{"id": 1}'))
    with pytest.raises(PySparkException, match="TableNotFoundError"):
        read(spark, tmp_path)
    with pytest.raises(PySparkException, match="one table at a time"):
        spark.read.format("delvec").load([str(orders), str(orders)])


def test_damage_is_told_and_no_row_comes_back(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "t"
    subprocess.run(["cp", "-r", orders, copy], check=True)
    [vectors] = copy.glob("*.bin")
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
    told = error_of(read(spark, copy))
    assert "ChecksumError" in told
    assert vectors.name in told
    vectors.unlink()
    told = error_of(read(spark, copy))
    assert "ObjectNotFoundError" in told
    assert "restore it from a copy" in told
    log = copy / "_delta_log"
    (log / f"{3:020}.json").write_text(
        json.dumps(
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["teleport"],
                    "writerFeatures": ["teleport"],
                }
            }
        )
    )
    with pytest.raises(PySparkException, match="teleport"):
        read(spark, copy)


def test_times_of_partitions_without_a_zone_are_not_guessed(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    moment = datetime(2026, 7, 1, 10, tzinfo=timezone.utc)
    deltalake.write_deltalake(str(path), pa.table({"at": [moment], "id": [1]}), partition_by=["at"])
    [commit] = (path / "_delta_log").glob("*.json")
    text = commit.read_text()
    [value] = {
        json.loads(line)["add"]["partitionValues"]["at"]
        for line in text.splitlines()
        if "add" in json.loads(line)
    }
    commit.write_text(text.replace(f'"at":"{value}"', '"at":"2026-07-01 10:00:00"'))
    assert "has values without a zone" in error_of(read(spark, path))
    assert read(spark, path, columns="id").count() == 1
    for zone, hour in (("UTC", 10), ("Europe/Berlin", 8)):
        found = read(spark, path, timeZone=zone).selectExpr("unix_timestamp(at) s").collect()
        assert found == [(int(moment.replace(hour=hour).timestamp()),)]


def test_streams_and_writes_are_refused(spark: SparkSession, orders: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("delvec").load(str(orders))
    with pytest.raises(PySparkException, match="cannot be streamed.*(?s:.*)changes") as caught:
        stream.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path)
        ).start().processAllAvailable()
    assert "UnsupportedFeatureError" in str(caught.value)
    with pytest.raises(PySparkException, match="reads only(?s:.*)DeltaTable.for_path"):
        spark.range(1).write.format("delvec").mode("append").save(str(tmp_path))


def test_a_plain_session_finds_it_and_needs_no_setting(orders: Path, tmp_path: Path) -> None:
    code = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
df = spark.read.format("delvec").load({str(orders)!r})
print(df.count(), df.where("id < 10").count(), df.count())
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
print(df.where("id < 10").count(), df.count())
"""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["285 9 285", "9 285"]


def test_registering_does_not_load_arrow() -> None:
    code = "import sys, pyspark_delvec; print('pyarrow' in sys.modules, 'obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
    assert delvec.__version__
