from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from delvec.spark.jobs import describe_jobs, watch_jobs

pytestmark = pytest.mark.spark


def slow_job(spark: SparkSession, tasks: int) -> None:
    spark.range(tasks, numPartitions=tasks).selectExpr(
        "java_method('java.lang.Thread', 'sleep', 150L)"
    ).collect()


def test_progress_tells_the_description_and_how_many_tasks_are_done(spark: SparkSession) -> None:
    told: list[tuple[str, int, int]] = []
    spark.sparkContext.setJobDescription("find rows of /lake/orders")
    try:
        with watch_jobs(spark, lambda *now: told.append(now), seconds=0.02):
            slow_job(spark, 8)
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert {(what, total) for what, _, total in told} == {("find rows of /lake/orders", 8)}
    done = [done for _, done, _ in told]
    assert len(done) > 1
    assert done == sorted(set(done))


def test_a_description_holds_for_the_block_and_then_the_caller_s_own_again(
    spark: SparkSession,
) -> None:
    def now() -> str | None:
        return spark.sparkContext.getLocalProperty("spark.job.description")

    before = now()  # Iceberg's procedures leave an empty one
    with describe_jobs(spark, "outer"):
        with describe_jobs(spark, "inner"):
            assert now() == "inner"
        assert now() == "outer"
        with pytest.raises(ZeroDivisionError), describe_jobs(spark, "failing"):
            raise ZeroDivisionError
        assert now() == "outer"
    assert now() == before


def test_a_job_without_a_description_is_told_by_its_stage(spark: SparkSession) -> None:
    told: list[str] = []
    with watch_jobs(spark, lambda what, _done, _total: told.append(what), seconds=0.02):
        slow_job(spark, 2)
    assert told
    assert all("collect" in what for what in told), told


def test_nothing_is_told_after_the_block_or_of_nothing(spark: SparkSession) -> None:
    told: list[str] = []
    with (
        pytest.raises(ZeroDivisionError),
        watch_jobs(spark, lambda what, *_: told.append(what), seconds=0.01),
    ):
        raise ZeroDivisionError
    slow_job(spark, 1)
    assert not told
