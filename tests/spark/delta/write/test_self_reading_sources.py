"""Sources that read the table which they are written to: no update of another writer is lost.

The table has one counter. Another writer adds 1 to it, our operation reads it and adds 1: it is 3
in the end, or our caller is told and it is 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource
from delvec.delta.alter.operations import TableDescription
from delvec.delta.write.change import Change, Operation
from delvec.delta.write.report import WriteReport
from delvec.errors import ConflictError
from delvec.spark.delta.write.create import with_rows
from delvec.spark.types import schema_of
from tests.delta.builder import TableBuilder
from tests.delta.log_files import commits, newest_version
from tests.delta.write.write_checks import deletion, live, put_next, unnamed_files
from tests.marks import slow_but
from tests.spark.delta.readers import settings_of
from tests.spark.delta.spark_tables import sql
from tests.spark.delta.write.crash_child import increment, race
from tests.spark.delta.write.judge import FEED, Meanwhile, New

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]


def counter(builder: TableBuilder, name: str, n: int) -> dict[str, Any]:
    stats = {"numRecords": 1, "minValues": {"id": 1, "n": n}, "maxValues": {"id": 1, "n": n}}
    return builder.write_file(name, {"id": [1], "n": [n]}) | {"stats": json.dumps(stats)}


def make(path: Path, **properties: str) -> None:
    settings = {"delta.enableDeletionVectors": "true", **properties}
    builder = TableBuilder(path, fields={"id": "long", "n": "long"}, properties=settings)
    builder.create()
    builder.commit({"add": counter(builder, "first", 1)})


def add(path: Path, name: str, n: int) -> None:
    """Commit a file with another counter."""
    entry = counter(TableBuilder(path), name, n)
    put_next(path, lambda _: Change(Operation("WRITE"), added=(entry,)))


def add_two(path: Path, name: str) -> None:
    """Commit a file of two rows, the first as the counter's."""
    entry = TableBuilder(path).write_file(name, {"id": [1, 2], "n": [1, 1]})
    put_next(path, lambda _: Change(Operation("WRITE"), added=(entry,)))


def replace(path: Path, name: str, n: int, old: str | None = None) -> None:
    """Commit a file with a counter in place of one or of all others."""
    entry = counter(TableBuilder(path), name, n)

    def change(it: Any) -> Change:  # noqa: ANN401
        gone = it.files.entries() if old is None else [live(it)[old]]
        return Change(Operation("UPDATE"), removed=tuple(gone), added=(entry,))

    put_next(path, change)


def add_one(path: Path) -> None:
    """Let another writer add 1 to the counter of 1, without Spark."""
    replace(path, "second", 2)


def read_counter(path: Path) -> list[int]:
    return sorted(DeltaTable.for_path(None, path).to_arrow()["n"].to_pylist())


@contextmanager
def told(match: str) -> Iterator[None]:
    with pytest.raises(ConflictError, match=match) as caught:
        yield
    assert not caught.value.retryable
    assert caught.value.hint


def had_read(version: int) -> str:
    return rf"version {version + 1} .* had read version {version}"


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A table with the counter; it records changes in the cases that read them."""
    make(tmp_path / "t", **FEED if "the change feed" in request.node.name else {})
    return tmp_path / "t"


@pytest.fixture(scope="module")
def spark_(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark with format("delvec"), and without the tables that are made by name."""
    spark.dataSource.register(DelvecDataSource)
    yield spark
    spark.sql("DROP VIEW IF EXISTS self_view")
    spark.sql("DROP TABLE IF EXISTS self_named")
    spark.catalog.dropTempView("self_scan")


def named(spark: SparkSession, path: Path) -> DataFrame:
    spark.sql("DROP TABLE IF EXISTS self_named")
    sql(spark, path, f"CREATE TABLE self_named USING delta LOCATION '{path}'")
    return spark.table("self_named")


