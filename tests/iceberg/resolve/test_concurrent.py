"""Commits of others between the plan of a resolve and its commit, and resolves that are killed.

The target reads as before or as after, and the next call goes on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import IcebergTable
from delvec.errors import ConflictError, StorageError
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.failures import CommitStateUnknownError
from delvec.iceberg.commit.branch_commit import commit_change
from delvec.iceberg.commit.lock import hold_lock
from delvec.iceberg.commit.lock_state import lock_tags
from delvec.iceberg.resolve import resolve as resolver
from delvec.iceberg.resolve import resolve as step
from delvec.iceberg.resolve.find import FoundRows
from delvec.iceberg.resolve.plan import ResolveOptions, ResolvePlan, plan_resolve
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.resolve.resolve import Step, resolve
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import open_index
from delvec.iceberg.table import maintenance
from tests.conversion.targets import Killed, numbered
from tests.iceberg.deletes.tables import by_spark, lost, never, new_table
from tests.iceberg.resolve.following import following, shared_catalog
from tests.iceberg.search.indexes import compare_index
from tests.repository import ROOT

pytestmark = pytest.mark.spark

STAGING = "changes"
COLUMNS = "id bigint, n int, s string"


def frame(spark: SparkSession, n: int, *ids: int) -> DataFrame:
    return spark.createDataFrame([(each, n, f"s{each}") for each in ids], COLUMNS)


def rows(table: IcebergTable, columns: str = "id, n") -> list[tuple[Any, ...]]:
    table.spark.catalog.refreshTable(table.name)
    found = table.spark.sql(f"SELECT {columns} FROM {table.name}").collect()
    return sorted(map(tuple, found))


def equality_deletes(table: IcebergTable) -> int:
    table.spark.catalog.refreshTable(table.name)
    found = table.spark.sql(f"SELECT * FROM {table.name}.delete_files WHERE content = 2")
    return found.count()


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[list[int]]:
    """Do something once, when a resolve is about to commit; the list gets one of each attempt."""
    real, seen = commit_change, list[int]()

    def commit(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        seen.append(len(seen))
        if len(seen) == 1:
            act()
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "commit_change", commit)
        yield seen


def table_with_changes(spark: SparkSession, version: int, how: str) -> IcebergTable:
    """Rows 0 to 9; then 2 and 99 are deleted, 5 and 11 are upserted, in place or staged."""
    table = delvec.IcebergTable.for_name(spark, new_table(spark, version=version))
    table.append(frame(spark, 0, *range(10)))
    branch = "main" if how == "in place" else STAGING
    table.delete_keys([2, 99], "id", branch=branch)
    table.upsert(frame(spark, 1, 5, 11), "id", branch=branch)
    return table


def resolved(table: IcebergTable, how: str) -> Any:  # noqa: ANN401
    return table.resolve("id", staging=None if how == "in place" else STAGING, verify="rows")


AFTER = {0: 0, 1: 0, 3: 0, 4: 0, 5: 1, 6: 0, 7: 0, 8: 0, 9: 0, 11: 1}


@pytest.mark.parametrize("how", ["in place", "staged"])
def test_what_is_committed_while_it_waits_for_the_lock_is_resolved_too(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The work that was found before is planned again then, and else it is not."""
    table = table_with_changes(spark, 3, how)
    real = hold_lock
    plans: list[object] = []

    def count(*arguments: Any) -> ResolvePlan:  # noqa: ANN401
        plans.append(arguments)
        return plan_resolve(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(step, "plan_resolve", count)
        assert resolved(table, how).keys == 4
    assert len(plans) == 1
    branch = "main" if how == "in place" else STAGING
    table.delete_keys([0], "id", branch=branch)

    def late(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        table.delete_keys([1], "id", branch=branch)
        return real(*arguments, **named)

    monkeypatch.setattr(maintenance, "hold_lock", late)
    assert (resolved(table, how).keys, rows(table)) == (2, sorted(AFTER.items())[2:])


@pytest.mark.slow
def test_a_branch_that_is_dropped_meanwhile_is_not_taken_over(spark: SparkSession) -> None:
    table = table_with_changes(spark, 3, "staged")
    with (
        meanwhile(lambda: table.drop_branch(STAGING)),
        pytest.raises(ConflictError, match="was dropped or moved meanwhile"),
    ):
        resolved(table, "staged")
    assert rows(table) == [(each, 0) for each in range(10)]


@pytest.mark.slow
def test_rows_that_are_appended_during_a_verification(spark: SparkSession) -> None:
    table = table_with_changes(spark, 3, "in place")
    with meanwhile(lambda: table.append(frame(spark, 3, 77))):
        resolved(table, "in place")
    assert rows(table) == [*sorted(AFTER.items()), (77, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("how", ["in place", "staged"])
def test_a_rollback_in_between(spark: SparkSession, how: str, version: int) -> None:
    table = table_with_changes(spark, version, how)
    first = table.history().where("parent_id IS NULL").first()
    assert first is not None
    table.append(frame(spark, 7, 50))

    with meanwhile(lambda: table.rollback(first["snapshot_id"])):
        report = resolved(table, how)
    # In place the deletes are gone with the rollback.
    expected = [(each, 0) for each in range(10)] if how == "in place" else sorted(AFTER.items())
    assert (rows(table), report.commits) == (expected, how == "staged")
    assert resolved(table, how).commits == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "version"), [("staged", 3), ("staged", 2), ("in place", 2), ("in place", 3)]
)
def test_another_resolver_in_between(spark: SparkSession, how: str, version: int) -> None:
    """The lock would keep it out; nothing may hang on that."""
    table = table_with_changes(spark, version, how)
    choices = ResolveOptions(staging=None if how == "in place" else STAGING)
    with meanwhile(lambda: resolve(table._load(), choices)) as seen:
        report = resolved(table, how)
    assert len(seen) == 2  # its own, and that of the other
    assert (report.commits, rows(table)) == (0, sorted(AFTER.items()))
    made = table.history().where("summary['delvec.operation'] = 'resolve'").count()
    assert made == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["in place", "staged"])
@pytest.mark.parametrize("change", ["ADD COLUMN extra int", "DROP COLUMN s", "DROP COLUMN id"])
def test_a_schema_change_in_between(spark: SparkSession, how: str, change: str) -> None:
    table = table_with_changes(spark, 3, how)

    def alter() -> None:
        spark.catalog.refreshTable(table.name)
        spark.sql(f"ALTER TABLE {table.name} {change}")

    with meanwhile(alter):
        report = resolved(table, how)
    assert report.commits == 1
    keyless = change == "DROP COLUMN id"
    # The index is of a key that is gone; what was committed stays.
    assert any("was not brought up to date" in each for each in report.notes) == keyless
    staging = None if how == "in place" else STAGING
    table.resolve(None if keyless else "id", staging=staging)
    if keyless:
        assert rows(table, "n") == sorted((n,) for n in AFTER.values())
    else:
        assert rows(table) == sorted(AFTER.items())
    assert equality_deletes(table) == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["staged", "in place"])
