"""RESTORE and shallow clones beside delta-spark's: the same rows, entries and definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec.delta.write.change import ROW_TRACKING_DOMAIN, high_water_mark
from delvec.errors import ObjectNotFoundError
from tests.delta import log_files
from tests.delta.rows import same_rows
from tests.spark.delta import spark_tables
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import READERS, read
from tests.spark.delta.write.judge import FEED, Kind, Lazily, bag, feed, judged, lazily_made

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIGURES = (
    *("tableSizeAfterRestore", "numOfFilesAfterRestore", "numRemovedFiles", "numRestoredFiles"),
    *("removedFilesSize", "restoredFilesSize"),
)
MAPPED = {"delta.columnMapping.mode": "name"}
TRACKED = {"delta.enableRowTracking": "true"}
KINDS: dict[str, Kind] = {
    "plain": ((), {}),
    "feed": ((), FEED),
    "mapped": (("part",), FEED | MAPPED),
    "tracked": ((), TRACKED | {"delta.enableInCommitTimestamps": "true"}),
}
STEPS = (
    "INSERT INTO {T} SELECT id, id % 2, concat('s', id) FROM range(0, 40, 1, 1)",
    "INSERT INTO {T} SELECT id, id % 2, concat('s', id) FROM range(40, 60, 1, 1)",
    "DELETE FROM {T} WHERE id % 5 = 0",
    "UPDATE {T} SET s = 'new' WHERE id % 7 = 1",
    "OPTIMIZE {T}",
    "DELETE FROM {T} WHERE id < 30",
    "ALTER TABLE {T} ADD COLUMNS (extra int)",
    "INSERT INTO {T} VALUES (100, 1, 'x', 5)",
)
CLONED: dict[str, Kind] = {
    "plain": (("part",), {}),
    "mapped": (("part",), MAPPED),
    "tracked": (("part",), FEED | TRACKED),
    "prefixed": (("part",), {"delta.randomizeFilePrefixes": "true"}),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lazily:
    columns = "id bigint, part bigint, s string"

    def then(path: Path) -> None:
        Lake(spark, path).table.delete("id = 47")

    return lazily_made(spark, tmp_path_factory, KINDS, columns, *STEPS, then=then)


def definition(lake: Lake) -> tuple[Any, ...]:
    snapshot = lake.bare.snapshot()
    metadata = snapshot.metadata
    domains = {name: json.loads(text) for name, text in snapshot.domains.items()}
    parts, properties = metadata.partition_columns, metadata.configuration
    return snapshot.protocol, metadata.schema, parts, properties, domains


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_version_comes_back_as_by_delta_spark(
    spark: SparkSession, tables: Lazily, kind: str, version: int
) -> None:
    name = f"{kind}-{version}"
    statement = f"RESTORE TABLE {{T}} TO VERSION AS OF {version}"
    done = judged(spark, tables[kind], name, statement, lambda t: t.restore(version), *FIGURES)
    ours = Lake(spark, done.path)
    theirs = ours.beside(f"{name}-theirs")
    wanted = ours.bare.to_arrow(version=version)
    assert ours.bare.to_arrow().sort_by("id") == wanted.sort_by("id")
    assert definition(ours) == definition(theirs)
    live = [
        sorted((add["path"], add.get("baseRowId")) for add in log_files.live_adds(each.path))
        for each in (ours, theirs)
    ]
    assert live[0] == live[1]


def test_the_history_of_delta_spark_shows_it(spark: SparkSession, tables: Lazily) -> None:
    ours, theirs = (Lake(spark, tables["plain"]).copy(name) for name in ("history", "history-2"))
    ours.bare.restore(2)
    theirs.sql("RESTORE TABLE {T} TO VERSION AS OF 2")
    [row], [expected] = ours.history(), theirs.history()
    assert (row["operation"], set(row["operationMetrics"])) == ("RESTORE", set(FIGURES))
    told = {name: text for name, text in expected["operationParameters"].items() if text}
    assert row["operationParameters"] == told


def test_a_time_is_the_version_of_delta_spark(spark: SparkSession, tables: Lazily) -> None:
    ours, theirs = (Lake(spark, tables["tracked"]).copy(name) for name in ("time", "time-theirs"))
    [moment] = {str(row["timestamp"]) for row in ours.history(20) if row["version"] == 3}
    ours.table.restore(timestamp=moment)
    theirs.sql(f"RESTORE TABLE {{T}} TO TIMESTAMP AS OF '{moment}'")
    assert ours.rows() == theirs.rows()


def test_delvec_reads_the_changes_of_a_restore_as_delta_spark(
    spark: SparkSession, tables: Lazily
) -> None:
    """Vectors shrink and grow: rows come back, and go again."""
    lake = Lake(spark, tables["feed"]).copy("changes")
    for version in (3, 2, 6):
        done = lake.table.restore(version).version
        assert done is not None
        ours = bag(lake.table.changes(done, done).drop("_commit_timestamp"))
        assert ours == feed(spark, lake.path, done)
        assert ours


def test_work_goes_on_after_a_restore(spark: SparkSession, tables: Lazily) -> None:
    lake = Lake(spark, tables["tracked"]).copy("onwards")
    lake.table.restore(3)
    before = lake.table.count()
    lake.sql("DELETE FROM {T} WHERE id = 1", "OPTIMIZE {T}")
    lake.table.update({"s": "'again'"}, "id = 2")
    lake.table.delete("id = 3")
    assert lake.rows().total() == before - 2
    counts = lake.frame().selectExpr("count(*)", "count(DISTINCT _metadata.row_id)")
    assert counts.collect() == [(before - 2, before - 2)]


@pytest.mark.parametrize("engine", ["delvec", "delta-spark"])
def test_the_upgrade_boundary_is_crossed_both_ways(lake: Lake, engine: str) -> None:
    insert = "INSERT INTO {T} SELECT id FROM range(0, 10, 1, 1)"
    table = lake.create("id bigint", insert, properties={"delta.enableDeletionVectors": "false"})
    table.enable_deletion_vectors()
    if engine == "delvec":
        table.delete("id < 4")
    else:
        lake.sql("DELETE FROM {T} WHERE id < 4")
    assert table.snapshot().files.has_vector.all()
    table.restore(1)
    assert lake.rows().total() == 10
    assert table.protocol.has_vectors
    assert table.properties.get("delta.enableDeletionVectors") != "true"
    lake.sql("DELETE FROM {T} WHERE id = 9")  # rewrites the file
    assert not table.snapshot().files.has_vector.any()
    table.restore(3)
    assert lake.rows().total() == 6
    lake.sql("DELETE FROM {T} WHERE id = 9")
    assert table.snapshot().files.has_vector.all()
    assert lake.rows().total() == 5


def test_a_gone_vector_is_refused_where_delta_spark_breaks_the_table(lake: Lake) -> None:
    insert = "INSERT INTO {T} SELECT id FROM range(0, 10, 1, 1)"
    lake.create("id bigint", insert, "DELETE FROM {T} WHERE id < 4")
    [vector] = lake.path.glob("deletion_vector_*.bin")
    lake.sql("REORG TABLE {T} APPLY (PURGE)")
    vector.unlink()
    theirs = lake.copy("theirs")
    theirs.sql("RESTORE TABLE {T} TO VERSION AS OF 2")
    with pytest.raises((PySparkException, Py4JError)):
        spark_tables.collected(theirs.frame())
    with pytest.raises(ObjectNotFoundError, match=vector.name):
        lake.bare.restore(2)
    assert (lake.bare.version, lake.rows().total()) == (3, 6)


def test_clustering_and_identity_columns_are_those_of_delta_spark(lake: Lake) -> None:
    on = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    columns = "id bigint GENERATED ALWAYS AS IDENTITY, v int"
    insert = "INSERT INTO {T} (v) SELECT id FROM range(0, 10, 1, 1)"
    lake.sql(f"CREATE TABLE {{T}} ({columns}) USING delta CLUSTER BY (v) {on}", insert)
    lake.sql("ALTER TABLE {T} CLUSTER BY (id)", insert, "DELETE FROM {T} WHERE v = 3")
    ours, theirs = (lake.copy(name) for name in ("ours", "theirs"))
    ours.bare.restore(1)
    theirs.sql("RESTORE TABLE {T} TO VERSION AS OF 1")
    assert definition(ours) == definition(theirs)
    for each in (ours, theirs):
        each.sql("INSERT INTO {T} (v) VALUES (77)")
    assert ours.rows() == theirs.rows()


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lazily:
    """Tables with partitions whose names need escapes, and files with vectors."""
    values = "SELECT id, if(id % 2 = 0, 'a b/c', 'ä%20'), int(id) FROM range(0, 40, 1, 1)"
    gone = ("id % 10 = 3 OR id % 10 = 6", "id = 7")
    steps = f"INSERT INTO {{T}} {values}", *(f"DELETE FROM {{T}} WHERE {each}" for each in gone)
    columns = "id bigint, part string, v int"
    return lazily_made(spark, tmp_path_factory, CLONED, columns, *steps)


def entries(lake: Lake) -> list[dict[str, Any]]:
    """Give the live files by their decoded names."""
    found = []
    for add in log_files.live_adds(lake.path):
        vector = dict(add.get("deletionVector") or {"pathOrInlineDv": ""})
        vector["pathOrInlineDv"] = unquote(vector["pathOrInlineDv"])
        facts = {key: add[key] for key in ("partitionValues", "size", "stats", "dataChange")}
        found.append({"path": unquote(add["path"]), "vector": vector, **facts})
    return sorted(found, key=lambda each: str(each["path"]))


@pytest.mark.parametrize("kind", CLONED)
def test_a_clone_is_that_of_delta_spark(
    spark: SparkSession, sources: Lazily, tmp_path: Path, kind: str
) -> None:
    source, ours = Lake(spark, sources[kind]), Lake(spark, tmp_path / "ours")
    theirs = ours.beside("theirs")
    source.bare.clone(ours.path)
    source.sql(f"CREATE TABLE delta.`{theirs.path}` SHALLOW CLONE {{T}}")
    assert ours.rows() == source.rows()
    for reader in READERS:
        assert same_rows(read(reader, spark, theirs.path), ours.frame().toArrow())
    assert entries(ours) == entries(theirs)
    assert all(entry["vector"].get("storageType") == "p" for entry in entries(ours))
    first, second = ours.bare, theirs.bare
    assert (first.protocol, first.schema) == (second.protocol, second.schema)
    assert set(first.properties) == set(second.properties)
    marks = [each.snapshot().domains.get(ROW_TRACKING_DOMAIN) for each in (first, second)]
    assert high_water_mark(marks[0]) == high_water_mark(marks[1])
    [told], [expected] = ours.history(), theirs.history()
    assert told["operation"] == "CLONE"
    for name in ("operation", "operationParameters", "operationMetrics"):
        assert told[name] == expected[name]


@pytest.mark.parametrize("kind", ["plain", "tracked"])
def test_both_engines_change_a_clone_and_not_its_source(
    sources: Lazily, lake: Lake, kind: str
) -> None:
    source = Lake(lake.spark, sources[kind])
    before = source.rows()
    source.table.clone(lake.path)
    table = lake.table
    lake.sql("DELETE FROM {T} WHERE id = 10")
    vectors = [add["deletionVector"]["storageType"] for add in log_files.live_adds(lake.path)]
    assert (set(vectors), lake.rows().total()) == ({"u", "p"}, before.total() - 1)
    table.delete("id = 11")
    lake.sql("UPDATE {T} SET v = -1 WHERE id = 12")
    table.update({"v": "-2"}, "id = 14")
    assert lake.rows().total() == before.total() - 2
    table.recompute_statistics()
    assert lake.rows().total() == before.total() - 2
    lake.sql("REORG TABLE {T} APPLY (PURGE)")
    assert lake.rows().total() == before.total() - 2
    table.restore(0)
    assert lake.rows() == source.rows() == before
