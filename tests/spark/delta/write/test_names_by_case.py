"""Names that differ in case only are the same name, whatever the session says."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import folder, judged_merge, judged_write

pytestmark = [pytest.mark.spark, pytest.mark.more]

SENSITIVE = {"spark.sql.caseSensitive": "true"}
ROWS = "SELECT 2 AS C2, named_struct('Ab', 4) AS S, 'y' AS p"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cases") / "t"
    spark_tables.create(spark, path, "c2 INT, s STRUCT<aB: INT>, P STRING", partitioned_by=["p"])
    spark_tables.sql(spark, path, "INSERT INTO {T} VALUES (1, named_struct('aB', 1), 'x')")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("is_sensitive", [True, False])
def test_an_append_as_delta_spark_does_it(
    spark: SparkSession, table: Path, *, is_sensitive: bool
) -> None:
    act = partial(DeltaTable.append, merge_schema=True)
    with settings_of(spark, SENSITIVE if is_sensitive else {}):
        name = f"append-{is_sensitive}"
        done = judged_write(spark, table, name, ROWS, act, mergeSchema="true")
    assert done.report is not None
    assert DeltaTable.for_path(None, done.path).schema.names == ("c2", "s", "P")


@pytest.mark.slow
def test_a_merge_as_delta_spark_does_it(spark: SparkSession, table: Path) -> None:
    judged_merge(spark, table, "merge", ROWS, on="t.C2 + 1 = s.c2")


@pytest.mark.parametrize("is_sensitive", [False, True])
def test_twins_are_refused(
    spark: SparkSession, table: Path, tmp_path: Path, *, is_sensitive: bool
) -> None:
    before = folder(table)
    t = DeltaTable.for_path(spark, table)
    with settings_of(spark, SENSITIVE if is_sensitive else {}):
        twins = spark.sql("SELECT 1 AS c2, 2 AS C2, 'x' AS P, named_struct('aB', 1) AS s")
        inner = spark.sql("SELECT 1 AS c2, 'x' AS P, named_struct('aB', 1, 'ab', 2) AS s")
        for rows in (twins, inner):
            for merges in (False, True):
                with pytest.raises(InvalidArgumentError, match=r"(?i)more than one"):
                    t.append(rows, merge_schema=merges)
                merge = t.merge(rows, on="t.P = s.P", merge_schema=merges)
                with pytest.raises(InvalidArgumentError, match=r"(?i)more than one|ambiguous"):
                    merge.when_matched_update_all().execute()
        for schema in ("c2 int, C2 int", "s struct<c2: int, C2: int>"):
            with pytest.raises(InvalidArgumentError):
                DeltaTable.create(spark, tmp_path / "new", schema)
    assert folder(table) == before
