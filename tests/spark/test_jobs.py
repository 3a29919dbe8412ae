"""Ctrl-C in a process that uses the library: a real signal, while a job runs."""

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
from delvec.spark.jobs import interruptible
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
