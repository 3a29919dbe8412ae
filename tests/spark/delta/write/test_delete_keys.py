"""`delete(keys=...)`: the rows of these keys are gone, and no others; delta-spark is the judge."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import ConflictError, InvalidArgumentError
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import FEED, New, made

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of five rows; ids 0 to 19, some null; row 3 is gone."""
    rows = "IF(id = 17, NULL, id), concat('v', id % 4), date_add(DATE'2026-01-01', INT(id))"
    inserts = [
        f"INSERT INTO {{T}} SELECT {rows} FROM range({at}, {at + 5}, 1, 1)" for at in (0, 5, 10, 15)
    ]
    path, gone = tmp_path_factory.mktemp("keys") / "t", "DELETE FROM {T} WHERE id = 3"
    return made(spark, path, "id BIGINT, v STRING, d DATE", *inserts, gone, properties=FEED)


@pytest.fixture
def table(spark: SparkSession, original: Path, tmp_path: Path) -> DeltaTable:
    return DeltaTable.for_path(spark, copytree(original, tmp_path / "t"))


IDS = {*range(20), None} - {3, 17}


def ids_of(spark: SparkSession, table: DeltaTable) -> set[int | None]:
    """The ids that delta-spark reads."""
    df = spark_tables.as_delta_spark_reads(spark, table.storage.root)  # type: ignore[arg-type]
    return {row.id for row in spark_tables.collected(df.select("id"))}


TABLE = pa.table({"more": [0, 0], "v": ["v1", "v3"], "id": [5, 7]})
NAMES = pa.array(["v1", "v1", "v2"]).dictionary_encode()
RUNS = pa.table({"ID": pc.run_end_encode(pa.array([5, 5, 6])), "v": NAMES})
# The keys, their columns, and the ids of the rows that they name.
CASES: dict[str, tuple[Callable[[SparkSession], Any], str | list[str], set[int]]] = {
    "a list": (lambda _: [1, 2, 2, None, 6, 99], "id", {1, 2, 6}),
    "a long range": (lambda _: range(70_000, 3, -1), "id", IDS - {0, 1, 2, None}),
    "decimals that are whole": (lambda _: [Decimal("4.0"), Decimal(5)], "ID", {4, 5}),
    "strings": (lambda _: ["v2", "nope"], "v", {2, 6, 10, 14, 18}),
    "dates": (lambda _: [date(2026, 1, 3), date(1, 1, 1)], "d", {2}),
    "tuples": (lambda _: [(1, "v1"), (2, "v1"), (6, None)], ["id", "v"], {1}),
    "a table of Arrow": (lambda _: TABLE, ["id", "v"], {5, 7}),
    "numbers of several kinds": (lambda _: [4, np.int8(5), Decimal(6)], "id", {4, 5, 6}),
    "runs and dictionaries of Arrow": (lambda _: RUNS, ["id", "v"], {5, 6}),
    "a DataFrame": (lambda spark: spark.range(8, 12), ["id"], {8, 9, 10, 11}),
    "none": (lambda _: [], "id", set()),
    "only null": (lambda _: [None], "id", set()),
}
QUICK = {"a list", "tuples", "a table of Arrow", "none"}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_rows_of_keys_alone_are_gone(spark: SparkSession, table: DeltaTable, name: str) -> None:
    keys, on, gone = CASES[name]
    report = table.delete(keys=keys(spark), on=on)
    assert ids_of(spark, table) == IDS - gone
    assert (report.operation, report.rows_deleted, report.files_added) == ("DELETE", len(gone), 0)
    assert report.version == (6 if gone else None)


def test_a_dry_run_changes_nothing_and_files_without_keys_are_not_read(table: DeltaTable) -> None:
    report = table.delete(keys=range(20), on="id", dry_run=True)
    assert (report.dry_run, report.rows_deleted, report.version) == (True, 18, None)
    assert table.version == 5
    report = table.delete(keys=[6, 8], on="id")
    assert (report.files_scanned, report.files_pruned, report.vectors_added) == (1, 3, 1)
    assert report.scans == 1


