"""RESTORE beside delta-spark's: the same rows, metrics, changes and definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import ObjectNotFoundError
from tests.delta import log_files
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import (
    FEED,
    Kind,
    Lazily,
    bag,
    copy_of,
    feed,
    judged,
    lazily_made,
    rows_of,
)

pytestmark = pytest.mark.spark

FIGURES = (
    "tableSizeAfterRestore",
    "numOfFilesAfterRestore",
    "numRemovedFiles",
    "numRestoredFiles",
    "removedFilesSize",
    "restoredFilesSize",
)
KINDS: dict[str, Kind] = {
    "plain": ((), {}),
    "feed": ((), FEED),
    "mapped": (("part",), FEED | {"delta.columnMapping.mode": "name"}),
    "tracked": ((), {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}),
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


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lazily:
    columns = "id bigint, part bigint, s string"
    return lazily_made(
        spark,
        tmp_path_factory,
        KINDS,
        columns,
        *STEPS,
        then=lambda path: DeltaTable.for_path(spark, path).delete("id = 47"),
    )


def definition(path: Path) -> tuple[Any, ...]:
    snapshot = DeltaTable.for_path(None, path).snapshot()
    metadata = snapshot.metadata
    return snapshot.protocol, metadata.schema, metadata.partition_columns, metadata.configuration


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_version_comes_back_as_by_delta_spark(
    spark: SparkSession, tables: Lazily, kind: str, version: int
) -> None:
    name = f"{kind}-{version}"
    statement = f"RESTORE TABLE {{T}} TO VERSION AS OF {version}"
    done = judged(
        spark, tables[kind], name, statement, lambda table: table.restore(version), *FIGURES
    )
    path, theirs = done.path, done.path.parent / f"{name}-theirs"
    ours = DeltaTable.for_path(None, path)
    wanted = DeltaTable.for_path(None, path).to_arrow(version=version)
    assert ours.to_arrow().sort_by("id") == wanted.sort_by("id")
    assert definition(path) == definition(theirs)
    assert ours.snapshot().domains == DeltaTable.for_path(None, theirs).snapshot().domains
    live = [
        sorted((a["path"], a.get("baseRowId")) for a in log_files.live_adds(p))
        for p in (path, theirs)
    ]
    assert live[0] == live[1]


@pytest.mark.slow
def test_the_history_of_delta_spark_shows_it(spark: SparkSession, tables: Lazily) -> None:
    path = copy_of(tables["plain"], "history")
    DeltaTable.for_path(None, path).restore(2)
    [row] = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()
    assert row.operation == "RESTORE"
    assert set(row.operationMetrics) == set(FIGURES)
    theirs = copy_of(tables["plain"], "history-theirs")
    spark_tables.sql(spark, theirs, "RESTORE TABLE {T} TO VERSION AS OF 2")
    [expected] = spark.sql(f"DESCRIBE HISTORY delta.`{theirs}` LIMIT 1").collect()
    told = {name: text for name, text in expected.operationParameters.items() if text is not None}
    assert row.operationParameters == told


@pytest.mark.slow
def test_a_time_is_the_version_of_delta_spark(spark: SparkSession, tables: Lazily) -> None:
    path, theirs = (copy_of(tables["tracked"], name) for name in ("time", "time-theirs"))
    [row] = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").where("version = 3").collect()
    moment = str(row.timestamp)
    DeltaTable.for_path(spark, path).restore(timestamp=moment)
    spark_tables.sql(spark, theirs, f"RESTORE TABLE {{T}} TO TIMESTAMP AS OF '{moment}'")
    assert rows_of(spark, path) == rows_of(spark, theirs)


@pytest.mark.slow
def test_delvec_reads_the_changes_of_a_restore_as_delta_spark(
    spark: SparkSession, tables: Lazily
) -> None:
    """Vectors shrink and grow: rows come back, and go again."""
    path = copy_of(tables["feed"], "changes")
    table = DeltaTable.for_path(spark, path)
    for version in (3, 2, 6):
        done = table.restore(version).version
        assert done is not None
        ours = bag(table.changes(done, done).drop("_commit_timestamp"))
        assert ours == feed(spark, path, done)
        assert ours


@pytest.mark.slow
def test_work_goes_on_after_a_restore(spark: SparkSession, tables: Lazily) -> None:
    path = copy_of(tables["tracked"], "onwards")
    table = DeltaTable.for_path(spark, path)
    table.restore(3)
    before = table.count()
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 1", "OPTIMIZE {T}")
    table.update({"s": "'again'"}, "id = 2")
    table.delete("id = 3")
    assert sum(rows_of(spark, path).values()) == before - 2
    ids = spark.sql(f"SELECT count(*), count(DISTINCT _metadata.row_id) FROM delta.`{path}`")
    [(count, distinct)] = ids.collect()
    assert count == distinct == before - 2


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["delvec", "delta-spark"])
def test_the_upgrade_boundary_is_crossed_both_ways(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    path = tmp_path / "t"
    off = {"delta.enableDeletionVectors": "false"}
    spark_tables.create(spark, path, "id bigint", properties=off)
    spark_tables.sql(spark, path, "INSERT INTO {T} SELECT id FROM range(0, 10, 1, 1)")
    table = DeltaTable.for_path(spark, path)
    table.enable_deletion_vectors()
    if engine == "delvec":
        table.delete("id < 4")
    else:
        spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id < 4")
    assert table.snapshot().files.has_vector.all()
    table.restore(1)
    assert sum(rows_of(spark, path).values()) == 10
    assert table.protocol.has_vectors
    assert table.properties.get("delta.enableDeletionVectors") != "true"
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 9")  # rewrites the file
    assert not table.snapshot().files.has_vector.any()
    table.restore(3)
    assert sum(rows_of(spark, path).values()) == 6
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 9")
    assert table.snapshot().files.has_vector.all()
    assert sum(rows_of(spark, path).values()) == 5


@pytest.mark.slow
def test_a_gone_vector_is_refused_where_delta_spark_breaks_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark_tables.create(spark, path, "id bigint")
    statements = [
        "INSERT INTO {T} SELECT id FROM range(0, 10, 1, 1)",
        "DELETE FROM {T} WHERE id < 4",
    ]
    spark_tables.sql(spark, path, *statements)
    [vector] = path.glob("deletion_vector_*.bin")
    spark_tables.sql(spark, path, "REORG TABLE {T} APPLY (PURGE)")
    vector.unlink()
    theirs = copy_of(path, "theirs")
    spark_tables.sql(spark, theirs, "RESTORE TABLE {T} TO VERSION AS OF 2")
    with pytest.raises((PySparkException, Py4JError)):
        spark_tables.collected(spark_tables.as_delta_spark_reads(spark, theirs))
    table = DeltaTable.for_path(None, path)
    with pytest.raises(ObjectNotFoundError, match=vector.name):
        table.restore(2)
    assert table.version == 3
    assert sum(rows_of(spark, path).values()) == 6


@pytest.mark.slow
def test_clustering_and_identity_columns_are_those_of_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    on = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    columns = "id bigint GENERATED ALWAYS AS IDENTITY, v int"
    spark_tables.sql(
        spark,
        path,
        f"CREATE TABLE {{T}} ({columns}) USING delta CLUSTER BY (v) {on}",
        "INSERT INTO {T} (v) SELECT id FROM range(0, 10, 1, 1)",
        "ALTER TABLE {T} CLUSTER BY (id)",
        "INSERT INTO {T} (v) SELECT id FROM range(0, 10, 1, 1)",
        "DELETE FROM {T} WHERE v = 3",
    )
    ours, theirs = (copy_of(path, name) for name in ("ours", "theirs"))
    DeltaTable.for_path(None, ours).restore(1)
    spark_tables.sql(spark, theirs, "RESTORE TABLE {T} TO VERSION AS OF 1")
    assert definition(ours) == definition(theirs)
    domains = [
        {name: json.loads(text) for name, text in found.items()}
        for found in (DeltaTable.for_path(None, p).snapshot().domains for p in (ours, theirs))
    ]
    assert domains[0] == domains[1]
    for each in (ours, theirs):
        spark_tables.sql(spark, each, "INSERT INTO {T} (v) VALUES (77)")
    assert rows_of(spark, ours) == rows_of(spark, theirs)
