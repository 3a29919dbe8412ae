"""Conditions on the DataFrame of a table, against the rows that delta-spark reads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import delvec.delta.table as delta
from delvec.errors import InvalidArgumentError
from tests.delta.log_files import live_adds, local, row_groups
from tests.spark.delta.readers import ZONE, settings_of
from tests.spark.delta.scan.spark_conditions import (
    COLUMNS,
    PARTITION_COLUMNS,
    TIME_ZONE,
    conditions,
    row,
)
from tests.spark.delta.spark_tables import as_delta_spark_reads, create, sql

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(2)]

SLOW_EXAMPLES = min(300, int(os.environ.get("DELVEC_SLOW_EXAMPLES", "300")))
VECTOR_MEMORY = "spark.delvec.scan.vectorMemory"
ROWS = 240


# The heavier tests take one table by default.
JUDGED = ["parts", pytest.param("ranges", marks=pytest.mark.slow)]


class Judged(NamedTuple):
    """A table, and the rows that delta-spark reads of it, kept in memory."""

    path: Path
    table: delta.DeltaTable
    truth: DataFrame


@pytest.fixture(scope="module", autouse=True)
def zone(spark: SparkSession) -> Iterator[None]:
    """A zone that is not that of the machine, nor UTC."""
    # What is cached is the truth: Spark's pruning of cached batches loses rows with NaN.
    pruning = "spark.sql.inMemoryColumnarStorage.partitionPruning"
    with settings_of(spark, {ZONE: TIME_ZONE, pruning: "false"}):
        yield


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, zone: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Judged]]:
    """Two tables of the same rows: one in partitions, one in ranges under other names."""
    assert zone is None
    folder = tmp_path_factory.mktemp("judged")
    rows = spark.createDataFrame([row(number) for number in range(ROWS)], COLUMNS)
    ntz = {"delta.feature.timestampNtz": "supported"}
    ranges = rows.repartitionByRange(8, "id").sortWithinPartitions("id")
    made: dict[str, tuple[DataFrame, Sequence[str], dict[str, str], str]] = {
        "parts": (
            rows.coalesce(1),
            PARTITION_COLUMNS,
            {"delta.checkpointInterval": "2"},
            "id % 7 = 3 AND (pi IS NULL OR pi IN (0, 1))",
        ),
        # What is left of one file has nulls only, what is left of others is as it was.
        "ranges": (
            ranges,
            (),
            {"delta.columnMapping.mode": "id"},
            "(id BETWEEN 88 AND 122 AND i IS NOT NULL) OR (id % 7 = 3 AND (id < 60 OR id > 190))",
        ),
    }
    judged = {}
    for name, (written, parts, properties, gone) in made.items():
        path = folder / name
        create(spark, path, COLUMNS, partitioned_by=parts, properties=ntz | properties)
        written.write.format("delta").mode("append").save(str(path))
        sql(spark, path, f"DELETE FROM {{T}} WHERE {gone}")
        vectors = ["deletionVector" in add for add in live_adds(path)]
        assert set(vectors) == {True, False}
        assert len(vectors) >= 6
        truth = as_delta_spark_reads(spark, path).coalesce(1).cache()
        assert truth.count() < ROWS
        judged[path.name] = Judged(path, delta.DeltaTable.for_path(spark, path), truth)
    yield judged
    for each in judged.values():
        each.truth.unpersist()


def ids_of_each(frame: DataFrame, wanted: Sequence[str | Column]) -> list[list[int]]:
    """Give the ids of the rows that satisfy each of some conditions, in one job."""
    parts = [
        frame.where(condition).select(F.lit(number).alias("number"), "id")
        for number, condition in enumerate(wanted)
    ]
    return ids_by_number(reduce(DataFrame.unionAll, parts), len(wanted))


def ids_by_number(frame: DataFrame, count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, each in frame.collect():
        found[number].append(each)
    return [sorted(ids) for ids in found]


def ids_by_sql(spark: SparkSession, frame: DataFrame, wanted: Sequence[str]) -> list[list[int]]:
    frame.createOrReplaceTempView("judged")
    query = " UNION ALL ".join(
        f"SELECT {number} AS number, id FROM judged WHERE {condition}"
        for number, condition in enumerate(wanted)
    )
    return ids_by_number(spark.sql(query), len(wanted))


def check_conditions(
    spark: SparkSession, judged: Judged, wanted: Sequence[str], form: str = "where"
) -> None:
    expected = ids_of_each(judged.truth, wanted)
    frame = judged.table.to_df()
    if form == "sql":
        found = ids_by_sql(spark, frame, wanted)
    else:
        found = ids_of_each(frame, [*map(F.expr, wanted)] if form == "column" else wanted)
    for condition, ours, theirs in zip(wanted, found, expected, strict=True):
        assert ours == theirs, condition
        try:
            rows = judged.table.to_arrow(condition, columns=["id"])
        except InvalidArgumentError:
            continue  # not to be understood without Spark
        assert sorted(rows.column("id").to_pylist()) == theirs, condition
        assert judged.table.count(condition) == len(theirs), condition


# A batch is named in full by the failure; to shrink it takes seconds for each try.
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
NAMES = st.sampled_from(["parts", "ranges"])
BATCHES = st.lists(conditions(), min_size=6, max_size=6)
FORMS = st.sampled_from(["where", "column", "sql"])


@pytest.mark.slow
@settings(max_examples=SLOW_EXAMPLES, suppress_health_check=list(HealthCheck), phases=UNSHRUNK)
@given(name=NAMES, wanted=BATCHES, form=FORMS)
def test_many_random_conditions_give_the_rows_of_delta_spark(
    spark: SparkSession, tables: dict[str, Judged], name: str, wanted: list[str], form: str
) -> None:
    check_conditions(spark, tables[name], wanted, form)


SUBQUERIES = [
    "id IN (SELECT id FROM other WHERE i > 50)",
    "pi IN (SELECT pi FROM other WHERE id < 5)",
    "id NOT IN (SELECT id FROM other WHERE i < 50)",
    "pi NOT IN (SELECT pi FROM other WHERE id < 5)",  # with a null among them: no row
    "i = (SELECT max(i) FROM other)",
    "pi = (SELECT max(pi) FROM other)",
    "ps > (SELECT min(ps) FROM other) AND i > 0",
    "EXISTS (SELECT 1 FROM other o WHERE o.id = judged.id + 100)",
    "NOT EXISTS (SELECT 1 FROM other o WHERE o.pi = judged.pi AND o.id > judged.id)",
    "i > (SELECT avg(i) FROM other o WHERE o.ps = judged.ps)",
    "pi = 1 OR id IN (SELECT i + 100 FROM other)",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", JUDGED)
def test_conditions_with_subqueries(
    spark: SparkSession, tables: dict[str, Judged], name: str
) -> None:
    judged = tables[name]
    answers = []
    for frame in (judged.truth, judged.table.to_df()):
        frame.createOrReplaceTempView("other")
        answers.append(ids_by_sql(spark, frame, SUBQUERIES))
    assert answers[1] == answers[0]
    assert judged.table.count(SUBQUERIES[0]) == len(answers[0][0])


@pytest.mark.more
@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "where",
    [
        "day < current_date()",
        "at < now() AND pi = 1",
        "pd < current_date() - INTERVAL 1 DAY",
        "pi = 1 AND (i > 0 OR rand() < 2)",
        "id < 50 AND coalesce(id >= 0, 1 / 0 = 1)",
        "ps = current_user() OR id = 7",
    ],
)
def test_conditions_that_are_no_constants_until_a_query_runs(
    tables: dict[str, Judged], where: str
) -> None:
    judged = tables["parts"]
    [expected] = ids_of_each(judged.truth, [where])
    assert ids_of_each(judged.table.to_df(), [where]) == [expected]
    assert judged.table.count(where) == len(expected)


# Queries that are more than a condition


@pytest.mark.slow
def test_joins_with_dynamic_pruning_of_partitions(
    spark: SparkSession, tables: dict[str, Judged], tmp_path: Path
) -> None:
    judged = tables["parts"]
    kept = copy_with_partitions(judged.path, tmp_path / "kept", {"pi": {"1"}})
    small = spark.createDataFrame([(1, "one"), (77, "none")], "pi INT, name STRING")
    small.write.parquet(str(tmp_path / "names"))
    forced = {"enabled": True, "reuseBroadcastOnly": False, "useStats": False}
    pruning = "spark.sql.optimizer.dynamicPartitionPruning"
    texts = {f"{pruning}.{name}": str(value).lower() for name, value in forced.items()}
    with settings_of(spark, {**texts, f"{pruning}.fallbackFilterRatio": "10"}):
        names = spark.read.parquet(str(tmp_path / "names")).where("name LIKE 'o%'")
        rows = delta.DeltaTable.for_path(spark, kept).to_df()
        joined = rows.join(names, "pi").select("id", "name")
        plan = joined._jdf.queryExecution().executedPlan().toString()
        assert "dynamicpruning" in plan.lower()
        # The files of the other partitions are not there: they must not be opened.
        found = sorted(each.id for each in joined.collect())
    assert [found] == ids_of_each(judged.truth, ["pi = 1"])


@pytest.mark.slow
@pytest.mark.parametrize("name", JUDGED)
def test_joins_unions_and_caches(tables: dict[str, Judged], name: str) -> None:
    judged = tables[name]

    def answers(frame: DataFrame) -> list[list[tuple[object, ...]]]:
        small = frame.where("id < 30").select("id", "i", "pi")
        queries = [
            frame.alias("x").join(frame.alias("y"), F.expr("x.id = y.i")).select("x.id", "y.id"),
            frame.join(F.broadcast(small.select("pi").distinct()), "pi").select("id", "pi"),
            small.join(frame.where("id > 10").select("id", "s"), "id", "full"),
            frame.where("pi = 1").unionAll(frame.where("i > 20")).select("id", "s"),
            frame.groupBy("pi").agg(F.count("*"), F.sum("i"), F.max("at"), F.min("s")),
            frame.select("pi", "ps").distinct(),
            frame.where("i > 0").agg(F.count("*")),
        ]
        return [sorted(map(tuple, query.collect()), key=repr) for query in queries]

    expected = answers(judged.truth)
    assert answers(judged.table.to_df()) == expected
    cached = judged.table.to_df().cache()
    try:
        assert cached.where("id < 50").count() == judged.truth.where("id < 50").count()
        assert answers(cached) == expected
    finally:
        cached.unpersist()


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_files_and_positions_can_be_asked_for(
    spark: SparkSession, tables: dict[str, Judged], vectorized: str
) -> None:
    judged = tables["ranges"]
    with settings_of(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        frame = judged.table.to_df(columns=["id", "_file", "_pos"])
        rows = sorted(frame.collect())
        assert [each.id for each in rows] == ids_of_each(judged.truth, ["true"])[0]
        arrow = judged.table.to_arrow(columns=["id", "_file", "_pos"]).to_pylist()
        assert sorted((each["id"], each["_file"], each["_pos"]) for each in arrow) == rows
        first = rows[0]._file
        chosen: dict[str, Callable[[Row], bool]] = {
            "_pos < 5": lambda row: row._pos < 5,
            "_pos >= 5 AND id % 2 = 1": lambda row: row._pos >= 5 and row.id % 2,
            f"_file = '{first}'": lambda row: row._file == first,
            f"_file = '{first}' AND id % 2 = 1": lambda row: row._file == first and row.id % 2,
        }
        for where, is_meant in chosen.items():
            assert sorted(frame.where(where).collect()) == [*filter(is_meant, rows)], where


# Pruning: what a query must not touch is not there


def copy_with_partitions(source: Path, target: Path, kept: dict[str, set[str | None]]) -> Path:
    """Copy a table without the data files of other partitions."""
    shutil.copytree(source, target)
    gone = 0
    for add in live_adds(source):
        values = add["partitionValues"]
        if not all(values[name] in allowed for name, allowed in kept.items()):
            local(target, add["path"]).unlink()
            gone += 1
    assert gone
    return target


PRUNED: list[tuple[dict[str, set[str | None]], str]] = [
    ({"pi": {"1"}}, "pi = 1"),
    ({"pi": {"1"}}, "pi = 1 AND i > 0"),
    ({"pi": {"1", "2"}}, "pi IN (1, 2, 99)"),
    ({"pi": {"1", "2"}}, "pi > 0 AND (i > 5 OR s = 'a')"),
    ({"pi": {"-5"}}, "abs(pi) = 5"),
    ({"pi": {None}}, "pi IS NULL"),
    ({"pi": {None, "1"}}, "coalesce(pi, 1) = 1"),
    ({"ps": {"a"}}, "ps = 'a'"),
    ({"ps": {"a", "a%"}}, "ps LIKE 'a%'"),
    ({"ps": {"ä b/%"}}, "ps <=> 'ä b/%'"),
    ({"pd": {"1969-07-20"}}, "year(pd) < 2000"),
    ({"pd": {"1969-07-20"}}, "pd = '1969-07-20'"),
    ({"pi": {"1"}, "ps": {"a"}}, "pi = 1 AND ps = 'a'"),
    ({"pi": {"1", None}}, "pi = 1 OR (pi IS NULL AND i > 0)"),
    ({"pi": {"1"}}, "pi = (SELECT 1)"),
]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["constant", "join"])
def test_partitions_that_cannot_match_are_not_touched(
    spark: SparkSession, tables: dict[str, Judged], tmp_path: Path, form: str
) -> None:
    judged = tables["parts"]
    vectorized = {"spark.sql.parquet.enableVectorizedReader": str(form == "constant").lower()}
    for number, (kept, where) in enumerate(PRUNED if form == "constant" else PRUNED[:3]):
        path = copy_with_partitions(judged.path, tmp_path / str(number), kept)
        with settings_of(spark, vectorized):
            frame = delta.DeltaTable.for_path(spark, path).to_df()
            assert ids_of_each(frame, [where]) == ids_of_each(judged.truth, [where]), where
    with pytest.raises(Exception, match="does not exist"):
        frame.select("id", "i").collect()


RANGES: list[tuple[str, Callable[[int], bool]]] = [
    ("id < 20", lambda number: number < 20),
    ("id >= 200 AND s IS NOT NULL", lambda number: number >= 200),
    ("i BETWEEN -90 AND -80", lambda number: number < 30),
    ("day = DATE'2020-01-20'", lambda number: 170 <= number < 210),
    ("at < TIMESTAMP'2019-12-31 22:00:00'", lambda number: number < 40),
    ("dec > 40.5", lambda number: number > 200),
    ("id IN (1, 2, 3, 5, 8, 13, 21, 22, 23, 24, 25, 26)", lambda number: number < 30),
]


def test_files_whose_statistics_exclude_a_match_are_not_touched(
    spark: SparkSession, tables: dict[str, Judged], tmp_path: Path
) -> None:
    judged = tables["ranges"]
    rows = judged.table.to_df(columns=["id", "_file"]).collect()
    for number, (where, may_be_read) in enumerate(RANGES):
        path = tmp_path / str(number)
        shutil.copytree(judged.path, path)
        needed = {each._file for each in rows if may_be_read(each.id)}
        for name in {each._file for each in rows} - needed:
            (path / os.path.relpath(name, judged.path)).unlink()
        assert len(needed) < 8
        frame = delta.DeltaTable.for_path(spark, path).to_df()
        assert ids_of_each(frame, [where]) == ids_of_each(judged.truth, [where]), where
    with pytest.raises(Exception, match="does not exist"):
        frame.select("id", "s").collect()


# Positions of rows, however Spark reads


@pytest.fixture(scope="module")
def grouped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of many row groups; rows at the edges of groups are deleted too."""
    path = tmp_path_factory.mktemp("grouped") / "table"
    create(spark, path, "id BIGINT, k BIGINT, s STRING")
    with settings_of(spark, {"parquet.block.size": 65_536, "parquet.page.size": 4_096}):
        rows = spark.range(40_000).selectExpr("id", "id AS k", "sha(string(id)) AS s")
        ordered = rows.repartitionByRange(2, "id").sortWithinPartitions("id")
        ordered.write.format("delta").mode("append").save(str(path))
    assert min(row_groups(path, live_adds(path))) > 8
    sql(spark, path, f"DELETE FROM {{T}} WHERE {GONE}")
    assert all("deletionVector" in add for add in live_adds(path))
    return path


