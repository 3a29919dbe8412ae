"""The positions of rows as bitmaps, from tasks that share words, and after shuffles."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec.spark.positions import NUMBER, POSITION, collect_groups, find_rows, hit_words, shuffles

pytestmark = pytest.mark.spark

ROWS, TASKS = 1000, 7  # tasks begin in the middle of words


@pytest.fixture(scope="module")
def placed(spark: SparkSession) -> DataFrame:
    """Three of four rows of two files, in order."""
    return spark.range(0, 2 * ROWS, 1, TASKS).selectExpr(
        f"id DIV {ROWS} {NUMBER}", f"id % {ROWS} {POSITION}"
    )


def test_words_that_tasks_share_are_united_without_a_shuffle(
    spark: SparkSession, placed: DataFrame
) -> None:
    group = str(uuid4())
    spark.sparkContext.setJobGroup(group, "")
    try:
        found = find_rows(placed.where(f"{POSITION} % 4 != 0"), {"small": f"{POSITION} < 10"})
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    expected = [position for position in range(ROWS) if position % 4]
    bitmaps = {number: list(each) for number, each in found.bitmaps.items()}
    assert bitmaps == {0: expected, 1: expected}
    assert (found.counts, found.repeated) == ({"small": 2 * 7}, ())
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    assert [len(job.stageIds) for job in jobs if job is not None] == [1]
    nothing = find_rows(placed.where("false"), {"none": f"{POSITION} < 10"})
    assert (nothing.bitmaps, nothing.counts) == ({}, {"none": 0})


@pytest.mark.parametrize("in_order", [True, False])
def test_a_row_that_two_tasks_find_is_told(placed: DataFrame, in_order: bool) -> None:  # noqa: FBT001
    twice = placed.unionAll(placed.where(f"{NUMBER} = 1 AND {POSITION} = 17"))
    found = find_rows(twice, in_order=in_order)
    assert found.repeated == (1,)
    counts = {number: each.cardinality for number, each in found.bitmaps.items()}
    assert counts == {0: ROWS, 1: ROWS}


@pytest.mark.slow
def test_after_a_shuffle_the_driver_gets_each_word_once(placed: DataFrame) -> None:
    assert not shuffles(placed)
    mixed = placed.repartition(TASKS, POSITION)
    assert shuffles(mixed)
    words = collect_groups(hit_words(mixed, {}), 2, ["bit_or", "count"])
    assert words.num_rows == 2 * -(-ROWS // 64)
    in_order = collect_groups(hit_words(placed, {}), 2, ["bit_or", "count"])
    assert 0 < in_order.num_rows - words.num_rows < TASKS  # the shared ones
    assert words.schema.names == in_order.schema.names


def test_buffers_that_are_not_the_results_are_not_taken_for_them(placed: DataFrame) -> None:
    means = placed.groupBy(NUMBER).agg({POSITION: "avg"})
    found = collect_groups(means, 1, ["bit_or"])
    assert sorted(found.to_pydict()[f"avg({POSITION})"]) == [(ROWS - 1) / 2] * 2