def named_view(spark: SparkSession, path: Path) -> DataFrame:
    named(spark, path)
    spark.sql("CREATE OR REPLACE VIEW self_view AS SELECT id, n FROM self_named")
    return spark.table("self_view")


def temp_view(spark: SparkSession, path: Path) -> DataFrame:
    DeltaTable.for_path(spark, path).to_df().createOrReplaceTempView("self_scan")
    return spark.sql("SELECT id, n FROM self_scan WHERE n > 0")


def subquery(spark: SparkSession, path: Path) -> DataFrame:
    temp_view(spark, path)
    return spark.sql("SELECT 1L AS id, (SELECT max(n) FROM self_scan) AS n")


def by_delvec(spark: SparkSession, path: Path, **options: Any) -> DataFrame:  # noqa: ANN401
    return DeltaTable.for_path(spark, path).to_df(**options)


def delta(spark: SparkSession, path: Path, **options: Any) -> DataFrame:  # noqa: ANN401
    return spark.read.format("delta").options(**options).load(str(path))


def feed(spark: SparkSession, path: Path) -> DataFrame:
    changes = DeltaTable.for_path(spark, path).changes(1)
    return changes.where("_change_type != 'update_preimage'").select("id", "n")


def by_tasks(spark: SparkSession, path: Path) -> DataFrame:
    """Read through a vector by Python tasks, as if the driver could not hold it."""
    add_two(path, "third")
    put_next(path, lambda it: deletion(it, {"third": [1]}))
    with settings_of(spark, {"spark.delvec.scan.vectorMemory": "0"}):
        return DeltaTable.for_path(spark, path).to_df()


def run_then_cached(spark: SparkSession, path: Path) -> DataFrame:
    df = delta(spark, path).select("id", "n")
    df.collect()
    df.cache().count()
    return df


def with_space(spark: SparkSession, path: Path) -> DataFrame:
    """Read behind a link whose name has to be escaped in a URI."""
    link = path.parent / "a b"
    link.symlink_to(path)
    return spark.read.format("delvec").load(link.as_uri())


# Read at a version that is chosen when the DataFrame is made.
FIXED: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "to_df": by_delvec,
    "to_df where": lambda spark, path: by_delvec(spark, path, where="id = 1"),
    "a view of to_df": temp_view,
    "a subquery": subquery,
    "a join": lambda spark, path: by_delvec(spark, path).join(spark.range(5), "id"),
    "a cache": lambda spark, path: by_delvec(spark, path).cache(),
    "a cache of delta-spark": lambda spark, path: delta(spark, path).cache(),
    "a cache of a DataFrame that was run": run_then_cached,
    "format delvec": lambda spark, path: spark.read.format("delvec").load(str(path)),
    "format delvec by a URI": with_space,
    "the change feed": feed,
    "Python tasks": by_tasks,
    "a symbolic link": lambda spark, path: by_delvec(spark, linked(path)),
}
QUICKLY = {"to_df", "a subquery", "a cache of a DataFrame that was run", "the change feed"}
QUICKLY |= {"format delvec by a URI", "Python tasks"}
# Read at the newest version whenever a query is planned.
LATE: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "delta-spark by path": delta,
    "delta-spark by name": named,
    "a view of delta-spark": named_view,
    "delta-spark in SQL": lambda spark, path: spark.sql(f"SELECT * FROM delta.`{path}`"),
}
# Constants: the reader has named a version.
NAMED: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "to_df of a version": lambda spark, path: by_delvec(spark, path, version=1),
    "delta-spark's versionAsOf": lambda spark, path: delta(spark, path, versionAsOf=1),
    "delta-spark's VERSION AS OF": lambda spark, path: spark.sql(
        f"SELECT * FROM delta.`{path}` VERSION AS OF 1"
    ),
    "format delvec of a version": lambda spark, path: (
        spark.read.format("delvec").option("versionAsOf", 1).load(str(path))
    ),
}


