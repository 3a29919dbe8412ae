"""What delvec writes is read rightly by stock Iceberg, and by delvec itself, after every step."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.write.upsert import delete_keys
from tests.iceberg.deletes.tables import rewrite_data_files
from tests.iceberg.table.mirror import ENABLED, Mirror, found, stock

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "id bigint, part string, at timestamp_ntz, n int"
LAYOUTS = {
    "none": "",
    "identity": "PARTITIONED BY (part)",
    "bucket": "PARTITIONED BY (bucket(4, id))",
    "truncate": "PARTITIONED BY (truncate(1, part))",
    "days": "PARTITIONED BY (days(at))",
    "several": "PARTITIONED BY (part, bucket(2, id), days(at))",
}


def row(number: int, n: int = 0) -> tuple[Any, ...]:
    part = None if number % 7 == 3 else ("aa", "ab", "b")[number % 3]
    return number, part, datetime(2024, 1, 1 + number % 3, 12), n  # noqa: DTZ001


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_after_every_operation(spark: SparkSession, layout: str, version: int) -> None:
    mirror = Mirror.new(spark, COLUMNS, LAYOUTS[layout], version, ENABLED)
    mirror.append([row(number) for number in range(12)])
    mirror.delete_keys([1, 5, 3, 77], "id")
    mirror.check()
    mirror.create_branch("audit")
    mirror.create_branch("own", staging=True)
    # A row that comes back, one that moves to another partition, one that is new, and a delete.
    moved = (2, "b", datetime(2024, 2, 2), 1)  # noqa: DTZ001
    mirror.upsert([row(1, 1), moved, row(20, 1)], "id", deleted=[row(4)])
    mirror.check()
    mirror.delete_keys([("aa", 0), (None, 10), ("b", 11)], "part", "id", branch="audit")
    mirror.upsert([row(6, 2), row(30, 2)], "id", branch="own")
    mirror.sql_delete("n = 1 AND id > 1", lambda each: each[3] == 1 and each[0] > 1)
    mirror.delete_keys([row(0)[2]], "at", branch="audit")
    mirror.delete_keys([20, 6], "id", branch="own")
    mirror.check()
    mirror.delete_keys([6, 7], "id")
    mirror.append([row(6, 3)], "audit")
    rewrite_data_files(spark, mirror.table.name)
    mirror.check()


@pytest.mark.parametrize("version", [3, 2])
def test_a_global_delete_is_about_data_of_all_specs(spark: SparkSession, version: int) -> None:
    mirror = Mirror.new(spark, COLUMNS, "PARTITIONED BY (part)", version)
    name = mirror.table.name
    mirror.append([row(number) for number in range(6)])
    spark.sql(f"ALTER TABLE {name} REPLACE PARTITION FIELD part WITH bucket(2, id)")
    mirror.append([row(number, 1) for number in range(6)])
    mirror.delete_keys([1, 3], "id")
    mirror.check()
    spec = mirror.table.spec
    assert [each["name"] for each in spec["fields"]][-1] == "id_bucket_2"  # still the default
    with pytest.raises(UnsupportedFeatureError, match="of an earlier partition spec"):
        mirror.delete_keys([2], "id", partition={"id_bucket_2": 0})
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD id_bucket_2")
    mirror.append([row(1, 2), row(2, 2)])
    mirror.delete_keys([2], "id")
    mirror.upsert([row(4, 3)], "id")
    mirror.check()
    # The same, where a table had no partitions at first.
    flat = Mirror.new(spark, COLUMNS, "", version)
    flat.append([row(1), row(2)])
    spark.sql(f"ALTER TABLE {flat.table.name} ADD PARTITION FIELD part")
    flat.append([row(1, 1), row(3, 1)])
    flat.delete_keys([1], "id")
    flat.check()
    assert len(flat.table._load().metadata.specs) == 2  # the first one serves for global deletes


class TestColumns:
    """Columns that change after deletes by them."""

    @pytest.fixture(params=[3, 2])
    def mirror(self, spark: SparkSession, request: pytest.FixtureRequest) -> Mirror:
        """A table where key 2 of `id` is deleted; `k` is like `id`."""
        mirror = Mirror.new(spark, "id int, k int, s string", "", request.param, ENABLED)
        mirror.append([(number, number, str(number)) for number in range(5)])
        mirror.delete_keys([2], "id")
        return mirror

    def alter(self, mirror: Mirror, change: str, ddl: str) -> None:
        mirror.table.spark.sql(f"ALTER TABLE {mirror.table.name} {change}")
        mirror.ddl = ddl

    def test_renamed(self, mirror: Mirror) -> None:
        self.alter(mirror, "RENAME COLUMN id TO number", "number int, k int, s string")
        mirror.check()
        mirror.delete_keys([3], "number")
        with pytest.raises(InvalidArgumentError, match="has no column id"):
            mirror.table.delete_keys([1], "id")
        mirror.append([(2, 2, "again")])
        mirror.check()
        # `k` takes the name that the deleted column had.
        self.alter(mirror, "RENAME COLUMN k TO id", "number int, id int, s string")
        mirror.delete_keys([0], "id")
        mirror.check()

    def test_added(self, mirror: Mirror) -> None:
        self.alter(mirror, "ADD COLUMN extra int FIRST", "extra int, id int, k int, s string")
        mirror.branches["main"] = [(None, *each) for each in mirror.branches["main"]]
        mirror.check()
        mirror.append([(7, 8, 8, "8"), (9, 2, 2, "again")])
        mirror.delete_keys([7, 55], "extra")
        mirror.check()
        mirror.delete_keys([None], "extra")  # all rows from before it was added
        mirror.check()

    def test_dropped(self, mirror: Mirror) -> None:
        before = int(mirror.table.detail().snapshot_id or 0)
        self.alter(mirror, "DROP COLUMN id", "k int, s string")
        mirror.branches["main"] = [each[1:] for each in mirror.branches["main"]]
        mirror.check()
        mirror.append([(2, "again")])
        mirror.delete_keys([4], "k")
        mirror.check()
        table = mirror.table
        assert found(table.to_df(snapshot_id=before)) == found(stock(table, before))
        assert len(table.to_df(snapshot_id=before).columns) == 3

    def test_dropped_and_made_anew(self, mirror: Mirror) -> None:
        self.alter(mirror, "DROP COLUMN id", "k int, s string")
        self.alter(mirror, "ADD COLUMN id int", "k int, s string, id int")
        mirror.branches["main"] = [(*each[1:], None) for each in mirror.branches["main"]]
        mirror.append([(2, "new", 2), (9, "new", None)])
        # The delete was by another column of that name. Stock Iceberg 1.12 reads both of them under
        # one name and fails, as long as files are there that the old delete applies to.
        self.check_ours(mirror)
        mirror.delete_keys([2], "id")
        self.check_ours(mirror)
        mirror.delete_keys([None], "id")
        self.check_ours(mirror)

    def check_ours(self, mirror: Mirror) -> None:
        assert found(mirror.table.to_df()) == Counter(mirror.branches["main"])
        with pytest.raises(Exception, match="multiple fields for name id"):
            stock(mirror.table).collect()

    def test_widened(self, mirror: Mirror) -> None:
        self.alter(mirror, "ALTER COLUMN id TYPE bigint", "id bigint, k int, s string")
        mirror.check()
        mirror.append([(2, 2, "again"), (1 << 40, 0, "large")])
        mirror.delete_keys([3, 1 << 40], "id")  # rows of files with 32 and with 64 bits
        mirror.check()
        mirror.create_branch("own", staging=True)
        mirror.delete_keys([4, 2], "id", branch="own")
        mirror.check()


class TestTraps:
    """Mistakes that stock Iceberg does not notice: it returns other rows."""

    def test_files_of_keys_have_field_ids(self, spark: SparkSession) -> None:
        # Without them the key, which is not the first column, would be taken for the first.
        mirror = Mirror.new(spark, "s string, id bigint, n int")
        mirror.append([("a", 1, 1), ("b", 3, 1), (None, None, 1), ("d", 4, 1)])
        mirror.delete_keys([3], "id")
        mirror.delete_keys([(1, 4)], "n", "id")
        mirror.upsert([("z", 9, 9)], "id", "s")
        mirror.check()
        for file in mirror.table.files().toArrow().to_pylist():
            schema = pq.read_schema(_local(file["path"]))
            ids = {name: schema.field(name).metadata[b"PARQUET:field_id"] for name in schema.names}
            every = {"s": b"1", "id": b"2", "n": b"3"}
            assert ids.items() <= every.items(), file
            if file["content"] != "data":
                assert schema.names == file["equality_columns"]

    def test_global_deletes_have_an_unpartitioned_spec(self, spark: SparkSession) -> None:
        mirror = Mirror.new(spark, COLUMNS, "PARTITIONED BY (part)")
        mirror.append([row(number) for number in range(6)])
        default = mirror.table.spec["spec-id"]
        report = mirror.delete_keys([0, 1, 2], "id")
        assert report.scope == "global"
        mirror.check()
        files = mirror.table.files().toArrow().to_pylist()
        [spec] = {each["spec_id"] for each in files if each["content"] == "equality-deletes"}
        assert mirror.table._load().metadata.specs[spec]["fields"] == []
        assert mirror.table.spec["spec-id"] == default != spec
        # The next ones share it, and data goes on being partitioned.
        mirror.delete_keys([3], "id")
        mirror.append([row(7)])
        mirror.check()
        assert len(mirror.table._load().metadata.specs) == 2
        newest = mirror.table.files().where("content = 'data'").toArrow()
        assert set(newest["spec_id"].to_pylist()) == {default}

    @pytest.mark.parametrize("form", ["/", "file:"])
    def test_paths_of_both_forms(self, spark: SparkSession, tmp_path: Path, form: str) -> None:
        place = str(tmp_path / "elsewhere")
        properties = {**ENABLED, "write.data.path": place if form == "/" else f"file:{place}"}
        mirror = Mirror.new(spark, COLUMNS, "PARTITIONED BY (part)", 3, properties)
        mirror.append([row(number) for number in range(6)])
        mirror.append([row(number, 1) for number in range(6)])
        mirror.delete_keys([1], "id")
        mirror.sql_delete("id = 2", lambda each: each[0] == 2)
        mirror.upsert([row(3, 2)], "id")
        mirror.create_branch("own", staging=True)
        mirror.delete_keys([4, 5], "id", branch="own")
        mirror.check()
        paths = mirror.table.files(branch="own").toArrow()["path"].to_pylist()
        assert all(path.startswith(properties["write.data.path"]) for path in paths), paths

    def test_a_table_object_that_is_stale(self, spark: SparkSession) -> None:
        """What was loaded before others committed is written on top of theirs."""
        mirror = Mirror.new(spark, "id bigint, n int")
        mirror.append([(1, 1), (2, 2)])
        table = mirror.table
        stale = load_table(spark, table.identifier)
        frame = table.to_df()  # planned now, and read later
        mirror.delete_keys([1], "id")
        mirror.append([(1, 3)])
        delete_keys(stale, [2], ["id"], branch="main")
        mirror.drop(lambda each: each[0] == 2)
        mirror.check()
        assert set(found(frame)) == {(1, 1), (2, 2)}


def _local(path: str) -> str:
    return path.removeprefix("file:")
