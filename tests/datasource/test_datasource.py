"""`format("delvec")` against delta-spark: same rows, whatever the options."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec.datasource import DelvecDataSource
from delvec.datasource.options import parse_json_filters, parse_options
from delvec.datasource.reader import OPEN_COST, plan_splits
from delvec.delta.log.file_set import DataFile
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.spark.delta.scan.vectors import ScanPart, scan_in_tasks
from delvec.storage import Storage
from tests.datasource.in_process import forget_zone, pickled, write_each
from tests.delta.builder import TableBuilder
from tests.repository import ROOT
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(2)]


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of 100 rows; version 1 deletes on two of them, version 2 adds a clean file."""
    lake = Lake(spark, tmp_path_factory.mktemp("orders") / "a b%20ü")
    rows = spark.range(300).selectExpr(
        "id",
        "concat('n', id) name",
        "cast(id / 4 as decimal(8,2)) price",
        "timestamp'2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, cast(id as int)) seen",
        "array(struct(id as k, named_struct('m', map('x', id)) as v)) tags",
        "date_add(date'2026-01-01', cast(id div 100 as int)) day",
    )
    writer = rows.repartition(1).write.format("delta").partitionBy("day")
    writer.option("delta.enableDeletionVectors", "true").save(str(lake.path))
    lake.sql("DELETE FROM {T} WHERE id % 10 = 3 AND day < '2026-01-03'")
    more = rows.where("id < 5").withColumn("id", rows.id + 1000)
    more.write.format("delta").mode("append").save(str(lake.path))
    return lake.path