def test_the_history_and_the_change_feed_tell_of_the_delete(table: DeltaTable) -> None:
    table.delete(keys=[(1, "v1"), (2, "v2")], on=["id", "v"], commit_metadata="request 7")
    [commit] = table.arrow_history(1).to_pylist()
    assert commit["operation"] == "DELETE"
    assert dict(commit["operationParameters"]) == {"predicate": '["(id, v) IN (2 keys)"]'}
    assert dict(commit["operationMetrics"])["numDeletedRows"] == "2"
    assert commit["userMetadata"] == "request 7"
    changes = table.changes(start_version=6).select("id", "_change_type").collect()
    assert sorted(map(tuple, changes)) == [(1, "delete"), (2, "delete")]


@pytest.mark.slow
def test_the_rows_that_are_left_are_rewritten(spark: SparkSession, table: DeltaTable) -> None:
    report = table.delete(keys=[6], on="id", rewrite_ratio=0.1)
    assert (report.files_removed, report.files_added, report.rows_copied) == (1, 1, 4)
    assert ids_of(spark, table) == IDS - {6}
    [change] = table.changes(start_version=6).collect()
    assert (change.id, change._change_type) == (6, "delete")


@pytest.mark.slow
def test_keys_that_are_shuffled_are_found_as_well(spark: SparkSession, table: DeltaTable) -> None:
    shuffled = "spark.delvec.merge.broadcastLimit", "spark.sql.autoBroadcastJoinThreshold"
    with settings_of(spark, dict(zip(shuffled, ("1", "-1"), strict=True))):
        report = table.delete(keys=range(3, 15), on="id")
    assert report.rows_deleted == 11
    assert ids_of(spark, table) == {0, 1, 2, None, 15, 16, 18, 19}


def test_keys_that_were_read_before_a_change_of_the_table_are_refused(table: DeltaTable) -> None:
    stale = table.to_df(where="v = 'v1'").select("id")
    table.update({"v": "'v1'"}, "id = 2")
    with pytest.raises(ConflictError) as caught:
        table.delete(keys=stale, on="id")
    assert not caught.value.retryable
    assert table.delete(keys=table.to_df(where="v = 'v1'"), on="id").rows_deleted == 5


def test_keys_of_other_types_are_refused(table: DeltaTable) -> None:
    for keys, on, message in (
        (["2026-01-01"], "d", "column d is date, and the keys are string"),
        ([datetime(2026, 1, 1)], "d", "column d is date, and the keys are timestamp_ntz"),  # noqa: DTZ001
        ([1, "a"], "id", "'a' is not a value of column id, which is bigint"),
        (pa.array([1]), ["id", "v"], "the keys have 1 column, expected id, v"),
        ([4.0, 5.0], "id", "column id is bigint, and the keys are double"),
        (np.array([4], np.float32), "id", "column id is bigint, and the keys are float"),
        (pa.table({"id": [4.0]}), "id", "column id is bigint, and the keys are double"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            table.delete(keys=keys, on=on)
    assert table.version == 5


@pytest.mark.slow
def test_keys_of_fixed_width_are_padded_as_conditions_are(spark: SparkSession, new: New) -> None:
    table = new("id long, code char(4)")
    table.append(pa.table({"id": [1, 2, 3, 4], "code": ["ab", "abc", "abcd", "b"]}))
    assert table.delete("code = 'ab'", dry_run=True).rows_deleted == 1
    assert table.delete(keys=["abcde", "a"], on="code").rows_deleted == 0
    assert table.delete(keys=["ab", "abcd  "], on="code").rows_deleted == 2
    with settings_of(spark, {"spark.sql.readSideCharPadding": "false"}):
        assert table.delete(keys=pa.table({"code": ["b "]}), on="code").rows_deleted == 1
    assert ids_of(spark, table) == {2}
