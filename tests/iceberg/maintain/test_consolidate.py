"""Consolidated equality deletes delete the same rows, for stock Iceberg and for delvec."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.errors import ConflictError, InvalidArgumentError
from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.file_scan import write_data_files
from delvec.iceberg.commit import branch_commit
from delvec.iceberg.maintain import consolidate
from delvec.iceberg.maintain import delete_groups as group_keys
from delvec.spark import jvm
from delvec.storage.listed_files import local_path
from tests.iceberg.deletes.foreign import column, delete_by_java, table_of
from tests.iceberg.deletes.tables import open_new, rewrite_data_files
from tests.iceberg.deletes.test_equality_files import KINDS
from tests.iceberg.maintain.tables import (
    ENABLED,
    deletes,
    insert,
    loaded,
    own,
    staging_table,
    stock,
)
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark


def rows(*ids: int) -> str:
    return ", ".join(f"({each}, 's{each}')" for each in ids)


def deleted(table: IcebergTable, *ids: int) -> set[str]:
    """Insert rows, delete the first two in a commit each; return the names of delete files."""
    insert(table, rows(*ids))
    for key in (1, 2):
        table.delete_keys([key], "id")
    return files_of(table)


def numbers(table: IcebergTable, branch: str = "main") -> list[int]:
    return [each.sequence_number for each in deletes(table, branch)]


def unchanged(table: IcebergTable, branch: str = "main") -> Any:  # noqa: ANN401
    """Consolidate a branch, and compare its rows before and after."""
    before = stock(table, branch)
    report = table.consolidate_deletes(branch)
    assert stock(table, branch) == own(table, branch) == before
    return report


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("version", [2, 3])
def test_small_deletes_become_one_of_the_last_number(spark: SparkSession, version: int) -> None:
    table = open_new(spark, version=version, properties=ENABLED)
    insert(table, rows(*range(1, 9)))
    for key in (1, 2, 3, 2):
        table.delete_keys([key], "id")
    plan = table.consolidate_deletes(dry_run=True)
    assert (plan.files_before, plan.files_after, plan.snapshot_id) == (4, 1, None)
    assert len(deletes(table)) == 4
    report = unchanged(table)
    assert (report.files_before, report.files_after, report.vectors_after) == (4, 1, 0)
    assert (report.keys_before, report.keys_after, report.merged) == (4, 3, 4)
    [merged] = deletes(table)
    assert (merged.sequence_number, merged.record_count, report.bytes_after) == (5, 3, merged.size)
    assert [row[0] for row in stock(table)] == [4, 5, 6, 7, 8]
    again = table.consolidate_deletes()
    assert again.snapshot_id is None
    assert "nothing to do" in str(again)
    insert(table, rows(1))  # newer than the merged delete
    assert [row[0] for row in stock(table)] == [1, 4, 5, 6, 7, 8]
    assert report.to_json()["unmerged"] == []


def test_a_key_that_was_inserted_between_two_deletes_of_others_stays(spark: SparkSession) -> None:
    table = open_new(spark)
    insert(table, rows(1, 2, 3, 4))
    table.delete_keys([1], "id")
    insert(table, rows(1))
    table.delete_keys([2], "id")
    table.delete_keys([3], "id")
    report = unchanged(table)
    assert (numbers(table), [row[0] for row in stock(table)]) == ([2, 5], [1, 4])
    [apart] = report.unmerged
    assert (apart.columns, apart.scope, apart.deletes) == (("id",), "global", 2)
    assert "sequence number 3" in str(report)


@pytest.mark.slow
def test_partitions_and_specs_are_kept_apart(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, p string", "PARTITIONED BY (p)")
    for partition in ("'a'", "'null'", "null"):
        insert(table, ", ".join(f"({each}, {partition})" for each in range(1, 7)))
    for key in (1, 2):
        for value in ("a", "null", None):
            table.delete_keys([key], "id", partition={"p": value})
    insert(table, "(1, 'a')")  # data in between, for the partition a and for global deletes
    for key in (3, 4):
        for value in ("a", "null", None):
            table.delete_keys([key], "id", partition={"p": value})
        table.delete_keys([key + 2], "id")
    report = unchanged(table)
    assert (report.files_before, report.files_after) == (14, 5)
    [apart] = report.unmerged
    assert (apart.scope, apart.deletes) == ("p=a", 2)
    spark.sql(f"ALTER TABLE {table.name} ADD PARTITION FIELD bucket(2, id)")
    insert(table, "(7, 'a'), (8, 'null'), (9, null)")
    for key in (7, 8):
        table.delete_keys([key], "id")
    report = unchanged(table)
    assert report.merged == 2  # the earlier global delete has data after it
    assert len(stock(table)) == 2


@pytest.mark.slow
def test_composite_and_null_keys_of_changed_columns(spark: SparkSession) -> None:
    table = open_new(spark, "a int, b string, c decimal(9, 2), d date", version=2)
    values = ", ".join(
        f"({each}, 'b{each}', {each}.5, DATE'2024-01-0{each}')" for each in range(1, 7)
    )
    insert(table, f"{values}, (null, 'n', null, null), (7, null, 7.5, null)")
    for pair in ((1, "b1"), (None, "n"), (2, "none"), (7, None)):
        table.delete_keys([pair], columns=["a", "b"])
    for other in (("b3", 3), ("b4", 4)):
        table.delete_keys([other], columns=["b", "a"])
    for number in ("5.5", "9.5"):
        table.delete_keys(spark.sql(f"SELECT CAST({number} AS DECIMAL(9, 2)) AS c"), "c")
    for day in ("2024-01-06", "2024-01-02"):
        table.delete_keys(spark.sql(f"SELECT DATE'{day}' AS d"), "d")
    for change in (
        "ALTER COLUMN a TYPE bigint",
        "ALTER COLUMN c TYPE decimal(12, 2)",
        "RENAME COLUMN b TO z",
        "DROP COLUMN d",
    ):
        spark.sql(f"ALTER TABLE {table.name} {change}")
    assert stock(table) == []
    report = unchanged(table)
    assert (report.files_before, report.files_after, report.keys_after) == (10, 3, 10)
    assert report.unmerged == ()


@pytest.mark.slow
def test_vectors_of_a_staging_branch_stay_vectors(spark: SparkSession) -> None:
    table = staging_table(spark, rows(*range(1, 20)))
    for key in (1, 2, 3):
        table.delete_keys([key], "id", branch="stage")
    table.delete_keys([-1, None, 4], "id", branch="stage")
    before = own(table, "stage")
    report = table.consolidate_deletes("stage")
    assert (report.vectors_before, report.files_before) == (4, 1)
    assert (report.vectors_after, report.files_after, own(table, "stage")) == (1, 1, before)
    assert sorted(each.record_count for each in deletes(table, "stage")) == [2, 4]
    assert numbers(table, "stage") == [6, 6]
    assert table.consolidate_deletes("stage").snapshot_id is None
    assert len(stock(table)) == 19


@pytest.mark.slow
def test_vectors_that_others_brought_to_main_become_readable(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = staging_table(spark, rows(*range(1, 20)))
    table.delete_keys([1], "id", branch="stage")
    insert(table, rows(1), "stage")
    table.delete_keys([2], "id", branch="stage")
    before = own(table, "stage")
    catalog, name = table.name.split(".", 1)
    spark.sql(f"CALL {catalog}.system.fast_forward('{name}', 'main', 'stage')")
    with pytest.raises(Exception, match="not a Parquet file"):
        stock(table)
    found = numbers(table)
    report = table.consolidate_deletes()
    assert (report.vectors_before, report.vectors_after, report.repaired) == (2, 0, 2)
    assert stock(table) == own(table) == before
    assert numbers(table) == found
    monkeypatch.setattr(group_keys, "_MOST_KEYS", 0)  # as if they were too many for one job
    report = table.consolidate_deletes("stage")  # it shares the snapshots of main
    assert (report.repaired, report.keys_after, stock(table, "stage")) == (2, 2, before)


def test_deletes_that_compaction_applied_are_removed(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, p int", "PARTITIONED BY (p)")
    insert(table, "(1, 1), (2, 1), (3, 2), (4, 2)")
    table.delete_keys([1], "id")
    table.delete_keys([2], "id", partition={"p": 1})
    table.delete_keys([3], "id", partition={"p": 2})
    rewrite_data_files(spark, table.name, "p = 1")
    report = unchanged(table)
    # The global one applies to partition 2 as well.
    assert (report.dangling, report.files_after, report.merged) == (1, 2, 0)
    spark.sql(f"DELETE FROM {table.name} WHERE p = 2")
    assert unchanged(table).files_after == 0


def concurrently(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], times: int = 1
) -> list[int]:
    """Let somebody else commit between the plan and the commit, so many times."""
    commit = branch_commit.commit_rewrite
    calls: list[int] = []

    def raced(*args: Any) -> Any:  # noqa: ANN401
        if len(calls) < times:
            change()
        calls.append(len(args[2]))
        return commit(*args)

    monkeypatch.setattr(consolidate, "commit_rewrite", raced)
    return calls


def files_of(table: IcebergTable) -> set[str]:
    return {
        each.name for each in Path(local_path(table.location), "data").glob("*-deletes.parquet")
    }


@pytest.mark.more
def test_an_append_in_between_leaves_the_merged_files_usable(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_new(spark)
    written = deleted(table, 1, 2, 3, 4)
    calls = concurrently(monkeypatch, lambda: insert(table, rows(1, 5)))
    report = table.consolidate_deletes()
    assert (report.conflicts, calls, [row[0] for row in stock(table)]) == (1, [1, 1], [1, 3, 4, 5])
    assert len(files_of(table) - written) == 1  # written once


def test_a_compaction_in_between_calls_for_another_plan(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_new(spark)
    written = deleted(table, 1, 2, 3, 4)
    calls = concurrently(monkeypatch, lambda: rewrite_data_files(spark, table.name))
    report = table.consolidate_deletes()
    # Iceberg itself removes deletes that are older than all data, when it rewrites a manifest.
    assert (report.conflicts, report.dangling, report.merged, calls) == (1, 1, 0, [1, 0])
    assert [row[0] for row in stock(table)] == [3, 4]
    assert files_of(table) == written  # what was not committed is gone


@pytest.mark.more
def test_conflicts_come_to_an_end(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_new(spark)
    written = deleted(table, 1, 2, 3)
    monkeypatch.setattr(consolidate, "_ATTEMPTS", 2)
    concurrently(monkeypatch, lambda: insert(table, rows(9)), times=9)
    with pytest.raises(ConflictError, match="2 times in a row"):
        table.consolidate_deletes()
    assert files_of(table) == written


@pytest.mark.slow
def test_executors_write_large_groups(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_new(spark, "id bigint, u string")
    insert(table, ", ".join(f"({each}, 'u{each}')" for each in range(10)))
    for start in (0, 4):
        table.delete_keys([f"u{each}" for each in range(start, start + 4)], "u")
    monkeypatch.setattr(group_keys, "_MOST_KEYS", 3)
    with settings_of(spark, {"spark.delvec.iceberg.keyMemory": "1"}):
        report = unchanged(table)
    assert (report.files_after, report.keys_after) == (1, 8)
    assert "written by executors" in str(report)


def test_only_branches_are_consolidated(spark: SparkSession) -> None:
    table = open_new(spark)
    assert table.consolidate_deletes().snapshot_id is None
    insert(table, rows(1))
    table.create_tag("v1")
    for name in ("v1", "none"):
        with pytest.raises(InvalidArgumentError, match=name):
            table.consolidate_deletes(name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_leave_the_rows_as_they_are(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    table = open_new(
        spark, "id bigint, p int", "PARTITIONED BY (p)", 2 + seed % 2, ENABLED if seed % 3 else {}
    )
    insert(table, "(0, 0)")
    live = {(0, 0)}
    for _ in range(14):
        step = chance.choice(
            ["insert", "delete", "delete", "scoped", "scoped", "upsert", "compact"]
        )
        keys = chance.sample(range(12), 3)
        part = chance.randint(0, 1)
        if step == "insert":
            new = {(key, part) for key in keys} - live
            if new:
                insert(table, ", ".join(f"({key}, {part})" for key, part in new))
            live |= new
        elif step == "delete":
            table.delete_keys(keys, "id")
            live = {row for row in live if row[0] not in keys}
        elif step == "scoped":
            table.delete_keys(keys, "id", partition={"p": part})
            live = {row for row in live if row[0] not in keys or row[1] != part}
        elif step == "upsert":
            table.upsert(
                spark.createDataFrame([(key, part) for key in keys], "id long, p int"), "id"
            )
            live = {row for row in live if row[0] not in keys} | {(key, part) for key in keys}
        else:
            rewrite_data_files(spark, table.name, f"p = {part}")
        if chance.random() < 0.4:
            table.consolidate_deletes()
        assert stock(table) == own(table) == sorted(live, key=repr)
    table.consolidate_deletes()
    assert stock(table) == sorted(live, key=repr)
    assert table.consolidate_deletes().snapshot_id is None


@pytest.mark.more
def test_keys_of_38_digits_stay_exact(spark: SparkSession) -> None:
    table, large = open_new(spark, "d decimal(38, 0)"), 10**38
    insert(table, ", ".join(f"({each}BD)" for each in (large - 1, large - 2, 1 - large, 2 - large)))
    for key in (large - 1, 1 - large, large - 1):
        table.delete_keys([Decimal(key)], "d")
    report = unchanged(table)
    assert (report.files_before, report.files_after, report.keys_after) == (3, 1, 2)
    assert stock(table) == [(Decimal(2 - large),), (Decimal(large - 2),)]


@pytest.mark.slow
def test_keys_of_all_types_stay_exact(spark: SparkSession) -> None:
    kinds = {kind: each for kind, each in KINDS.items() if not kind.startswith("fixed")}
    columns = [column(place + 1, f"c{place}", kind) for place, kind in enumerate(kinds)]
    table = table_of(spark, columns)
    names = [each["name"] for each in columns]
    ddl = ", ".join(f"c{place} {sql}" for place, (sql, _) in enumerate(kinds.values()))
    first, second = (tuple(values[at] for _, values in kinds.values()) for at in (0, 1))
    for some in ([first, second, (None,) * len(kinds)], [first]):
        table.append(spark.createDataFrame(some, ddl).coalesce(1))
    keys = spark.table(table.name)
    one = keys.where("c1 = -5").select(*names)
    for some_keys in (one, keys.where("c1 IS NULL").select(*names), one):
        table.delete_keys(some_keys, columns=names)
    before = stock(table)
    assert len(before) == 1
    report = table.consolidate_deletes()
    assert (report.files_after, report.keys_after) == (1, 2)
    assert stock(table) == own(table) == before
    assert table.check().findings == ()


@pytest.mark.slow
def test_files_of_other_writers_and_formats_are_merged(spark: SparkSession) -> None:
    columns = [column(1, "id", "long"), column(2, "s", "string"), column(3, "f", "fixed[2]")]
    table = table_of(spark, columns)
    insert(table, ", ".join(f"({each}, 's{each}', X'0{each}0{each}')" for each in range(1, 8)))
    for key, kind in ((1, "PARQUET"), (2, "ORC"), (3, "AVRO")):
        delete_by_java(table, [{"id": key, "s": "not a key"}], ["id"], file_format=kind)
    delete_by_java(table, [{"id": None}], ["id"])
    for key in (4, 5):
        table.delete_keys([bytes([key, key])], "f")
    before = stock(table)
    assert [row[0] for row in before] == [6, 7]
    kinds = sorted(each.file_format for each in deletes(table) if each.equality_ids == (1,))
    assert kinds == ["avro", "orc", "parquet", "parquet"]
    report = table.consolidate_deletes()
    assert stock(table) == own(table) == before
    assert (report.files_before, report.files_after) == (6, 3)
    [apart] = report.unmerged
    assert (apart.columns, apart.deletes) == (("f",), 2)
    assert "fixed[2]" in apart.reason


def data_file(table: IcebergTable, text: str) -> Any:  # noqa: ANN401
    view = iceberg_view(table.spark)
    node = view.util.JsonUtil.mapper().readTree(text)
    return view.ContentFileParser.fromJson(node, loaded(table).handle.specs())


@pytest.mark.slow
def test_a_compaction_that_began_before_changes_no_row(spark: SparkSession) -> None:
    table = open_new(spark)
    insert(table, "(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    # Iceberg loses equality deletes that come meanwhile if it replaces all data (its issue 10312).
    insert(table, "(9, 'not compacted')")
    table.delete_keys([1], "id")
    table.delete_keys(["none"], "s")
    # The compaction begins: it reads what is live, and keeps this snapshot's sequence number, 4.
    start = loaded(table)
    head = start.metadata.head()
    assert head is not None
    [*_, first] = jvm.items(iceberg_view(spark).util.SnapshotUtil.currentAncestors(start.handle))
    [replaced] = jvm.items(first.addedDataFiles(start.handle.io()))
    live = [row for row in stock(table) if row[0] != 9]
    frame = spark.createDataFrame(live, "id long, s string").coalesce(1)
    [made] = write_data_files(start, frame).to_pylist()
    # Meanwhile: another delete, and a consolidation, which gives the first one a higher number.
    table.delete_keys([2], "id")
    assert table.consolidate_deletes().merged == 2
    handle = loaded(table).handle
    rewrite = handle.newRewrite().validateFromSnapshot(head.id).dataSequenceNumber(4)
    rewrite.deleteFile(replaced)
    rewrite.addFile(data_file(table, made))
    rewrite.commit()
    assert ([row[0] for row in stock(table)], stock(table)) == ([3, 4, 9], own(table))
    insert(table, "(1, 'new'), (2, 'new')")
    assert [row[0] for row in stock(table)] == [1, 2, 3, 4, 9]