def read(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    return spark.read.format("delvec").options(**options).load(str(path))


def rows_of(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in df.collect())


def parts(path: Path | str, **options: str) -> list[pa.Table]:
    """Read as Spark does, one table for each task, but in this process."""
    source = DelvecDataSource({"path": str(path), **options})
    schema = source.schema()
    reader = pickled(source).reader(schema)
    travelling = pickled(reader)  # as Spark does it: the function first, then the partitions
    empty = pa.table({name: [] for name in schema.names})
    tables = []
    for partition in reader.partitions():
        batches = list(pickled(travelling).read(pickled(partition)))
        tables.append(pa.Table.from_batches(batches) if batches else empty)
    return tables


def values(path: Path | str, **options: str) -> list[tuple[object, ...]]:
    return sorted(
        tuple(row.values()) for table in parts(path, **options) for row in table.to_pylist()
    )


def test_the_rows_are_those_of_delta_spark(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    theirs, ours = spark.read.format("delta").load(str(orders)), read(spark, orders)
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    assert ours.columns == ["id", "name", "price", "seen", "tags", "day"]
    assert rows_of(ours) == rows_of(theirs)
    assert ours.count() == 285
    # A DataFrame stays at its version.
    write_each(tmp_path, 1, 2)
    df = read(spark, tmp_path)
    write_each(tmp_path, 3)
    assert (df.count(), values(tmp_path)) == (2, [(1,), (2,), (3,)])


@pytest.mark.more
def test_sql_needs_no_register_call(spark: SparkSession, orders: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING delvec OPTIONS (path '{orders}', VERSIONasof 1)"
    )
    count = "SELECT count(*) n, count(DISTINCT id) d FROM v WHERE day = '2026-01-01'"
    assert spark.sql(count).collect() == [(90, 90)]
    joined = spark.sql("SELECT a.id FROM v a JOIN v b ON a.id = b.id + 1 WHERE a.id < 5")
    assert rows_of(joined) == [(1,), (2,)]


@pytest.mark.more
def test_versions_times_and_columns(spark: SparkSession, orders: Path) -> None:
    history = {row.version: row.timestamp for row in read(spark, orders, view="history").collect()}
    assert sorted(history) == [0, 1, 2]
    moment = history[1].astimezone(timezone.utc).isoformat(" ", "microseconds")
    chosen = read(spark, orders, timestampAsOf=moment, columns="_pos, NAME,_file, day")
    assert chosen.columns == ["_pos", "name", "_file", "day"]
    found = {(day.day, name): (place, file) for place, name, file, day in chosen.collect()}
    assert (len(found), found[1, "n4"][0], found[3, "n203"][0]) == (280, 4, 3)
    assert Path(found[1, "n4"][1]).is_file()
    assert len(values(orders, timestampAsOf=moment[:-6], timeZone="UTC", columns="id")) == 280
    assert len(values(orders, versionAsOf="0", columns="id")) == 300


@pytest.mark.more
def test_a_schema_of_the_user_chooses_columns(spark: SparkSession, orders: Path) -> None:
    chosen = spark.read.schema("day date, ID long").format("delvec").load(str(orders))
    assert chosen.columns == ["day", "ID"]
    assert chosen.where("ID < 5").count() == 4
    wrong = spark.read.schema("id int").format("delvec").load(str(orders))
    with pytest.raises(PySparkException, match="column id is of type bigint, not int"):
        wrong.collect()


@pytest.mark.slow
def test_filters_of_one_query_do_not_reach_another(spark: SparkSession, orders: Path) -> None:
    other = spark.newSession()  # where nothing was registered
    for session, pushdown in ((spark, "true"), (other, "false")):
        with settings_of(session, {"spark.sql.python.filterPushdown.enabled": pushdown}):
            df = read(session, orders, columns="id")
            few, more = df.where("id < 10"), df.where("id < 100")
            assert (few.union(more).count(), df.count()) == (99, 285)


def test_the_option_filters_reads_only_files_that_can_match(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "t"
    shutil.copytree(orders, copy)
    for file in copy.glob("day=2026-01-0[23]/*.parquet"):
        file.write_bytes(b"not to be read")
    first = read(spark, copy, filters='[["day", "=", "2026-01-01"]]', columns="id,price")
    assert first.count() == 95
    exact = '[["day", "<=", "2026-01-01"], ["price", ">=", 1.25], ["id", "in", [3, 4, 5, 6, 7]]]'
    assert values(copy, filters=exact, columns="id") == [(5,), (6,), (7,)]
    either = '[[["id", "=", 4]], [["id", "=", 13]], [["name", "=", "n5"], ["id", "<", 1000]]]'
    assert values(copy, filters=either, columns="id") == [(4,), (5,)]
    with pytest.raises(delvec.errors.FormatError, match=r"not a readable Parquet file|bytes"):
        values(copy)


@pytest.mark.slow
def test_views_tell_what_the_log_says(spark: SparkSession, orders: Path) -> None:
    files = read(spark, orders, view="files").collect()
    assert sorted(row.deleted_rows for row in files) == [0, 0, 10, 10]
    vectored = next(row for row in files if row.deleted_rows)
    assert vectored.partition_values["day"] in ("2026-01-01", "2026-01-02")
    assert (vectored.row_count, vectored.statistics["price"].null_count) == (100, 0)
    bounds = vectored.statistics["id"]
    assert (bounds["minimum"], bounds["maximum"]) in (("0", "99"), ("100", "199"))
    [table] = parts(orders, view="VECTORS")
    vectors = table.to_pylist()
    assert {(row["path"], row["cardinality"]) for row in vectors} == {
        (row.path, row.deleted_rows) for row in files if row.vector
    }
    assert all((orders / row["vector_file"]).is_file() and row["offset"] >= 1 for row in vectors)
    assert read(spark, orders, view="positions").where("path like 'day=2026-01-01%'").count() == 10
    positions = parts(orders, view="positions", splitBytes="160")
    assert [table.column("_pos").to_pylist() for table in positions] == [[*range(3, 100, 10)]] * 2
    assert values(orders, view="positions", versionAsOf="0") == []
    history = values(orders, view="history", columns="version,operation")
    assert history == [(0, "WRITE"), (1, "DELETE"), (2, "WRITE")]


@pytest.mark.more
def test_a_large_file_is_cut_between_row_groups(spark: SparkSession, tmp_path: Path) -> None:
    """One file of ten row groups, with a vector that is as large as some of them."""
    builder = TableBuilder(tmp_path, fields={"id": "long", "text": "string"})
    builder.create()
    rows = {"id": range(200_000), "text": [f"{i:030}" for i in range(200_000)]}
    entry = builder.write_file("data.parquet", rows, row_group_size=20_000, compression="none")
    [vector] = builder.write_vectors(i for i in range(200_000) if i % 1000 < 5 or i >= 160_000)
    builder.commit({"add": entry | {"deletionVector": vector}})
    options = {"splitBytes": str(entry["size"] // 4), "columns": "id,_pos"}
    tables = parts(tmp_path, **options)
    assert len(tables) == 5  # two row groups each
    assert sum(table.num_rows == 0 for table in tables) == 1
    whole = pa.concat_tables(table for table in tables if table.num_rows).sort_by("id")
    expected = [i for i in range(160_000) if i % 1000 >= 5]
    assert whole.column("id").to_pylist() == whole.column("_pos").to_pylist() == expected
    figures = read(spark, tmp_path, **options).selectExpr("count(1)", "sum(id)", "max(id - _pos)")
    assert figures.collect() == [(len(expected), sum(expected), 0)]


def test_small_files_share_a_task_for_each_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    storage = Storage.open(str(tmp_path))

    def sizes(files: int, size: int, split: int | None = None) -> list[int]:
        some = [DataFile(f"{i}", size + i, {}, None, None, 0) for i in range(files)]
        return [len(pieces) for pieces in plan_splits(storage, some, split)]

    assert sizes(4, 5000) == [2, 2]
    assert sizes(1000, 5000) == [32] * 31 + [8]  # what opening costs counts as bytes
    assert sizes(10, 100 << 20) == [1] * 10
    assert sizes(3, OPEN_COST, 3 * OPEN_COST + 10) == [3]
    assert sizes(0, 1) == []


@pytest.mark.more
def test_tasks_read_the_files_with_vectors_of_one_version(
    spark: SparkSession, orders: Path
) -> None:
    snapshot = open_snapshot(Storage.open(str(orders)), 1)
    part = ScanPart(snapshot.files, np.arange(len(snapshot.files)), {})
    df = scan_in_tasks(spark, snapshot, ["_pos", "id", "day"], {"_pos": "position"}, part)
    assert df.columns == ["_pos", "id", "day"]
    theirs = Lake(spark, orders).frame(1).where("day < '2026-01-03'")
    assert rows_of(df.select("id", "day")) == rows_of(theirs.select("id", "day"))
    assert values(orders, versionAsOf="0", _files="vectored") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "which table"),
        ({"versionAsOf": "x"}, "versionAsOf is the number of a version"),
        ({"view": "file"}, "did you mean files?"),
        ({"colums": "id"}, "did you mean columns?"),
        ({"columns": "id,,name"}, "columns is a list of names"),
        ({"splitBytes": "0"}, "splitBytes is a size above 0"),
        ({"paths": "[]"}, "one table at a time"),
        ({"owner": "me"}, "CREATE TEMPORARY VIEW"),
        ({"timestampAsOf": "2026-01-01"}, "names no zone"),
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01 00:00:00Z"}, "name one of them"),
        ({"view": "history", "versionAsOf": "1"}, "lists all versions"),
        ({"view": "files", "filters": "[]"}, "filters are for rows"),
        ({"_files": "some"}, "there is no _files 'some'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(delvec.DelvecError) as caught:
        parse_options({"path": "/lake/t", **options})
    assert message in str(caught.value)


def test_options_are_read_in_any_case() -> None:
    told = {"PATH": "/lake/t", "columns": '["a,b", "c"]', "SplitBytes": "64 MiB"}
    options = parse_options({**told, "storage.aws_region": "x"})
    assert (options.columns, options.split_bytes) == (("a,b", "c"), 64 << 20)
    assert options.storage_options == {"aws_region": "x"}
    assert "aws_region" not in repr(options)


def test_wrong_names_are_refused_by_the_table(spark: SparkSession, orders: Path) -> None:
    with pytest.raises(PySparkException, match=r"(?s)idd.*did you mean"):
        read(spark, orders, columns="idd")
    with pytest.raises(delvec.errors.InvalidArgumentError, match="view=files has no column 'pat'"):
        values(orders, view="files", columns="pat")
    with pytest.raises(delvec.DelvecError, match="99"):
        values(orders, versionAsOf="99")
    with pytest.raises(delvec.errors.TableNotFoundError):
        values(orders / "_delta_log")


@pytest.mark.more
def test_what_spark_itself_refuses_is_told_in_the_docs(spark: SparkSession, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    told = re.findall(r"^- `(.+)`: `", page.partition("are Spark's own")[2], re.MULTILINE)
    for message, more in zip(told, ({}, {"mode": "append", "partitionBy": "id"}), strict=True):
        with pytest.raises(PySparkException, match=re.escape(message)):
            spark.range(1).write.save(str(tmp_path / "t"), "delvec", **more)


@pytest.mark.parametrize("text", ["id = 1", '{"id": 1}', '["id", "=", 1]', '[["id", "="]]'])
def test_filters_that_are_none_are_refused(text: str) -> None:
    schema = StructType((Field("id", PrimitiveType("long")),))
    with pytest.raises(delvec.DelvecError, match=r"not JSON|malformed"):
        parse_json_filters(text, schema)


def test_damage_is_told_and_no_row_comes_back(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "t"
    shutil.copytree(orders, copy)
    vectors = next(copy.glob("*.bin"))  # the vectors of both days may be one file or two
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
    with pytest.raises(PySparkException, match="ChecksumError") as caught:
        read(spark, copy).collect()
    assert vectors.name in str(caught.value)
    vectors.unlink()
    with pytest.raises(delvec.errors.ObjectNotFoundError, match="restore it from a copy"):
        values(copy)
    future = TableBuilder(copy, version=2)
    features = {"readerFeatures": ["teleport"], "writerFeatures": ["teleport"]}
    future.commit({"protocol": future.protocol | features})
    with pytest.raises(delvec.errors.UnsupportedFeatureError, match="teleport"):
        values(copy)


def test_times_of_partitions_without_a_zone_are_not_guessed(tmp_path: Path) -> None:
    path, moment = tmp_path / "t", datetime(2026, 7, 1, 10, tzinfo=timezone.utc)
    deltalake.write_deltalake(str(path), pa.table({"at": [moment], "id": [1]}), partition_by=["at"])
    forget_zone(path, 0)
    with pytest.raises(delvec.errors.InvalidArgumentError, match="timestamps without a zone"):
        values(path)
    assert values(path, columns="id") == [(1,)]
    assert values(path, timeZone="UTC", columns="at") == [(moment,)]
    assert values(path, timeZone="Europe/Berlin", columns="at") == [(moment.replace(hour=8),)]


def test_what_a_plan_refuses_is_not_taken_for_no_partitions(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DelvecDataSource({"path": str(orders)})
    reader = source.reader(source.schema())

    def refuse(*_: object) -> list[object]:
        raise delvec.errors.UnsupportedFeatureError("strange files", hint="go on")

    monkeypatch.setattr("delvec.datasource.reader.plan_splits", refuse)
    with pytest.raises(delvec.DelvecError, match="strange files\nHint: go on") as caught:
        reader.partitions()
    assert not isinstance(caught.value, NotImplementedError)
    with pytest.raises(AssertionError):
        reader.read(None)  # type: ignore[arg-type]


def test_registering_does_not_load_arrow() -> None:
    code = "import sys, pyspark_delvec; print('pyarrow' in sys.modules, 'obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
