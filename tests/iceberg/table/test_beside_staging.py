"""Iceberg's own maintenance while a staging branch holds Equality Delete Vectors alone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.iceberg.table.mirror import ENABLED, Mirror, found, refuses, stock

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "id bigint, part string, n int"


@pytest.fixture(params=["PARTITIONED BY (part)", ""], ids=["partitioned", "flat"])
def mirror(spark: SparkSession, request: pytest.FixtureRequest) -> Mirror:
    """A table with vectors on `own`, which apply to files that `main` has as well."""
    rest = request.param
    mirror = Mirror.new(spark, COLUMNS, rest, properties=ENABLED)
    for start in (0, 10, 20):
        rows = [(number, "ab"[number % 2], start) for number in range(start, start + 10)]
        mirror.append(rows)
    mirror.delete_keys([28], "id")
    mirror.create_branch("own", staging=True)
    mirror.delete_keys([1, 12, 99], "id", branch="own")
    mirror.upsert([(2, "b", 7), (50, "a", 7)], "id", branch="own")
    mirror.delete_keys([50, 3], "id", branch="own")
    if rest:
        mirror.table.delete_keys([4, 5], "id", branch="own", partition={"part": "a"})
        mirror.drop(lambda row: row[0] == 4, "own")
    refuses(mirror.table, "own")
    return mirror


def call(mirror: Mirror, procedure: str, arguments: str = "") -> list[Row]:
    table = mirror.table
    table.spark.catalog.refreshTable(table.name)
    return table.spark.sql(
        f"CALL lake.system.{procedure}(table => '{table.name}'{arguments and ', ' + arguments})"
    ).collect()


def age(mirror: Mirror) -> Path:
    """Let all files of a table be old, so that those that nobody refers to are deleted."""
    folder = Path(mirror.table.location.removeprefix("file:"))
    old = time.time() - 5 * 86400
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (old, old))
    return folder


def files(mirror: Mirror, branch: str) -> set[str]:
    return set(mirror.table.files(branch=branch).toArrow()["path"].to_pylist())


def test_maintenance_of_main_changes_no_row(mirror: Mirror) -> None:
    [done] = call(mirror, "rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert done["rewritten_data_files_count"] >= 3
    mirror.check()
    call(mirror, "rewrite_manifests")
    call(mirror, "rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    mirror.check("own")
    call(mirror, "expire_snapshots", "older_than => TIMESTAMP '2100-01-01', retain_last => 1")
    mirror.check()
    folder = age(mirror)
    stray = folder / "data" / "stray.parquet"
    stray.write_bytes(b"x")
    os.utime(stray, (time.time() - 5 * 86400,) * 2)
    kept = files(mirror, "own")
    for arguments in ("", f"location => '{folder}/data'"):
        removed = {each[0] for each in call(mirror, "remove_orphan_files", arguments)}
        assert not removed & kept
    assert not stray.exists()
    assert all(Path(path.removeprefix("file:")).exists() for path in kept)
    mirror.check()
    # Both branches go on.
    mirror.delete_keys([6], "id", branch="own")
    mirror.delete_keys([7], "id")
    mirror.upsert([(8, "a", 9)], "id")
    mirror.sql_delete("id = 9", lambda row: row[0] == 9)
    mirror.check()


def test_procedures_that_need_the_rows_of_the_branch_fail(mirror: Mirror) -> None:
    """What stock Iceberg cannot read it does not rewrite either."""
    before = files(mirror, "own")
    with pytest.raises(Exception, match="is not a Parquet file"):
        call(mirror, "rewrite_data_files", "options => map('rewrite-all', 'true'), branch => 'own'")
    spark = mirror.table.spark
    for statement in (
        f"DELETE FROM {mirror.table.name}.branch_own WHERE n = 20 AND id > 25",
        f"UPDATE {mirror.table.name}.branch_own SET n = 1 WHERE id = 13",
        f"SELECT count(*) FROM {mirror.table.name} VERSION AS OF 'own' WHERE id = 12",
    ):
        with pytest.raises(Exception, match="is not a Parquet file"):
            spark.sql(statement).collect()
    assert files(mirror, "own") == before
    mirror.check()


def test_a_dropped_branch_leaves_a_table_that_stock_iceberg_reads(mirror: Mirror) -> None:
    table = mirror.table
    own = files(mirror, "own") - files(mirror, "main")
    assert any(path.endswith("-edv.puffin") for path in own)
    table.drop_branch("own")
    del mirror.branches["own"]
    call(mirror, "expire_snapshots", "older_than => TIMESTAMP '2100-01-01', retain_last => 1")
    left = [path for path in own if Path(path.removeprefix("file:")).exists()]
    assert left == []
    mirror.check()
    age(mirror)
    call(mirror, "remove_orphan_files")
    assert all(Path(path.removeprefix("file:")).exists() for path in files(mirror, "main"))
    mirror.check()
    [done] = call(mirror, "rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert done["failed_data_files_count"] == 0
    mirror.check()


def test_maintenance_by_delvec(mirror: Mirror) -> None:
    table: Any = mirror.table
    table.expire_snapshots("2100-01-01", retain_last=1)
    mirror.check()
    age(mirror)
    table.remove_orphan_files()
    mirror.check()
    table.consolidate_deletes(branch="own")
    mirror.check()
    table.consolidate_deletes()
    mirror.check()
    mirror.upsert([(1, "b", 1)], "id", branch="own")
    mirror.check()
    assert found(stock(table)).total() == len(mirror.branches["main"])