def linked(path: Path) -> Path:
    link = path.parent / "link"
    if not link.exists():
        link.symlink_to(path)
    return link


def merge(table: DeltaTable, source: DataFrame) -> WriteReport:
    found = table.merge(source, "t.id = s.id").when_matched_update({"n": "s.n + 1"})
    return found.execute()


def overwrite(table: DeltaTable, source: DataFrame) -> WriteReport:
    return table.overwrite(source.select("id", (source["n"] + 1).alias("n")))


def append(table: DeltaTable, source: DataFrame) -> WriteReport:
    return table.append(source.select("id", (source["n"] + 1).alias("n")))


def replace_table(table: DeltaTable, source: DataFrame) -> WriteReport:
    rows = source.select("id", (source["n"] + 1).alias("n"))
    wanted = TableDescription(schema_of(rows.schema), (), None, None, None)
    return table.run("REPLACE", with_rows("REPLACE", wanted, rows), {})


WRITES = {"merge": merge, "overwrite": overwrite, "append": append, "replace": replace_table}


# What comes from the table, and nobody can tell or says so: a write, and the counters after it.
def arrived(spark: SparkSession, path: Path) -> DataFrame:
    spark.sql("SELECT 5L id, 5L n").write.parquet(str(path / "arrived"))
    return spark.read.parquet(str(path / "arrived"))


def checkpointed(spark: SparkSession, path: Path) -> DataFrame:
    """What the documentation says is not promised."""
    return DeltaTable.for_path(spark, path).to_df().localCheckpoint()


def uncached(spark: SparkSession, path: Path) -> DataFrame:
    source = run_then_cached(spark, path)
    DeltaTable.for_path(spark, path).append(source, dry_run=True)
    return source.unpersist()


UNTOLD = {
    "other files in the folder of the table": (arrived, "append", [2, 6]),
    "a checkpoint": (checkpointed, "merge", [2]),
    "a cache that is gone": (uncached, "overwrite", [3]),
}


@pytest.mark.parametrize("name", slow_but(QUICKLY, FIXED))
def test_a_source_of_an_older_version_is_told(spark_: SparkSession, path: Path, name: str) -> None:
    source = FIXED[name](spark_, path)
    version = newest_version(path)
    add_one(path)
    table = DeltaTable.for_path(spark_, path)
    for write in WRITES.values():
        with told(had_read(version) + r"(?s:.*)read the table again"):
            write(table, source)
    assert (read_counter(path), newest_version(path)) == ([2], version + 1)
    assert not unnamed_files(path)
    source.unpersist()


def test_a_cache_that_was_made_of_an_older_one_is_told(spark_: SparkSession, path: Path) -> None:
    older = delta(spark_, path).cache()
    older.count()
    add_one(path)
    source = delta(spark_, path).select("id", "n").cache()
    assert [row.n for row in source.collect()] == [1], "delta-spark takes the older rows"
    with told(had_read(1)):
        overwrite(DeltaTable.for_path(spark_, path), source)
    source.unpersist()
    older.unpersist()


@pytest.mark.parametrize("name", slow_but(list(UNTOLD)[:2], UNTOLD))
def test_rows_of_no_version_are_taken(spark_: SparkSession, path: Path, name: str) -> None:
    make_source, write, expected = UNTOLD[name]
    source = make_source(spark_, path)
    add_one(path)
    WRITES[write](DeltaTable.for_path(spark_, path), source)
    assert read_counter(path) == expected


