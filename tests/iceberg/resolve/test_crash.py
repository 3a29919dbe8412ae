"""A resolve that is killed: the target reads as before or as after, and the next call goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import IcebergTable
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.commit.lock_state import lock_tags
from delvec.iceberg.resolve import resolve as resolver
from delvec.iceberg.resolve import step
from delvec.iceberg.resolve.find import FoundRows
from delvec.iceberg.resolve.step import Step
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import open_index
from tests.conversion.targets import Killed, numbered
from tests.iceberg.deletes.tables import by_spark, new_table
from tests.iceberg.search.indexes import compare_index
from tests.repository import ROOT

pytestmark = pytest.mark.spark

STAGING = "changes"
COLUMNS = "id bigint, n int, s string"
OLD = [(number, 0) for number in range(10)]
NEW = [(0, 0), (1, 1), (4, 0), (5, 2), (6, 0), (7, 0), (8, 0), (9, 0), (11, 1), (12, 2)]


def frame(spark: SparkSession, n: int, *ids: int) -> DataFrame:
    return spark.createDataFrame([(each, n, f"s{each}") for each in ids], COLUMNS)


def rows(table: IcebergTable) -> list[tuple[Any, ...]]:
    table.spark.catalog.refreshTable(table.name)
    found = table.spark.sql(f"SELECT id, n FROM {table.name}").collect()
    return sorted(map(tuple, found))


def staged_table(spark: SparkSession, version: int) -> IcebergTable:
    """A table of the rows OLD, with staged changes after which they are NEW."""
    table = delvec.IcebergTable.for_name(spark, new_table(spark, version=version))
    table.append(frame(spark, 0, *range(10)))
    table.upsert(frame(spark, 1, 1, 5, 11), "id", branch=STAGING)
    table.delete_keys([2, 3, 99], "id", branch=STAGING)
    table.upsert(frame(spark, 2, 5, 12), "id", branch=STAGING)
    return table


def unlock(table: IcebergTable) -> None:
    """End the lock of the dead, as the end of its lease does."""
    for tag in lock_tags(load_table(table.spark, table.identifier).metadata):
        table.drop_tag(tag)


def check_end(table: IcebergTable) -> None:
    """All was taken over once, and nothing is left of deletes by key."""
    assert rows(table) == NEW
    found = table.spark.sql(f"SELECT content, file_path FROM {table.name}.files").collect()
    assert {row[0] for row in found} <= {0, 1}
    paths = [row[1] for row in found if row[0] == 0]
    assert len(paths) == len(set(paths))
    taken = table.history().where("summary['delvec.operation'] = 'resolve'").count()
    assert taken == 1
    assert table.check().ok
    assert table.resolve("id", staging=STAGING).snapshot_id is None
    assert rows(table) == NEW


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_a_resolve_that_dies_at_any_call_is_made_good_by_the_next(
    spark: SparkSession, version: int
) -> None:
    whole = staged_table(spark, version)
    with numbered() as calls:
        whole.resolve("id", staging=STAGING)
    names, published = calls.names, len(calls.names) - 2
    assert [names[0], *names[published:]] == ["commit"] * 3
    assert set(names[1:published]) == {"write"}
    for number in range(len(names)):
        if version == 3 and number == 0:
            continue  # the lock alone
        table = staged_table(spark, version)
        with numbered(kill=(number, "after")) as calls, pytest.raises(Killed):
            table.resolve("id", staging=STAGING)
        assert calls.names[: number + 1] == names[: number + 1]
        assert rows(table) == (NEW if number >= published else OLD)
        unlock(table)
        report = table.resolve("id", staging=STAGING)
        assert (report.snapshot_id is None) == (number >= published)
        check_end(table)


POINTS: dict[str, tuple[Any, str, str]] = {
    "planned": (Step, "_planned", "after"),
    "found": (FoundRows, "search", "after"),
    "vectors written": (step, "write_position_vectors", "after"),
    "manifests written": (step, "require_deletes", "after"),
    "committed": (step, "commit_change", "after"),
    "index not updated": (resolver, "update_index", "before"),
    "index updated": (resolver, "update_index", "after"),
    "staging not restarted": (resolver, "restart_branch", "before"),
    "staging restarted": (resolver, "restart_branch", "after"),
}
BEFORE = {"planned", "found", "vectors written", "manifests written"}


@pytest.mark.slow
@pytest.mark.parametrize(("point", "version"), list(zip(POINTS, cycle([3, 2]), strict=False)))
def test_a_process_that_is_killed_leaves_a_target_to_go_on_from(
    spark: SparkSession, point: str, version: int
) -> None:
    table = staged_table(spark, version)
    table.build_index("id")
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse") or ""
    done = subprocess.run(
        [sys.executable, "-m", "tests.iceberg.resolve.test_crash", warehouse, table.name, point],
        cwd=ROOT,
        check=False,
        capture_output=True,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert rows(table) == (OLD if point in BEFORE else NEW)
    assert lock_tags(load_table(spark, table.identifier).metadata)
    unlock(table)
    report = table.resolve("id", staging=STAGING, index="index", restart_staging=True)
    assert (report.snapshot_id is not None) == (point in BEFORE)
    check_end(table)
    newest = load_table(spark, table.identifier)
    head = newest.metadata.head()
    assert head is not None
    ids = [newest.metadata.schema["fields"][0]["id"]]
    index = open_index(newest, ids)
    assert index is not None
    found = compare_index(newest, head.id, index)
    assert (found.missing, found.wrong) == (0, 0)
    found = compare_index(newest, head.id, update_index(newest, head.id, ids))
    assert (found.files, found.missing, found.wrong) == (0, 0, 0)
    # The branch is as good as new.
    table.upsert(frame(spark, 3, 5), "id", branch=STAGING)
    table.resolve("id", staging=STAGING, index="index", restart_staging=True)
    assert by_spark(spark, table.name, "n") == [0, 0, 0, 0, 0, 0, 1, 1, 2, 3]
    table.expire_snapshots("2100-01-01", retain_last=1)
    assert by_spark(spark, table.name, "n") == [0, 0, 0, 0, 0, 0, 1, 1, 2, 3]


def _die_at(warehouse: str, name: str, point: str) -> None:
    """Resolve, and die at a point."""
    spark = delvec.session(
        warehouse,
        master="local[1]",
        conf={"spark.driver.memory": "512m", "spark.ui.enabled": "false"},
    )
    owner, method, when = POINTS[point]
    real: Callable[..., Any] = getattr(owner, method)

    def die(*arguments: Any, **named: Any) -> None:  # noqa: ANN401
        if when == "after":
            real(*arguments, **named)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    setattr(owner, method, die)
    table = delvec.IcebergTable.for_name(spark, name)
    table.resolve("id", staging=STAGING, index="index", restart_staging=True)


if __name__ == "__main__":
    _die_at(*sys.argv[1:])
