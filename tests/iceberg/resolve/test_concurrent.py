"""Commits of others between the plan of a resolve and its commit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import IcebergTable
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.failures import CommitStateUnknownError
from delvec.iceberg.commit import commit as attempts
from delvec.iceberg.commit.branch_commit import commit_change
from delvec.iceberg.commit.lock import hold_lock
from delvec.iceberg.resolve import step
from delvec.iceberg.resolve.plan import ResolveOptions
from delvec.iceberg.resolve.resolve import resolve
from delvec.iceberg.search.key_index import open_index
from delvec.iceberg.table import maintenance
from tests.iceberg.deletes.tables import new_table
from tests.iceberg.resolve.following import following, shared_catalog
from tests.iceberg.search.indexes import compare_index

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

    def refuse(*_: object) -> None:
        pytest.fail("planned twice")

    with monkeypatch.context() as patch:
        patch.setattr(step, "plan_resolve", refuse)
        assert resolved(table, how).keys == 4
    branch = "main" if how == "in place" else STAGING
    table.delete_keys([0], "id", branch=branch)

    def late(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        table.delete_keys([1], "id", branch=branch)
        return real(*arguments, **named)

    monkeypatch.setattr(maintenance, "hold_lock", late)
    assert resolved(table, how).keys == 2
    assert rows(table) == sorted(AFTER.items())[2:]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("how", ["in place", "staged"])
def test_a_rollback_between_plan_and_commit(spark: SparkSession, how: str, version: int) -> None:
    table = table_with_changes(spark, version, how)
    first = table.history().where("parent_id IS NULL").first()
    assert first is not None
    table.append(frame(spark, 7, 50))

    with meanwhile(lambda: table.rollback(first["snapshot_id"])):
        report = resolved(table, how)
    # In place the deletes are gone with the rollback.
    expected = [(each, 0) for each in range(10)] if how == "in place" else sorted(AFTER.items())
    assert rows(table) == expected
    assert report.commits == (how == "staged")
    assert resolved(table, how).commits == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "version"), [("staged", 3), ("staged", 2), ("in place", 2), ("in place", 3)]
)
def test_another_resolver_between_plan_and_commit(
    spark: SparkSession, how: str, version: int
) -> None:
    """The lock would keep it out; nothing may hang on that."""
    table = table_with_changes(spark, version, how)
    choices = ResolveOptions(staging=None if how == "in place" else STAGING)
    with meanwhile(lambda: resolve(table._load(), choices)) as seen:
        report = resolved(table, how)
    assert len(seen) == 2  # its own, and that of the other
    assert report.commits == 0
    assert rows(table) == sorted(AFTER.items())
    made = table.history().where("summary['delvec.operation'] = 'resolve'").count()
    assert made == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["in place", "staged"])
@pytest.mark.parametrize("change", ["ADD COLUMN extra int", "DROP COLUMN s", "DROP COLUMN id"])
def test_a_schema_change_between_plan_and_commit(
    spark: SparkSession, how: str, change: str
) -> None:
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


@contextmanager
def no_answer(spark: SparkSession, *, committed: bool) -> Iterator[None]:
    """Let the catalog not answer to the first commit of a snapshot, which happens or not."""
    real, seen = attempts._publish, list[None]()
    view: Any = spark._jvm

    class Silent:
        """A transaction whose catalog does not answer."""

        def __init__(self, transaction: Any) -> None:  # noqa: ANN401
            self._transaction = transaction

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            return getattr(self._transaction, name)

        def underlyingOps(self) -> Silent:  # noqa: N802
            return self

        def commit(self, start: Any, final: Any) -> None:  # noqa: ANN401
            if committed:
                self._transaction.underlyingOps().commit(start, final)
            cause = view.java.lang.RuntimeException("no answer")
            made = view.org.apache.iceberg.exceptions.CommitStateUnknownException(cause)
            raise Py4JJavaError("commit", made)

    def publish(table: Any, transaction: Any, snapshot_id: Any) -> None:  # noqa: ANN401
        if snapshot_id is not None and not seen:
            seen.append(None)
            transaction = replace(transaction, handle=Silent(transaction.handle))
        real(table, transaction, snapshot_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "_publish", publish)
        yield
    assert seen


@pytest.mark.slow
@pytest.mark.parametrize("how", ["staged", "in place"])
def test_a_commit_without_an_answer_is_settled(spark: SparkSession, how: str) -> None:
    table = table_with_changes(spark, 3, how)
    before = rows(table)
    with no_answer(spark, committed=False), pytest.raises(CommitStateUnknownError):
        resolved(table, how)
    assert rows(table) == before
    with no_answer(spark, committed=True):
        report = resolved(table, how)
    assert report.commits == 1
    assert rows(table) == sorted(AFTER.items())
    assert resolved(table, how).commits == 0


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
def test_a_writer_commits_each_second_beside_a_service(
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