@pytest.mark.parametrize("cached", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_plain_reads_of_the_files_of_a_table_are_taken_if_they_are_its_rows(
    spark_: SparkSession, path: Path, *, cached: bool
) -> None:
    table = DeltaTable.for_path(spark_, path)
    source = spark_.read.parquet(str(linked(path)))
    if cached:
        source.cache().count()
    append(table, source)
    assert read_counter(path) == [1, 2]
    for write in WRITES.values():
        with told("it does not read new files"):
            write(table, source)
    source.unpersist()


def test_plain_reads_of_removed_files_and_of_deleted_rows_are_refused(
    spark_: SparkSession, path: Path, meanwhile: Meanwhile
) -> None:
    table = DeltaTable.for_path(spark_, path)
    add_two(path, "two")
    source = spark_.read.parquet(str(path))
    meanwhile(lambda: put_next(path, lambda it: deletion(it, {"two": [1]})))
    for message in (had_read(2), "it reads deleted rows of files .*two"):
        with told(message):
            overwrite(table, source)
    replace(path, "third", 7)
    files = spark_.read.parquet(*(str(path / name) for name in ("first", "two", "third")))
    with told("it reads removed files"):
        overwrite(table, files)
    overwrite(table, files.localCheckpoint())
    assert read_counter(path) == [2, 2, 2, 8]


# Another writer commits before our operation begins, or before its commit. What a DataFrame of one
# version is made of is told apart in the first case, above; of the newest, it has the new rows.
RACES = [
    (name, write, moment)
    for moment in ("before", "meanwhile")
    for name in ("to_df", "a cache of delta-spark", "format delvec", "the change feed", *LATE)
    for write in WRITES
    if name in LATE or moment == "meanwhile"
]
QUICK = {
    ("delta-spark by name", "overwrite", "before"),
    ("to_df", "merge", "meanwhile"),
    ("to_df", "append", "meanwhile"),
    ("delta-spark by path", "overwrite", "meanwhile"),
    ("delta-spark by name", "merge", "meanwhile"),
}


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("name", "write", "moment"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in RACES],
)
def test_a_lost_race_never_writes_rows_of_the_older_version(
    spark_: SparkSession, path: Path, meanwhile: Meanwhile, name: str, write: str, moment: str
) -> None:
    source = {**FIXED, **LATE}[name](spark_, path)
    if moment == "before":
        add_one(path)
    else:
        meanwhile(lambda: add_one(path))
    table = DeltaTable.for_path(spark_, path)
    if moment == "meanwhile" and (name in FIXED or write == "merge"):
        with told(had_read(1)):
            WRITES[write](table, source)
        assert read_counter(path) == [2]
    else:
        assert WRITES[write](table, source).version == 3
        assert read_counter(path) == ([2, 3] if write == "append" else [3])
    assert not unnamed_files(path)
    source.unpersist()


@pytest.mark.parametrize("name", slow_but({"to_df of a version"}, NAMED))
def test_a_source_of_a_named_version_is_taken_as_it_is(
    spark_: SparkSession, path: Path, meanwhile: Meanwhile, name: str
) -> None:
    source = NAMED[name](spark_, path)
    add_one(path)
    meanwhile(lambda: add(path, "third", 7))
    DeltaTable.for_path(spark_, path).overwrite(source)
    assert read_counter(path) == [1]


def test_commits_of_no_rows_are_no_conflict(
    spark_: SparkSession, path: Path, meanwhile: Meanwhile
) -> None:
    source, other = DeltaTable.for_path(spark_, path).to_df(), DeltaTable.for_path(None, path)
    other.set_properties({"user.key": "1"})
    tried = meanwhile(lambda: other.set_properties({"user.key": "2"}))
    report = merge(DeltaTable.for_path(spark_, path), source)
    assert (read_counter(path), report.version, len(tried)) == ([2], 4, 2)


@pytest.mark.parametrize("narrowed", [True, False])
def test_commits_of_rows_that_the_source_does_not_use_are_no_conflict(
    spark_: SparkSession, path: Path, meanwhile: Meanwhile, *, narrowed: bool
) -> None:
    add(path, "third", 7)
    table = DeltaTable.for_path(spark_, path)
    source = table.to_df(where="n < 7" if narrowed else None).selectExpr("id", "n + 1 AS n")
    replace(path, "fourth", 8, old="third")
    meanwhile(lambda: replace(path, "fifth", 9, old="fourth"))
    if narrowed:
        table.overwrite(source, "n < 7")
        assert read_counter(path) == [2, 9]
    else:
        with told(had_read(2)):
            table.overwrite(source, "n < 7")


