"""Jobs: a real Ctrl-C while one runs, staged rows that are lost, and what is told of progress."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.errors import EngineError
from delvec.spark.jobs import describe_jobs, interruptible, stage_rows, watch_jobs
from delvec.spark.jvm import items
from tests.delta.write.write_checks import unnamed_files

pytestmark = pytest.mark.spark

# True after a minute: far longer than a task lives that is interrupted.
SLOW = "(reflect('java.lang.Thread', 'sleep', 60000L) IS NULL OR v >= 0)"
OPERATIONS: dict[str, Callable[[DeltaTable, DataFrame], object]] = {
    "append": lambda t, df: t.append(df.where(SLOW)),
    "overwrite": lambda t, df: t.overwrite(df.where(SLOW)),
    "update": lambda t, _: t.update({"v": f"v + int({SLOW})"}),
    "delete": lambda t, _: t.delete(SLOW),
    "merge": lambda t, df: (
        t.merge(df.where(SLOW), "t.id = s.id").when_matched_update_all().execute()
    ),
    "count": lambda t, _: t.count(SLOW),
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    t = DeltaTable.create(spark, tmp_path_factory.mktemp("interrupts") / "t", "id long, v int")
    t.append(spark.range(4).selectExpr("id", "int(id) v"))
    return t


def has_running_tasks(spark: SparkSession) -> bool:
    context: Any = spark.sparkContext
    running = context._jsc.sc().taskScheduler().runningTasksByExecutors().values()
    return any(items(running))


@contextmanager
def interrupted_by(spark: SparkSession) -> Iterator[None]:
    """Send SIGINT to this process when a task runs."""
    ended = Event()

    def fire() -> None:
        while not ended.is_set():
            if has_running_tasks(spark):
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.02)

    sender = Thread(target=fire, daemon=True)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_ends_with_its_tasks_and_leaves_nothing(
    spark: SparkSession, table: DeltaTable, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    assert current_thread() is main_thread()
    before = signal.getsignal(signal.SIGINT)
    context: Any = spark.sparkContext
    on_cancel = context.getLocalProperty("spark.job.interruptOnCancel")
    context.setLocalProperty("spark.scheduler.pool", "mine")
    version, root = table.version, table.storage.root
    rows = spark.range(4, 8).selectExpr("id", "int(id) v").repartition(2)
    with pytest.raises(KeyboardInterrupt), interrupted_by(spark):
        OPERATIONS[name](table, rows)
    assert not has_running_tasks(spark)
    assert not unnamed_files(Path(root))
    assert signal.getsignal(signal.SIGINT) is before
    assert context.getLocalProperty("spark.scheduler.pool") == "mine", "the connection is the same"
    assert context.getLocalProperty("spark.job.interruptOnCancel") == on_cancel
    context.setLocalProperty("spark.scheduler.pool", None)
    assert "Traceback" not in "".join(capfd.readouterr())
    # The session is as usable as before.
    assert table.version == version
    assert table.count("v % 2 = 0 OR id = 1") == 3
    assert table.append(rows.where("id = 100")).rows_inserted == 0
    assert not unnamed_files(Path(root))


def test_a_handler_of_the_users_own_stays(spark: SparkSession) -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        with interruptible(spark):
            os.kill(os.getpid(), signal.SIGINT)
            assert spark.range(3).count() == 3
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


@pytest.mark.parametrize("name", ["update", "merge"])
@pytest.mark.parametrize("times", [1, 9])
def test_an_operation_whose_staged_rows_are_lost_starts_again_a_few_times(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, times: int
) -> None:
    left = [times]

    @contextmanager
    def losing(rows: DataFrame) -> Iterator[DataFrame]:
        with stage_rows(rows) as kept:
            if left[0]:
                left[0] -= 1
                kept.count()
                kept._jdf.logicalPlan().rdd().unpersist(True)
            yield kept

    monkeypatch.setattr(f"delvec.spark.delta.write.{name}.stage_rows", losing)
    table = DeltaTable.create(spark, tmp_path, "id long, v int")
    table.append(spark.range(4).selectExpr("id", "int(id) v"))
    source = spark.range(8).where("rand() < 2").selectExpr("id", "-1 v")
    run: dict[str, Callable[[], object]] = {
        "update": lambda: table.update({"v": "-1"}, "rand() < 2"),
        "merge": lambda: (
            table.merge(source, "t.id = s.id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        ),
    }
    expected = list(range(8 if name == "merge" else 4))
    if times == 1:
        run[name]()
        assert sorted(row.id for row in table.to_df().where("v = -1").collect()) == expected
    else:
        with pytest.raises(EngineError, match=r"lost .*after 3 restarts.*\nHint: ") as caught:
            run[name]()
        assert caught.value.retryable
        assert (left, table.version) == ([5], 1)
    assert not unnamed_files(tmp_path)


def wait_for_signal() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)


def fail_after_signal() -> None:
    try:
        wait_for_signal()
    except KeyboardInterrupt:
        raise ValueError from None


def test_a_signal_outside_of_calls_is_raised_at_once_and_failures_do_not_hide_it(
    spark: SparkSession,
) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(spark), interruptible(spark):
        wait_for_signal()
    with pytest.raises(KeyboardInterrupt) as caught, interruptible(spark):
        fail_after_signal()
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ZeroDivisionError), interruptible(spark):
        raise ZeroDivisionError


def slow_job(spark: SparkSession, tasks: int) -> None:
    spark.range(tasks, numPartitions=tasks).selectExpr(
        "java_method('java.lang.Thread', 'sleep', 150L)"
    ).collect()


def test_progress_tells_the_description_and_how_many_tasks_are_done(spark: SparkSession) -> None:
    told: list[tuple[str, int, int]] = []
    with (
        describe_jobs(spark, "find rows of /lake/orders"),
        watch_jobs(spark, lambda *now: told.append(now), seconds=0.02),
    ):
        slow_job(spark, 8)
    assert {(what, total) for what, _, total in told} == {("find rows of /lake/orders", 8)}
    done = [done for _, done, _ in told]
    assert len(done) > 1
    assert done == sorted(set(done))
    told.clear()
    with watch_jobs(spark, lambda *now: told.append(now), seconds=0.02):
        slow_job(spark, 2)  # without a description: told by its stage
    assert told
    assert all("collect" in what for what, *_ in told), told
    told.clear()
    with (
        pytest.raises(ZeroDivisionError),
        watch_jobs(spark, lambda *now: told.append(now), seconds=0.01),
    ):
        raise ZeroDivisionError
    slow_job(spark, 1)
    assert not told, "nothing is told after the block"


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
