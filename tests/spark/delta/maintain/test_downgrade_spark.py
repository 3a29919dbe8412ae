"""Downgrades of tables with vectors, as delta-spark and deltalake see them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import UnsupportedFeatureError
from tests.delta.log_files import commits
from tests.delta.vacuum.aging import age
from tests.spark.delta import spark_tables

pytestmark = pytest.mark.spark

ROWS = [n for n in range(60) if n % 3]


def made(
    spark: SparkSession,
    path: Path,
    properties: dict[str, str] | None = None,
    partitioned_by: Sequence[str] = (),
) -> DeltaTable:
    """Let delta-spark make a table of two files with vectors."""
    columns = "id bigint, part string"
    spark_tables.create(
        spark, path, columns, properties=properties, partitioned_by=list(partitioned_by)
    )
    for start in (0, 30):
        rows = f"SELECT id, concat('p', id % 2) FROM range({start}, {start + 30}, 1, 1)"
        spark_tables.sql(spark, path, f"INSERT INTO {{T}} {rows}")
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id % 3 = 0")
    return DeltaTable.for_path(spark, path)


def ids(spark: SparkSession, path: Path, version: int | None = None) -> list[int]:
    df = spark_tables.as_delta_spark_reads(spark, path, version)
    return sorted(row.id for row in spark_tables.collected(df))


def protocol_of(path: Path) -> tuple[int, int, set[str]]:
    protocol = DeltaTable.for_path(None, path).protocol
    return protocol.min_reader_version, protocol.min_writer_version, set(protocol.features)


def test_delta_spark_and_deltalake_read_the_result(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path)
    report = table.drop_deletion_vectors()
    assert report.files_with_vectors == 2
    assert ids(spark, path) == ROWS
    assert sorted(Peer(path).to_pandas()["id"]) == ROWS
    assert sorted(row.id for row in table.to_df().collect()) == ROWS
    # Time travel goes on, across the boundary.
    assert ids(spark, path, 3) == ROWS
    assert ids(spark, path, 2) == list(range(60))
    history = spark_tables.collected(spark.sql(f"DESCRIBE HISTORY delta.`{path}`"))
    assert [row.operation for row in history[:-4]] == [
        "DROP FEATURE",
        *["Empty Commit"] * 3,
        "Deletion Vector Tombstones",
        "REORG",
        "UNSET TBLPROPERTIES",
    ]
    # And so do writes of both.
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 1")
    table.delete("id = 2")
    assert ids(spark, path) == ROWS[2:]
    assert not any("deletionVector" in a.get("add", {}) for c in commits(path)[-2:] for a in c)
    assert sorted(Peer(path).to_pandas()["id"]) == ROWS[2:]


@pytest.mark.slow
def test_the_protocol_is_that_of_delta_sparks_own_command(
    spark: SparkSession, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    features = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    made(spark, ours, features).drop_deletion_vectors()
    made(spark, theirs, features)
    spark_tables.sql(spark, theirs, "ALTER TABLE {T} DROP FEATURE deletionVectors")
    assert protocol_of(ours) == protocol_of(theirs)
    for path in (ours, theirs):
        properties: dict[str, Any] = dict(DeltaTable.for_path(None, path).properties)
        protected = int(properties.pop("delta.requireCheckpointProtectionBeforeVersion"))
        assert protected == DeltaTable.for_path(None, path).version
        assert "delta.enableDeletionVectors" not in properties
    assert ids(spark, ours) == ids(spark, theirs) == ROWS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("properties", "partitioned_by"),
    [
        ({"delta.enableRowTracking": "true"}, ()),
        ({"delta.checkpointPolicy": "v2"}, ("part",)),
        ({"delta.enableInCommitTimestamps": "true"}, ()),
    ],
    ids=["row-tracking", "v2-checkpoints", "in-commit-timestamps"],
)
def test_other_features_keep_working(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partitioned_by: Sequence[str]
) -> None:
    path = tmp_path / "t"
    table = made(spark, path, properties, partitioned_by)
    before = table.protocol.features
    table.drop_deletion_vectors()
    after = table.protocol.features
    assert before - after == {"deletionVectors"}
    assert after - before == {"checkpointProtection"}
    assert ids(spark, path) == ROWS
    spark_tables.sql(spark, path, "INSERT INTO {T} VALUES (77, 'p1')")
    table.delete("id = 77")
    assert ids(spark, path) == ROWS


@pytest.mark.slow
def test_truncated_history_leaves_the_protocol_of_a_plain_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = made(spark, path)
    with pytest.raises(UnsupportedFeatureError, match="cannot be lowered yet"):
        table.drop_deletion_vectors(truncate_history=True)
    assert ids(spark, path) == ROWS
    age(path / "_delta_log", days=2)
    table.drop_deletion_vectors(truncate_history=True)
    assert protocol_of(path) == (1, 2, set())
    assert ids(spark, path) == ROWS
    assert sorted(Peer(path).to_pandas()["id"]) == ROWS
    spark_tables.sql(spark, path, "INSERT INTO {T} VALUES (77, 'p1')")
    assert ids(spark, path) == [*ROWS, 77]


@pytest.mark.slow
def test_delta_spark_can_drop_what_delvec_protects(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    made(spark, path).drop_deletion_vectors()
    age(path / "_delta_log", days=2)
    spark_tables.sql(
        spark, path, "ALTER TABLE {T} DROP FEATURE checkpointProtection TRUNCATE HISTORY"
    )
    assert protocol_of(path) == (1, 2, set())
    assert ids(spark, path) == ROWS