GONE = "id % 10 = 3 OR id BETWEEN 5000 AND 9000 OR id IN (0, 19999, 20000, 39999)"
SETTINGS = {
    "vectorized": ("spark.sql.parquet.enableVectorizedReader", "true", "false"),
    "ansi": ("spark.sql.ansi.enabled", "true", "false"),
    "codegen": ("spark.sql.codegen.wholeStage", "true", "false"),
    "split": ("spark.sql.files.maxPartitionBytes", "128m", "100k"),
    "columnar": ("spark.sql.parquet.columnarReaderBatchSize", "4096", "7"),
    "pushdown": ("spark.sql.parquet.filterPushdown", "true", "false"),
}
COMBINATIONS = list(product((1, 2), repeat=len(SETTINGS)))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("number", range(len(COMBINATIONS)), ids="{:06b}".format)
def test_positions_hold_however_spark_reads(
    spark: SparkSession, grouped: Path, number: int
) -> None:
    choices = zip(SETTINGS.values(), COMBINATIONS[number], strict=True)
    chosen = {setting[0]: setting[which] for setting, which in choices}
    gone = {*range(3, 40_000, 10), *range(5000, 9001), 0, 19_999, 20_000, 39_999}
    alive = [id_ for id_ in range(40_000) if id_ not in gone]
    wanted = {
        "k >= 0": alive,
        "k BETWEEN 12345 AND 12360": [id_ for id_ in alive if 12_345 <= id_ <= 12_360],
        "k IN (0, 1, 19998, 19999, 20000, 20001, 39998, 39999)": [1, 19_998, 20_001, 39_998],
        "k > 30000 AND s < '1'": None,
    }
    with settings_of(spark, chosen):
        frame = delta.DeltaTable.for_path(spark, grouped).to_df()
        found = ids_of_each(frame, list(wanted))
        if chosen["spark.sql.files.maxPartitionBytes"] == "100k":
            assert frame.rdd.getNumPartitions() > 4
    for (where, expected), ours in zip(wanted.items(), found, strict=True):
        if expected is not None:
            assert ours == expected, where
    assert set(found[-1]) <= {id_ for id_ in alive if id_ > 30_000}
    assert 400 < len(found[-1]) < 700