def test_rows_that_a_source_uses_are_not_told_by_old_names(spark_: SparkSession, new: New) -> None:
    table = new("id long, n long, w long", properties={"delta.columnMapping.mode": "name"})
    table.append(spark_.sql("SELECT 1L id, 1L n, 100L w"))
    source = table.to_df().where("n < 7").selectExpr("id", "n + 1 x", "w n")
    table.rename_column("n", "x")
    table.rename_column("w", "n")
    table.append(spark_.sql("SELECT 2L id, 2L x, 100L n"))
    with told(r"version 4 .* had read version 1"):
        table.overwrite(source, "x < 7")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


def test_an_append_of_own_rows_is_not_blind(
    spark_: SparkSession, path: Path, tmp_path: Path
) -> None:
    make(tmp_path / "other")
    table = DeltaTable.for_path(spark_, path)
    append(table, DeltaTable.for_path(spark_, tmp_path / "other").to_df())
    append(table, table.to_df())
    infos = [action["commitInfo"] for each in commits(path)[2:] for action in each[:1]]
    assert [info["isBlindAppend"] for info in infos] == [True, False]
    assert read_counter(path) == [1, 2, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("write", ["delete", "update", "merge"])
def test_a_condition_that_reads_the_table_depends_on_its_rows(
    spark_: SparkSession, path: Path, meanwhile: Meanwhile, write: str
) -> None:
    add(path, "third", 7)
    table = DeltaTable.for_path(spark_, path)
    named(spark_, path)
    one = spark_.createDataFrame([(1, 7)], "id long, n long")

    def act(view: str) -> WriteReport:
        largest = f"(SELECT max(n) FROM {view})"
        if write == "delete":
            return table.delete(f"n = {largest}")
        if write == "update":
            return table.update({"n": f"{largest} + 1"}, f"n = {largest}")
        found = table.merge(one, f"t.n = s.n AND t.n = {largest}")
        return found.when_matched_update({"n": "t.n + 1"}).execute()

    def without_first(snapshot: Any) -> Change:  # noqa: ANN401
        return Change(Operation("DELETE"), removed=(live(snapshot)["first"],))

    # The file that goes is none that we change, but the condition has read it.
    meanwhile(lambda: put_next(path, without_first))
    assert act("self_named").version == 4, "read again"
    temp_view(spark_, path)
    newest = read_counter(path)
    add(path, "fourth", 9)
    with pytest.raises(ConflictError, match="had read version 4"):
        act("self_scan")
    assert read_counter(path) == [*newest, 9]


ROUNDS = 100


@pytest.mark.slow
@pytest.mark.parametrize("write", ["merge", "overwrite"])
def test_racing_threads_lose_no_update(spark_: SparkSession, path: Path, write: str) -> None:
    barrier = Barrier(2, timeout=300)

    def work(_: int) -> list[bool]:
        done = []
        for _ in range(ROUNDS // 2):
            barrier.wait()
            done.append(increment(DeltaTable.for_path(spark_, path), write))
        return done

    with ThreadPoolExecutor(2) as pool:
        done = [each for thread in pool.map(work, range(2)) for each in thread]
    assert read_counter(path) == [1 + sum(done)]
    assert ROUNDS // 2 <= sum(done) < ROUNDS, "one of two succeeds, and some were told"
    found = delta(spark_, path).select(functions.sum("n")).first()
    assert found == (1 + sum(done),)


@pytest.mark.slow
@pytest.mark.parametrize("write", ["merge", "overwrite"])
def test_racing_processes_lose_no_update(path: Path, write: str) -> None:
    done = sum(race(path, "increment", [{"write": write, "times": ROUNDS // 2}] * 2))
    assert read_counter(path) == [1 + done]
    assert done < ROUNDS, "some were told"
