"""VACUUM and cleaning of the log beside delta-spark's: the same files go, the same rows stay."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import QueryBuilder
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec import DeltaTable
from tests.delta.builder import TableBuilder
from tests.delta.vacuum.aging import DAY, age, files_of, tombstone
from tests.delta.vacuum.test_vacuum import INLINE, marked, table_of
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import FEED, Kind, Lazily, bag, copy_of, lazily_made, rows_of

pytestmark = pytest.mark.spark

KINDS: dict[str, Kind] = {
    "plain": ((), {}),
    "feed": (("part",), FEED),
    "mapped": (("part",), {"delta.columnMapping.mode": "name"}),
    "tracked": (
        ("part",),
        {
            "delta.enableRowTracking": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.randomizeFilePrefixes": "true",  # of vector files, too
        },
    ),
}
STEPS = (
    "INSERT INTO {T} SELECT id, concat('a b/c%', id % 2), concat('s', id) FROM range(0, 40, 1, 2)",
    "INSERT INTO {T} SELECT id, concat('x', id % 2), concat('s', id) FROM range(40, 80, 1, 1)",
    "DELETE FROM {T} WHERE id % 5 = 0",
    "DELETE FROM {T} WHERE id % 7 = 0",
    "UPDATE {T} SET s = 'new' WHERE id % 11 = 1",
    "REORG TABLE {T} APPLY (PURGE)",
    "DELETE FROM {T} WHERE id < 12",
)
UNCHECKED: dict[str, object] = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Else it lists folders by ten thousand tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lazily:
    """Tables with vectors, live and removed, by both engines; there are orphans as well."""

    def add_more(path: Path) -> None:
        DeltaTable.for_path(spark, path).delete("id = 47")
        for name in ("orphan.parquet", "some folder/orphan.txt", "_hidden/x", "part=_y/.hidden"):
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(b"x")
        age(path, 30)

    columns = "id bigint, part string, s string"
    return lazily_made(spark, tmp_path_factory, KINDS, columns, *STEPS, then=add_more)


def listed(spark: SparkSession, path: Path, *, lite: bool = False) -> set[str]:
    """The files that delta-spark would delete now; it lists empty folders as well."""
    statement = f"VACUUM delta.`{path}` {'LITE ' * lite}RETAIN 0 HOURS DRY RUN"
    with settings_of(spark, UNCHECKED):
        found = [row.path for row in spark_tables.collected(spark.sql(statement))]
    names = [unquote(urlsplit(name).path) if "%" in name else name for name in found]
    plain = {name.removeprefix("file:").removeprefix(f"{path}/") for name in [*names, *found]}
    return {name for name in plain if (path / name).is_file()}


def by_deltalake(path: Path) -> list[int]:
    found = QueryBuilder().register("t", Peer(str(path))).execute("select id from t").read_all()
    return sorted(pa.table(found).column("id").to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_files_go_as_with_delta_spark(
    spark: SparkSession, tables: Lazily, kind: str
) -> None:
    path = copy_of(tables[kind], f"{kind}-full")
    age(path, 30)
    expected, before, files = listed(spark, path), rows_of(spark, path), files_of(path)
    assert {"orphan.parquet", "some folder/orphan.txt"} < expected
    assert any(name.endswith(".bin") for name in expected)
    # All tombstones are young: only the orphans are old enough, and change files.
    handle = DeltaTable.for_path(None, path)
    young = handle.vacuum(dry_run=True).files["path"].to_pylist()
    assert set(young) == {"orphan.parquet", "some folder/orphan.txt"}
    report = handle.vacuum(0, force=True)
    assert set(report.files["path"].to_pylist()) == expected
    gone = {name for name in files - files_of(path) if not name.endswith(".crc")}
    assert gone == expected
    assert rows_of(spark, path) == before
    assert listed(spark, path) == set()
    assert not (path / "some folder").exists()


@pytest.mark.slow
def test_the_same_files_go_as_with_delta_sparks_lite(spark: SparkSession, tables: Lazily) -> None:
    path = copy_of(tables["feed"], "feed-lite")
    expected, before = listed(spark, path, lite=True), rows_of(spark, path)
    handle = DeltaTable.for_path(None, path)
    time.sleep(0.01)
    report = handle.vacuum(0, force=True, lite=True)
    assert set(report.files["path"].to_pylist()) == expected
    assert report.files_deleted == len(expected) > 0
    assert rows_of(spark, path) == before
    # delta-spark goes on from there, and delvec from where delta-spark ends.
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id % 3 = 0")
    DeltaTable.for_path(spark, path).delete("id % 3 = 1")
    after = rows_of(spark, path)
    age(path, 1)
    assert listed(spark, path, lite=True) == set(
        handle.vacuum(0, force=True, lite=True, dry_run=True).files["path"].to_pylist()
    )
    with settings_of(spark, UNCHECKED):
        spark_tables.sql(spark, path, "VACUUM {T} LITE RETAIN 0 HOURS")
    assert handle.vacuum(0, force=True, lite=True).files.num_rows == 0
    assert rows_of(spark, path) == after


@pytest.mark.slow
def test_rows_are_the_same_for_every_reader_and_the_history_tells(
    spark: SparkSession, tables: Lazily
) -> None:
    path = copy_of(tables["plain"], "plain-rows")
    before, ids = rows_of(spark, path), by_deltalake(path)
    handle = DeltaTable.for_path(spark, path)
    report = handle.vacuum(0, force=True, commit_metadata="tidy")
    assert rows_of(spark, path) == before
    assert by_deltalake(path) == ids
    rows = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 2").collect()
    told: list[dict[str, Any]] = [row.asDict() for row in rows]
    assert [row["operation"] for row in told] == ["VACUUM END", "VACUUM START"]
    assert told[0]["version"] == report.version
    assert told[0]["operationParameters"] == {"status": "COMPLETED"}
    assert told[0]["operationMetrics"] == {
        "numDeletedFiles": str(report.files_deleted),
        "numVacuumedDirectories": "2",
    }
    assert told[1]["operationParameters"] == {
        "retentionCheckEnabled": "false",
        "defaultRetentionMillis": "604800000",
        "specifiedRetentionMillis": "0",
    }
    assert told[1]["operationMetrics"] == {
        "numFilesToDelete": str(report.files.num_rows),
        "sizeOfDataToDelete": str(report.bytes),
    }
    assert {row["userMetadata"] for row in told} == {"tidy"}
    # The table goes on to work.
    handle.delete("id = 31")
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 32")
    assert len(rows_of(spark, path)) == len(before) - 2


@pytest.mark.slow
def test_time_travel_works_within_the_retention(spark: SparkSession, tables: Lazily) -> None:
    path = copy_of(tables["tracked"], "tracked-travel")
    handle = DeltaTable.for_path(spark, path)
    versions = range(1, handle.version + 1)
    before = [bag(handle.to_df(version=version)) for version in versions]
    handle.checkpoint()
    assert handle.vacuum().files_deleted == 2
    for version, rows in zip(versions, before, strict=True):
        assert bag(handle.to_df(version=version)) == rows
        assert bag(spark_tables.as_delta_spark_reads(spark, path, version)) == rows


@pytest.mark.more
def test_inline_vectors_break_delta_sparks_vacuum_and_not_ours(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, adds = table_of(tmp_path / "t", 3)
    live = marked(adds[0], INLINE[0])
    table.commit(tombstone(adds[0], 30), {"add": live}, tombstone(adds[2], 30))
    age(table.root, 30, log=True)
    before = rows_of(spark, table.root)
    with pytest.raises((PySparkException, Py4JError), match="MatchError"):
        listed(spark, table.root)
    assert DeltaTable.for_path(None, table.root).vacuum().files_deleted == 1
    assert rows_of(spark, table.root) == before
    # As well as one in a tombstone.
    table.version = DeltaTable.for_path(None, table.root).version
    table.commit(tombstone(live, 1))
    assert DeltaTable.for_path(None, table.root).vacuum(24, force=True).files_deleted == 1
    assert files_of(table.root) == {"part-1.parquet"}


@pytest.mark.slow
def test_delta_sparks_vacuum_takes_an_absolute_vector_inside_the_table_and_ours_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = TableBuilder(tmp_path / "t")
    table.create()
    add = table.write_file("part-0.parquet", {"id": range(10)})
    [vector] = table.write_vectors([3])
    own = vector | {"storageType": "p", "pathOrInlineDv": f"file://{table.vector_path()}"}
    table.commit({"add": marked(add, own)})
    age(table.root, 30, log=True)
    before = rows_of(spark, table.root)
    assert listed(spark, table.root) == {table.vector_path().name}
    assert DeltaTable.for_path(None, table.root).vacuum(0, force=True).files_deleted == 0
    assert rows_of(spark, table.root) == before


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_delta_spark_reads_what_a_cleaned_log_holds(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    path = tmp_path / "t"
    properties = {
        "delta.checkpointInterval": "5",
        "delta.checkpointPolicy": policy,
        # delta-spark travels no further.
        "delta.deletedFileRetentionDuration": "interval 30 days",
    }
    spark_tables.create(spark, path, "id bigint", properties=properties)
    source = "INSERT INTO {T} SELECT * FROM range(100, 110, 1, 1)"
    spark_tables.sql(spark, path, *[source] * 7)
    handle = DeltaTable.for_path(spark, path)
    for number in range(5):
        handle.delete(f"id = {100 + number}")
    age(path, 40, log=True)
    for version in (11, 12):
        moment = time.time() - 20 * DAY
        os.utime(path / f"_delta_log/{version:020d}.json", (moment, moment))
    spark_tables.sql(spark, path, source)
    versions = range(10, handle.version + 1)
    before = [bag(handle.to_df(version=version)) for version in versions]
    report = handle.clean_log()
    assert report.oldest == 10
    assert report.files["commit"] == 10
    spark_tables.sql(spark, path, "REFRESH TABLE {T}")
    for version, rows in zip(versions, before, strict=True):
        assert bag(handle.to_df(version=version)) == rows
        if version > 10:
            assert bag(spark_tables.as_delta_spark_reads(spark, path, version)) == rows
    spark_tables.sql(spark, path, source)
    assert rows_of(spark, path).total() == 7 * 10 - 7 * 5 + 20
    assert [row.version for row in spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()] == list(
        range(handle.version, 9, -1)
    )
