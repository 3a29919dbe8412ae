"""Commits to a REST catalog, which does not compare metadata as others do, and which can be away.

The tests of the commit engine that are about races and lost answers run here as well, by import:
they are given the table of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.iceberg.client.catalog import LoadedTable, load_table, table_name
from delvec.iceberg.client.failures import CommitStateUnknownError
from delvec.iceberg.commit.lock_state import lock_tags
from delvec.iceberg.commit.refs import create_branch
from tests.conversion.targets import before, ids, numbered
from tests.conversion.test_faults import LIVE
from tests.delta.builder import small_table
from tests.iceberg.commit.test_commit import (  # noqa: F401
    test_a_commit_is_done_whether_spark_forgets_the_table_or_not,
    test_a_lost_race_leaves_no_manifest,
    test_an_argument_that_is_wrong_by_now_is_a_conflict,
    test_each_kind_of_commit_without_an_answer_is_looked_for,
)
from tests.iceberg.commit.test_lock import (  # noqa: F401
    clock,
    test_a_commit_without_an_answer_is_looked_for,
    test_one_of_two_takes_a_dead_owners_lock_over,
)
from tests.iceberg.rest_server import RestServer, running_server

pytestmark = [pytest.mark.spark, pytest.mark.more]

COLUMNS = "id bigint"


@pytest.fixture(scope="session")  # as long as Spark, which keeps a catalog that it has used
def server(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    """The server of the catalog `rest`."""
    with running_server(tmp_path_factory.mktemp("rest")) as running:
        catalog = "spark.sql.catalog.rest"
        spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"{catalog}.type", "rest")
        spark.conf.set(f"{catalog}.uri", running.uri)
        spark.sql("CREATE NAMESPACE rest.db")
        yield running


@pytest.fixture
def table(spark: SparkSession, server: RestServer) -> LoadedTable:
    """A table of two commits: 1, then 2."""
    server.fail()
    name = f"rest.db.t_{uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT) USING iceberg PARTITIONED BY (bucket(2, id))"
        " TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    for number in (1, 2):
        spark.sql(f"INSERT INTO {name} VALUES ({number})")
    return load_table(spark, table_name(spark, name))


# What is done to a table of the rows 1 and 2, the commits that it takes, and the rows afterwards.
CHANGES: dict[str, tuple[Callable[[delvec.IcebergTable], object], int, list[int]]] = {
    "append": (lambda table: table.append(frame(table, 3)), 1, [1, 2, 3]),
    "upsert": (lambda table: table.upsert(frame(table, 2, 3), "id"), 1, [1, 2, 3]),
    "delete keys": (lambda table: table.delete_keys([2], "id"), 1, [1]),
    "delete": (lambda table: table.delete("id = 1"), 1, [2]),
    "resolve": (lambda table: table.resolve(), 3, [2]),
    "consolidate": (lambda table: table.consolidate_deletes(), 1, [2]),
}


def frame(table: delvec.IcebergTable, *numbers: int) -> Any:  # noqa: ANN401
    return table.spark.createDataFrame([(number,) for number in numbers], COLUMNS)


@pytest.mark.parametrize("fault", ["lost", "never"])
@pytest.mark.parametrize(
    ("change", "at"), [(change, at) for change in CHANGES for at in range(CHANGES[change][1])]
)
def test_a_server_that_does_not_answer_loses_and_repeats_nothing(
    table: LoadedTable, server: RestServer, change: str, at: int, fault: str
) -> None:
    act, commits, after = CHANGES[change]
    opened = delvec.IcebergTable.for_name(table.spark, str(table.name))
    if change in ("resolve", "consolidate"):
        for _ in range(2):
            opened.delete_keys([1], "id")
    head, rows = load_table(table.spark, table.name).metadata.head(), ids(table.spark, opened.name)
    gives_lock_back = commits > 1 and at + 1 == commits
    server.fail(*["done"] * at, fault)
    if fault == "never" and not gives_lock_back:
        with pytest.raises(CommitStateUnknownError) as told:
            act(opened)
        if commits > 1 and at == 0:
            assert f"whether {table.name} was locked for RESOLVE is not known" in str(told.value)
            assert "snapshot" not in (told.value.hint or "")
        found = load_table(table.spark, table.name).metadata
        assert (found.head(), ids(table.spark, opened.name)) == (head, rows)
        act(opened)
    else:
        act(opened)
    assert ids(table.spark, opened.name) == after
    newest = load_table(table.spark, table.name).metadata.head()
    assert head is not None
    assert newest is not None
    assert newest.parent_id == head.id
    assert opened.check().ok
    assert not lock_tags(load_table(table.spark, table.name).metadata)


def test_a_lock_that_was_not_given_back_is_free_for_the_next_call_of_its_owner(
    table: LoadedTable, server: RestServer, caplog: pytest.LogCaptureFixture
) -> None:
    opened = delvec.IcebergTable.for_name(table.spark, str(table.name))
    opened.delete_keys([1], "id")
    server.fail("done", "done", *["never"] * 3)
    opened.resolve()
    assert "was not given back" in caplog.text
    assert lock_tags(load_table(table.spark, table.name).metadata)
    opened.delete_keys([2], "id")
    opened.resolve()
    assert not lock_tags(load_table(table.spark, table.name).metadata)
    assert ids(table.spark, opened.name) == []


def test_a_branch_is_made_beside_commits_of_others_to_main(table: LoadedTable) -> None:
    """The server compares what a commit is about: other catalogs refuse the first attempt."""

    def insert() -> None:
        table.spark.sql(f"INSERT INTO {table.name} VALUES (3)")

    with numbered({0: before(insert)}) as calls:
        create_branch(table, "audit")
    assert (calls.names, ids(table.spark, str(table.name))) == (["commit"], [1, 2, 3])
    assert ids(table.spark, str(table.name), "'audit'") == [1, 2]


@pytest.mark.parametrize("at", range(3))
def test_a_conversion_is_made_good_by_the_next(
    spark: SparkSession, server: RestServer, tmp_path: Path, at: int
) -> None:
    small_table(tmp_path / "source")
    name = f"rest.db.t_{uuid4().hex[:8]}"
    for fault in ("never", "lost"):
        server.fail(*["done"] * at, fault)
        try:
            delvec.convert(spark, tmp_path / "source", name)
        except CommitStateUnknownError:
            assert fault == "never"
    server.fail()
    delvec.convert(spark, tmp_path / "source", name)
    assert ids(spark, name) == LIVE
