"""MERGE, UPDATE and append with and without schema evolution, case by case as delta-spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.marks import slow_but
from tests.spark.delta.write.evolution import outcomes
from tests.spark.delta.write.evolution_cases import CASES, DIFFERENCES
from tests.spark.delta.write.random_evolution import random_case

pytestmark = pytest.mark.spark

QUICK = (
    "other fields: update * insert *",
    "columns: delete only",
    "columns: no rows, update all",
    "fewer fields: update * insert *, no evolution",
    "array, fewer fields: update v insert v, no evolution",
    "map, fewer fields: update v insert v, no evolution",
    "new columns: no null, append",
    "new columns: no null, merge",
    "new columns: an empty array, append",
    "new columns: an empty map, merge",
    "intervals: update another column",
    "fields: update a struct and a field of it",
    "fields: update a field twice",
    "update: fewer fields",
    "update: contradicting",
    "update: a window",
    "values: a window in an insert",
)
RANDOM = 300
BLOCK = 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evolution")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_a_statement_gives_the_rows_and_the_schema_of_delta_spark_or_both_refuse(
    spark: SparkSession, folder: Path, name: str
) -> None:
    theirs, ours = outcomes(spark, folder, CASES[name])
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences_are_those_that_are_meant(spark: SparkSession, folder: Path, name: str) -> None:
    case, *expected = DIFFERENCES[name]
    found = [None if each.error else each.rows for each in outcomes(spark, folder, case)]
    assert found == expected


@pytest.mark.slow
def test_conditions_depend_on_one_row(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "k int")
    source = spark.sql("SELECT 1 k")
    table.append(source)
    for sql in ("row_number() OVER (ORDER BY t.k) = 1", "max(t.k) = 1", "explode(array(1)) = 1"):
        for act in (
            table.merge(source, f"t.k = s.k AND {sql}").when_matched_delete().execute,
            table.merge(source, "t.k = s.k").when_matched_delete(sql).execute,
            table.merge(source, "t.k = s.k").when_matched_update_all(sql).execute,
            partial(table.update, {"k": 1}, where=sql.replace("t.k", "k")),
            partial(table.delete, sql.replace("t.k", "k")),
        ):
            with pytest.raises(InvalidArgumentError):
                act()
    assert table.version == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *range(2, RANDOM, BLOCK)])
def test_random_statements_do_the_same(spark: SparkSession, folder: Path, first: int) -> None:
    last = min(first + BLOCK, RANDOM) if first else 2
    for seed in range(first, last):
        case = random_case(seed)
        theirs, ours = outcomes(spark, folder, case)
        assert ours == theirs, f"seed {seed}: {case}"
