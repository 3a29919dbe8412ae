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

from tests.delta.builder import TableBuilder
from tests.delta.vacuum.aging import DAY, age, files_of, tombstone
from tests.delta.vacuum.test_vacuum import INLINE, marked, table_of
from tests.spark.delta import spark_tables
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import FEED, Kind, Lazily, bag, lazily_made

pytestmark = pytest.mark.spark

TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.randomizeFilePrefixes": "true",  # of vector files, too
}
KINDS: dict[str, Kind] = {
    "plain": ((), {}),
    "feed": (("part",), FEED),
    "mapped": (("part",), {"delta.columnMapping.mode": "name"}),
    "tracked": (("part",), TRACKED),
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
ORPHANS = ("orphan.parquet", "some folder/orphan.txt")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lazily:
    """Tables with vectors, live and removed, by both engines; there are orphans as well."""

    def add_more(path: Path) -> None:
        Lake(spark, path).table.delete("id = 47")
        for name in (*ORPHANS, "_hidden/x", "part=_y/.hidden"):
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(b"x")
        age(path, 30)

    columns = "id bigint, part string, s string"
    return lazily_made(spark, tmp_path_factory, KINDS, columns, *STEPS, then=add_more)


def listed(lake: Lake, *, lite: bool = False) -> set[str]:
    """The files that delta-spark would delete now; it lists empty folders as well."""
    path = lake.path
    statement = f"VACUUM delta.`{path}` {'LITE ' * lite}RETAIN 0 HOURS DRY RUN"
    with settings_of(lake.spark, UNCHECKED):
        found = [row.path for row in spark_tables.collected(lake.spark.sql(statement))]
    names = [unquote(urlsplit(name).path) if "%" in name else name for name in found]
    plain = {name.removeprefix("file:").removeprefix(f"{path}/") for name in [*names, *found]}
    return {name for name in plain if (path / name).is_file()}


def vacuumed(lake: Lake, hours: float | None = 0, **options: Any) -> set[str]:  # noqa: ANN401
    """The files that delvec deletes."""
    report = lake.bare.vacuum(hours, force=hours == 0, **options)
    return set(report.files["path"].to_pylist())


def by_deltalake(path: Path) -> list[int]:
    found = QueryBuilder().register("t", Peer(str(path))).execute("select id from t").read_all()
    return sorted(pa.table(found).column("id").to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_files_go_as_with_delta_spark(
    spark: SparkSession, tables: Lazily, kind: str
) -> None:
    lake = Lake(spark, tables[kind]).copy(f"{kind}-full")
    age(lake.path, 30)
    expected, before, files = listed(lake), lake.rows(), files_of(lake.path)
    assert set(ORPHANS) < expected
    assert any(name.endswith(".bin") for name in expected)
    # All tombstones are young: only the orphans are old enough, and change files.
    assert vacuumed(lake, None, dry_run=True) == set(ORPHANS)
    assert vacuumed(lake) == expected
    assert {name for name in files - files_of(lake.path) if name[-4:] != ".crc"} == expected
    assert (lake.rows(), listed(lake)) == (before, set())
    assert not (lake.path / "some folder").exists()


@pytest.mark.slow
def test_the_same_files_go_as_with_delta_sparks_lite(spark: SparkSession, tables: Lazily) -> None:
    lake = Lake(spark, tables["feed"]).copy("feed-lite")
    expected, before = listed(lake, lite=True), lake.rows()
    time.sleep(0.01)
    assert expected
    assert vacuumed(lake, lite=True) == expected
    assert lake.rows() == before
    # delta-spark goes on from there, and delvec from where delta-spark ends.
    lake.sql("DELETE FROM {T} WHERE id % 3 = 0")
    lake.table.delete("id % 3 = 1")
    after = lake.rows()
    age(lake.path, 1)
    assert listed(lake, lite=True) == vacuumed(lake, lite=True, dry_run=True)
    with settings_of(spark, UNCHECKED):
        lake.sql("VACUUM {T} LITE RETAIN 0 HOURS")
    assert vacuumed(lake, lite=True) == set()
    assert lake.rows() == after


@pytest.mark.slow
def test_rows_are_the_same_for_every_reader_and_the_history_tells(
    spark: SparkSession, tables: Lazily
) -> None:
    lake = Lake(spark, tables["plain"]).copy("plain-rows")
    before, ids = lake.rows(), by_deltalake(lake.path)
    report = lake.table.vacuum(0, force=True, commit_metadata="tidy")
    assert (lake.rows(), by_deltalake(lake.path)) == (before, ids)
    deleted = {"numDeletedFiles": str(report.files_deleted), "numVacuumedDirectories": "2"}
    found = {
        "numFilesToDelete": str(report.files.num_rows),
        "sizeOfDataToDelete": str(report.bytes),
    }
    retention = {
        "retentionCheckEnabled": "false",
        "defaultRetentionMillis": "604800000",
        "specifiedRetentionMillis": "0",
    }
    names = ("operation", "operationParameters", "operationMetrics", "userMetadata")
    told = lake.history(2)
    assert [tuple(row[name] for name in names) for row in told] == [
        ("VACUUM END", {"status": "COMPLETED"}, deleted, "tidy"),
        ("VACUUM START", retention, found, "tidy"),
    ]
    assert told[0]["version"] == report.version
    # The table goes on to work.
    lake.table.delete("id = 31")
    lake.sql("DELETE FROM {T} WHERE id = 32")
    assert len(lake.rows()) == len(before) - 2


@pytest.mark.slow
def test_time_travel_works_within_the_retention(spark: SparkSession, tables: Lazily) -> None:
    lake = Lake(spark, tables["tracked"]).copy("tracked-travel")
    versions = range(1, lake.table.version + 1)
    before = [bag(lake.table.to_df(version=version)) for version in versions]
    lake.table.checkpoint()
    assert lake.table.vacuum().files_deleted == 2
    for version, rows in zip(versions, before, strict=True):
        assert bag(lake.table.to_df(version=version)) == bag(lake.frame(version)) == rows


@pytest.mark.more
def test_inline_vectors_break_delta_sparks_vacuum_and_not_ours(lake: Lake) -> None:
    table, adds = table_of(lake.path, 3)
    live = marked(adds[0], INLINE[0])
    table.commit(tombstone(adds[0], 30), {"add": live}, tombstone(adds[2], 30))
    age(table.root, 30, log=True)
    before = lake.rows()
    with pytest.raises((PySparkException, Py4JError), match="MatchError"):
        listed(lake)
    assert lake.bare.vacuum().files_deleted == 1
    assert lake.rows() == before
    # As well as one in a tombstone.
    table.version = lake.bare.version
    table.commit(tombstone(live, 1))
    assert lake.bare.vacuum(24, force=True).files_deleted == 1
    assert files_of(table.root) == {"part-1.parquet"}


@pytest.mark.slow
def test_delta_sparks_vacuum_takes_an_absolute_vector_inside_the_table_and_ours_does_not(
    lake: Lake,
) -> None:
    table = TableBuilder(lake.path)
    table.create()
    add = table.write_file("part-0.parquet", {"id": range(10)})
    [vector] = table.write_vectors([3])
    own = vector | {"storageType": "p", "pathOrInlineDv": f"file://{table.vector_path()}"}
    table.commit({"add": marked(add, own)})
    age(table.root, 30, log=True)
    before = lake.rows()
    assert listed(lake) == {table.vector_path().name}
    assert lake.bare.vacuum(0, force=True).files_deleted == 0
    assert lake.rows() == before


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_delta_spark_reads_what_a_cleaned_log_holds(lake: Lake, policy: str) -> None:
    properties = {
        "delta.checkpointInterval": "5",
        "delta.checkpointPolicy": policy,
        # delta-spark travels no further.
        "delta.deletedFileRetentionDuration": "interval 30 days",
    }
    insert = "INSERT INTO {T} SELECT * FROM range(100, 110, 1, 1)"
    handle = lake.create("id bigint", *[insert] * 7, properties=properties)
    for number in range(5):
        handle.delete(f"id = {100 + number}")
    age(lake.path, 40, log=True)
    for version in (11, 12):
        moment = time.time() - 20 * DAY
        os.utime(lake.path / f"_delta_log/{version:020d}.json", (moment, moment))
    lake.sql(insert)
    versions = range(10, handle.version + 1)
    before = [bag(handle.to_df(version=version)) for version in versions]
    report = handle.clean_log()
    assert (report.oldest, report.files["commit"]) == (10, 10)
    lake.sql("REFRESH TABLE {T}")
    for version, rows in zip(versions, before, strict=True):
        assert bag(handle.to_df(version=version)) == rows
        if version > 10:
            assert bag(lake.frame(version)) == rows
    lake.sql(insert)
    assert lake.rows().total() == 7 * 10 - 7 * 5 + 20
    assert [row["version"] for row in lake.history(99)] == list(range(handle.version, 9, -1))
