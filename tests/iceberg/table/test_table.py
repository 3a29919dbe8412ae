"""`IcebergTable`: opening it, what it says of itself, branches and maintenance."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec import IcebergTable
from delvec.errors import (
    InvalidArgumentError,
    PlanError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.iceberg.commit.marks import is_staging
from delvec.iceberg.write.upsert import delete_keys
from tests.conversion.targets import ids
from tests.iceberg.deletes.tables import new_table

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def database(spark: SparkSession) -> None:
    for name in ("lake.`odd-db`", "sqlite.empty"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")


def made(
    spark: SparkSession, options: str = "", version: int = 3, columns: str = "id BIGINT"
) -> str:
    return new_table(spark, columns, options, version)


@pytest.fixture
def table(spark: SparkSession) -> IcebergTable:
    """A table of two commits: 1 to 4, then 5."""
    name = made(spark)
    for values in ("(1), (2), (3), (4)", "(5)"):
        spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    return delvec.IcebergTable.for_name(spark, name)


def rows(spark: SparkSession, table: IcebergTable, ref: str) -> list[int]:
    spark.catalog.refreshTable(table.name)
    found = spark.sql(f"SELECT id FROM {table.name} VERSION AS OF '{ref}'").toArrow()
    return sorted(found["id"].to_pylist())


@pytest.mark.more
def test_a_table_says_what_it_is(spark: SparkSession) -> None:
    columns = "id BIGINT NOT NULL, day DATE, s STRUCT<x: INT>"
    name = made(spark, "PARTITIONED BY (bucket(4, id), day)", 2, columns)
    table = delvec.IcebergTable.for_name(spark, name)
    assert (table.name, table.format_version) == (name, 2)
    assert table.location.endswith(name.rpartition(".")[2])
    assert table.schema == spark.table(name).schema
    assert table.properties["write.delete.mode"] == "merge-on-read"
    assert [each["name"] for each in table.spec["fields"]] == ["id_bucket", "day"]
    assert repr(table) == f"IcebergTable('{name}')"
    assert "main       empty" in table._repr_html_()
    assert table == delvec.IcebergTable.for_name(spark, name)
    detail = table.detail()
    assert (detail.snapshot_id, detail.rows, detail.data_files) == (None, 0, 0)
    assert detail.partition_by == ("bucket[4](id)", "day")
    assert table.files().count() == table.history().count() == table.snapshots().count() == 0
    uuid = table.uuid
    spark.sql(f"DROP TABLE {name}")
    with pytest.raises(TableNotFoundError):
        _ = table.location
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    assert table.uuid != uuid  # each call loads the table again


@pytest.mark.slow
def test_a_name_with_odd_characters_is_quoted(spark: SparkSession) -> None:
    name = "lake.`odd-db`.`it's-a.table`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    table = delvec.IcebergTable.for_name(spark, name)
    assert (table.name, table.files().count(), table.expire_snapshots().snapshots) == (name, 1, 0)
    assert table.remove_orphan_files(dry_run=True).files == ()
    spark.sql(f"DROP TABLE {name}")


@pytest.mark.more
def test_what_is_no_table_is_not_opened(spark: SparkSession) -> None:
    open_table = delvec.IcebergTable.for_name
    name = made(spark)
    with pytest.raises(TableNotFoundError) as missing:
        open_table(spark, f"{name}x")
    assert missing.value.hint == f"did you mean {name.rpartition('.')[2]}?"
    with pytest.raises(TableNotFoundError) as missing:
        open_table(spark, "sqlite.empty.t")
    assert missing.value.hint == "there is no table in that database"
    for catalog in ("lake", "sqlite"):
        with pytest.raises(TableNotFoundError) as missing:
            open_table(spark, f"{catalog}.no_such_database.t")
        assert missing.value.hint == f"there is no database {catalog}.no_such_database"
    with pytest.raises(InvalidArgumentError, match="is not one"):
        open_table(spark, "spark_catalog.default.t")
    for arguments, match in (
        ((None, name), "None is none"),
        ((name, spark), "is a string, not a SparkSession"),
        ((name, name), "is none"),
        ((spark, None), "is a string, not None"),
        ((spark, " "), "must not be empty"),
    ):
        given: Any = arguments
        with pytest.raises(InvalidArgumentError, match=match):
            open_table(*given)
    with pytest.raises(InvalidArgumentError, match="does not open a table"):
        delvec.IcebergTable(spark, given[1])

    class ConnectSession:
        """As pyspark.sql.connect.session.SparkSession, which has no JVM."""

        createDataFrame = None  # noqa: N815

    client: Any = ConnectSession()
    with pytest.raises(UnsupportedFeatureError, match="Spark Connect"):
        open_table(client, name)


@pytest.mark.more
def test_history_and_refs_are_those_of_iceberg(spark: SparkSession, table: IcebergTable) -> None:
    table.create_branch("audit")
    table.create_tag("v1")
    table.create_branch("own", staging=True)
    spark.sql(f"DELETE FROM {table.name} WHERE id = 2")
    history = table.history().toArrow().to_pylist()
    assert [each["operation"] for each in history] == ["delete", "append", "append"]
    assert [each["added_rows"] for each in history] == [None, 1, 4]
    assert history[0]["added_position_deletes"] == 1
    assert [each["refs"] for each in history] == [["main"], ["audit", "v1"], []]
    theirs = spark.table(f"{table.name}.snapshots").toArrow().to_pylist()
    ours = {each["snapshot_id"]: each for each in table.snapshots().toArrow().to_pylist()}
    assert len(ours) == len(theirs) == 4
    for each in theirs:
        found = ours[each["snapshot_id"]]
        assert found["parent_id"] == each["parent_id"]
        assert found["timestamp"].timestamp() == each["committed_at"].timestamp()
        assert dict(each["summary"]).items() <= dict(found["summary"]).items()
    refs = {each["name"]: each for each in table.refs().toArrow().to_pylist()}
    assert {name: (each["type"], each["is_staging"]) for name, each in refs.items()} == {
        "main": ("branch", False),
        "audit": ("branch", False),
        "own": ("branch", True),
        "v1": ("tag", False),
    }
    assert (table.history(1).count(), table.history(branch="own").count()) == (1, 3)
    with pytest.raises(InvalidArgumentError, match="has no branch 'owm'"):
        table.history(branch="owm")
    assert "own (staging)" in table._repr_html_()


def test_files_tell_every_form_of_deletes(spark: SparkSession, table: IcebergTable) -> None:
    spark.sql(f"DELETE FROM {table.name} WHERE id = 2")
    files = table.files().toArrow().to_pylist()
    by_content = {each["content"]: each for each in files}
    assert sorted(each["content"] for each in files) == ["data", "data", "deletion-vector"]
    vector = by_content["deletion-vector"]
    [data] = [each for each in files if each["path"] == vector["referenced_data_file"]]
    assert (vector["rows"], vector["format"], data["rows"]) == (1, "puffin", 4)
    assert (vector["sequence_number"], data["sequence_number"]) == (3, 1)
    assert vector["bytes"] < Path(vector["path"].removeprefix("file:")).stat().st_size
    detail = table.detail()
    assert (detail.data_files, detail.records, detail.rows) == (2, 5, 4)
    assert (detail.deletion_vectors, detail.deleted_rows) == (1, 1)
    assert detail.delete_bytes == vector["bytes"]
    assert json.loads(json.dumps(detail.to_json()))["deletion_vectors"] == 1
    assert "1 deletion vector" in str(detail)
    [_, old] = [each["snapshot_id"] for each in table.history().toArrow().to_pylist()][1:]
    assert (table.files(old).count(), table.detail(snapshot_id=old).rows) == (1, 4)
    with pytest.raises(InvalidArgumentError, match="has no snapshot 1"):
        table.files(1)
    with pytest.raises(InvalidArgumentError, match="has no tag 'v1'"):
        table.files(tag="v1")


@pytest.mark.slow
def test_files_of_older_specs_show_their_own_partitions(spark: SparkSession) -> None:
    name = made(spark, "PARTITIONED BY (part)", 2, "id BIGINT, part STRING")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, NULL)")
    spark.sql(f"DELETE FROM {name} WHERE id = 2 AND part IS NULL")
    spark.sql(f"INSERT INTO {name} VALUES (3, 'a'), (4, 'a')")
    spark.sql(f"DELETE FROM {name} WHERE id = 3")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    spark.sql(f"INSERT INTO {name} VALUES (5, 'b')")
    table = delvec.IcebergTable.for_name(spark, name)
    files = table.files().toArrow().to_pylist()
    found = {(each["content"], each["spec_id"], tuple(each["partition"])) for each in files}
    assert ("data", 0, (("part", "a"),)) in found
    assert ("position-deletes", 0, (("part", "a"),)) in found
    [newest] = [each for each in files if each["spec_id"] == 1]
    assert [key for key, _ in newest["partition"]] == ["part", "id_bucket_2"]
    detail = table.detail()
    assert (detail.position_delete_files, detail.rows) == (1, None)


@pytest.mark.slow
def test_expiry_keeps_what_branches_are(spark: SparkSession, table: IcebergTable) -> None:
    table.create_branch("own", staging=True)
    spark.sql(f"INSERT INTO {table.name}.branch_own VALUES (6)")  # without delvec's mark
    spark.sql(f"INSERT OVERWRITE {table.name} VALUES (7)")
    report = table.expire_snapshots(older_than=timedelta(0), retain_last=1)
    assert report.snapshots >= 3
    assert (report.snapshots_left, report.refs) == (2, ())
    assert report.to_json()["snapshots"] == report.snapshots
    assert "snapshots expired, 2 left" in str(report)
    assert is_staging(table._load().metadata, "own")
    assert (rows(spark, table, "own"), ids(spark, table.name)) == ([1, 2, 3, 4, 5, 6], [7])
    assert table.expire_snapshots("2020-01-01").snapshots == 0
    for bad in ({"retain_last": 0}, {"older_than": timedelta(-1)}, {"older_than": "soon"}):
        arguments: dict[str, Any] = bad
        with pytest.raises(InvalidArgumentError):
            table.expire_snapshots(**arguments)


@pytest.mark.slow
def test_only_old_orphans_are_removed(spark: SparkSession, table: IcebergTable) -> None:
    data = Path(table.location.removeprefix("file:")) / "data"
    old, new = data / "old.parquet", data / "new.parquet"
    for file in (old, new):
        file.write_bytes(b"x")
    days_ago = time.time() - 5 * 86400
    for file in data.iterdir():
        if file != new:
            os.utime(file, (days_ago, days_ago))
    report = table.remove_orphan_files(dry_run=True)
    assert [file.rpartition("/")[2] for file in report.files] == ["old.parquet"]
    assert "1 file would be deleted" in str(report)
    assert old.exists()
    for young in (timedelta(hours=23), "2100-01-01"):
        with pytest.raises(InvalidArgumentError, match="a day ago or more"):
            table.remove_orphan_files(young)
    assert table.remove_orphan_files(timedelta(days=2)).files == report.files
    assert (old.exists(), new.exists()) == (False, True)
    assert table.remove_orphan_files(location=str(data), dry_run=True).files == ()
    assert ids(spark, table.name) == [1, 2, 3, 4, 5]


def test_a_table_of_shared_files_is_not_cleaned(spark: SparkSession, table: IcebergTable) -> None:
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    for act in (table.expire_snapshots, table.remove_orphan_files):
        with pytest.raises(PlanError, match="has gc") as refused:
            act()
        assert "clean_target" in str(refused.value.hint)


@pytest.mark.slow
def test_vectors_of_a_staging_branch_stay_there(spark: SparkSession, table: IcebergTable) -> None:
    enabled = "'write.delete.equality-vector.enabled' = 'true'"
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({enabled})")
    table.create_branch("own", staging=True)
    delete_keys(table._load(), [1, 2], ["id"], branch="own")
    delete_keys(table._load(), [3], ["id"], branch="main")
    [vector] = table.files(branch="own").where("content like 'equality%'").toArrow().to_pylist()
    assert (vector["content"], vector["rows"]) == ("equality-delete-vector", 2)
    assert vector["equality_columns"] == ["id"]
    detail = table.detail(branch="own")
    assert (detail.equality_delete_vectors, detail.equality_deletes, detail.rows) == (1, 2, None)
    [file] = table.files().where("content like 'equality%'").toArrow().to_pylist()
    assert file["content"] == "equality-deletes"
    head, base = detail.snapshot_id, table.rollback(parent(table))
    with pytest.raises(PlanError, match="is a staging branch"):
        table.fast_forward("main", "own")
    with pytest.raises(PlanError, match="has 1 equality delete vectors, such as"):
        table.create_branch("copy", snapshot_id=head)
    table.create_branch("base", snapshot_id=base)
    spark.sql(f"ALTER TABLE {table.name} CREATE BRANCH copy AS OF VERSION {head}")
    with pytest.raises(PlanError, match="could not read base with it"):
        table.fast_forward("base", "copy")
    table.create_branch("second", snapshot_id=head, staging=True)


def parent(table: IcebergTable) -> int:
    found: int = table.history(1).toArrow()["parent_id"].to_pylist()[0]
    return found