@pytest.mark.slow
def test_a_table_of_more_columns_than_spark_reads_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [f"c{number}" for number in range(150)]
    create(spark, tmp_path, "id BIGINT, " + ", ".join(f"{name} INT" for name in names))
    values = ", ".join(f"int(id + {number}) AS {name}" for number, name in enumerate(names))
    sql(
        spark,
        tmp_path,
        f"INSERT INTO {{T}} SELECT /*+ COALESCE(2) */ id, {values} FROM range(600)",
        "DELETE FROM {T} WHERE id % 3 = 0 AND id < 200",
    )
    truth = as_delta_spark_reads(spark, tmp_path)
    table = delta.DeltaTable.for_path(spark, tmp_path)
    assert sorted(table.to_df().collect()) == sorted(truth.collect())
    wanted = ["c7 = 107", "c149 > 700", "id % 2 = 0 AND c0 < 20"]
    assert ids_of_each(table.to_df(), wanted) == ids_of_each(truth, wanted)
    few = table.to_df(columns=["c1", "id"])
    assert sorted(few.collect()) == sorted(truth.select("c1", "id").collect())


@pytest.mark.slow
def test_vectors_that_the_driver_may_not_hold(
    spark: SparkSession, tables: dict[str, Judged], grouped: Path
) -> None:
    wanted = ["i > 0", "pi = 1", "s LIKE 'a%' OR pd IS NULL"]
    judged = tables["parts"]
    with settings_of(spark, {VECTOR_MEMORY: "1"}):
        frame = judged.table.to_df()
        assert "delvec" in frame._jdf.queryExecution().optimizedPlan().toString()
        assert ids_of_each(frame, wanted) == ids_of_each(judged.truth, wanted)
        rows = frame.where("pi = 1").select(*judged.truth.columns).collect()
        expected = judged.truth.where("pi = 1").collect()
        assert sorted(map(repr, rows)) == sorted(map(repr, expected))
        frame = delta.DeltaTable.for_path(spark, grouped).to_df()
        figures = [F.count("*"), F.sum("id"), F.sum(F.crc32("s"))]
        truth = as_delta_spark_reads(spark, grouped)
        assert frame.agg(*figures).collect() == truth.agg(*figures).collect()
