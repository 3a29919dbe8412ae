"""Downgrades of tables with vectors, as delta-spark and deltalake see them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from deltalake import DeltaTable as Peer

from delvec import DeltaTable
from delvec.errors import UnsupportedFeatureError
from tests.delta.log_files import commits
from tests.delta.vacuum.aging import age
from tests.spark.delta.lake import Lake

pytestmark = pytest.mark.spark

ROWS = [n for n in range(60) if n % 3]


def made(lake: Lake, properties: Mapping[str, str] | None = None, *parts: str) -> DeltaTable:
    """Let delta-spark make a table of two files with vectors."""
    inserts = (
        f"INSERT INTO {{T}} SELECT id, concat('p', id % 2) FROM range({start}, {start + 30}, 1, 1)"
        for start in (0, 30)
    )
    gone = "DELETE FROM {T} WHERE id % 3 = 0"
    return lake.create("id bigint, part string", *inserts, gone, parts=parts, properties=properties)


def protocol_of(lake: Lake) -> tuple[int, int, set[str]]:
    protocol = lake.bare.protocol
    return protocol.min_reader_version, protocol.min_writer_version, set(protocol.features)


def test_delta_spark_and_deltalake_read_the_result(lake: Lake) -> None:
    table = made(lake)
    assert table.drop_deletion_vectors().files_with_vectors == 2
    assert lake.ids() == sorted(Peer(lake.path).to_pandas()["id"]) == ROWS
    assert sorted(row.id for row in table.to_df().collect()) == ROWS
    # Time travel goes on, across the boundary.
    assert (lake.ids(3), lake.ids(2)) == (ROWS, list(range(60)))
    assert [row["operation"] for row in lake.history(7)] == [
        *("DROP FEATURE", *["Empty Commit"] * 3, "Deletion Vector Tombstones", "REORG"),
        "UNSET TBLPROPERTIES",
    ]
    # And so do writes of both.
    lake.sql("DELETE FROM {T} WHERE id = 1")
    table.delete("id = 2")
    assert lake.ids() == sorted(Peer(lake.path).to_pandas()["id"]) == ROWS[2:]
    last = commits(lake.path)[-2:]
    assert not any("deletionVector" in a.get("add", {}) for c in last for a in c)


@pytest.mark.slow
def test_the_protocol_is_that_of_delta_sparks_own_command(lake: Lake) -> None:
    theirs = lake.beside("theirs")
    features = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    made(lake, features).drop_deletion_vectors()
    made(theirs, features)
    theirs.sql("ALTER TABLE {T} DROP FEATURE deletionVectors")
    assert protocol_of(lake) == protocol_of(theirs)
    for each in (lake, theirs):
        properties = each.bare.properties
        protected = properties["delta.requireCheckpointProtectionBeforeVersion"]
        assert int(protected) == each.bare.version
        assert "delta.enableDeletionVectors" not in properties
    assert lake.ids() == theirs.ids() == ROWS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("delta.enableRowTracking", "true", ()),
        ("delta.checkpointPolicy", "v2", ("part",)),
        ("delta.enableInCommitTimestamps", "true", ()),
    ],
)
def test_other_features_keep_working(
    lake: Lake, name: str, value: str, parts: tuple[str, ...]
) -> None:
    table = made(lake, {name: value}, *parts)
    before = table.protocol.features
    table.drop_deletion_vectors()
    after = table.protocol.features
    assert after == (before - {"deletionVectors"}) | {"checkpointProtection"}
    assert lake.ids() == ROWS
    lake.sql("INSERT INTO {T} VALUES (77, 'p1')")
    table.delete("id = 77")
    assert lake.ids() == ROWS


@pytest.mark.slow
def test_truncated_history_leaves_the_protocol_of_a_plain_table(lake: Lake) -> None:
    table = made(lake)
    with pytest.raises(UnsupportedFeatureError, match="cannot be lowered yet"):
        table.drop_deletion_vectors(truncate_history=True)
    assert lake.ids() == ROWS
    theirs = lake.copy("theirs")
    for each in (lake, theirs):
        age(each.path / "_delta_log", days=2)
    table.drop_deletion_vectors(truncate_history=True)
    # delta-spark can drop what delvec protects.
    theirs.bare.drop_deletion_vectors()
    age(theirs.path / "_delta_log", days=2)
    theirs.sql("ALTER TABLE {T} DROP FEATURE checkpointProtection TRUNCATE HISTORY")
    for each in (lake, theirs):
        assert (protocol_of(each), each.ids()) == ((1, 2, set()), ROWS)
        assert sorted(Peer(each.path).to_pandas()["id"]) == ROWS
        each.sql("INSERT INTO {T} VALUES (77, 'p1')")
        assert each.ids() == [*ROWS, 77]