def test_a_commit_without_an_answer_is_settled(spark: SparkSession, how: str) -> None:
    table = table_with_changes(spark, 3, how)
    before = rows(table)
    # The lock, the file of vectors, the snapshot.
    with numbered({2: never}) as calls, pytest.raises((CommitStateUnknownError, RuntimeError)):
        resolved(table, how)
    assert (calls.names[:3], rows(table)) == (["commit", "write", "commit"], before)
    with numbered({2: lost}):
        report = resolved(table, how)
    assert (report.commits, rows(table)) == (1, sorted(AFTER.items()))
    assert resolved(table, how).commits == 0


@pytest.mark.more
def test_a_branch_that_cannot_begin_anew_leaves_the_report_of_what_was_taken_over(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StorageError("the catalog is away")

    table = table_with_changes(spark, 3, "staged")
    monkeypatch.setattr(step, "restart_branch", away)
    with pytest.raises(StorageError, match=r"away \(committed before: snapshot") as told:
        table.resolve("id", staging=STAGING, restart_staging=True)
    assert isinstance(told.value.report, ResolveReport)
    assert (told.value.report.commits, rows(table)) == (1, sorted(AFTER.items()))


def random_changes(
    table: IcebergTable, numbers: random.Random, seconds: float, model: dict[int, int]
) -> None:
    """Commit about once a second, staged and to the target, and to the model.

    Staged changes are of keys below 100, and those of the target of others: which of two changes of
    a key is the later one would hang on when it is taken over.
    """
    spark, end, count = table.spark, time.monotonic() + seconds, 0
    while time.monotonic() < end:
        begin = time.monotonic()
        count += 1
        kind = numbers.choice(["upsert", "upsert", "delete", "append", "sql"])
        ids = numbers.sample(range(100), 5)
        if kind == "upsert":
            table.upsert(frame(spark, count, *ids), "id", branch=STAGING)
            model |= dict.fromkeys(ids, count)
        elif kind == "delete":
            table.delete_keys(ids, "id", branch=STAGING)
            for each in ids:
                model.pop(each, None)
        elif kind == "append":
            table.append(frame(spark, count, 1000 + count))
            model[1000 + count] = count
        else:
            direct = [key for key in model if key >= 1000][:1]
            if direct:
                spark.catalog.refreshTable(table.name)
                spark.sql(f"DELETE FROM {table.name} WHERE id = {direct[0]}")
                del model[direct[0]]
        time.sleep(max(0.0, begin + 1 - time.monotonic()))


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_a_writer_commits_beside_a_service(
    spark: SparkSession, tmp_path: Path, version: int
) -> None:
    catalog, settings = shared_catalog(spark, tmp_path)
    name = f"{catalog}.db.t"
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING iceberg TBLPROPERTIES"
        f" ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    table = delvec.IcebergTable.for_name(spark, name)
    table.append(frame(spark, 0, *range(100)))
    table.create_branch(STAGING)
    table.build_index("id")
    seed = random.randrange(1 << 32)
    options = ["--key", "id", "--staging", STAGING, "--index", "index", "--interval", "2s"]
    with following(name, settings, tmp_path, *options) as follower:
        follower.wait()
        model = dict.fromkeys(range(100), 0)
        random_changes(table, random.Random(seed), 60, model)
        follower.stop()
    table.resolve("id", staging=STAGING, index="index")
    assert rows(table) == sorted(model.items()), seed
    assert follower.metrics["commits"] > 1, follower.documents
    assert equality_deletes(table) == 0
    assert table.check().ok
    newest = load_table(spark, table.identifier)
    head = newest.metadata.head()
    assert head is not None
    index = open_index(newest, [newest.metadata.schema["fields"][0]["id"]])
    assert index is not None
    difference = compare_index(newest, head.id, index)
    assert (difference.files, difference.missing, difference.wrong) == (0, 0, 0)


OLD = [(number, 0) for number in range(10)]
NEW = [(0, 0), (1, 1), (4, 0), (5, 2), (6, 0), (7, 0), (8, 0), (9, 0), (11, 1), (12, 2)]


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
def test_a_resolve_that_dies_is_made_good_by_the_next(spark: SparkSession, version: int) -> None:
    whole = staged_table(spark, version)
    with numbered() as calls:
        whole.resolve("id", staging=STAGING)
    names, published = calls.names, len(calls.names) - 2
    assert ([names[0], *names[published:]], set(names[1:published])) == (["commit"] * 3, {"write"})
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
def test_a_killed_process_leaves_a_good_target(
    spark: SparkSession, point: str, version: int
) -> None:
    table = staged_table(spark, version)
    table.build_index("id")
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse") or ""
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.test_concurrent", warehouse, table.name, point],
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
