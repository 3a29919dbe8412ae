"""Spark's jobs: stopped by Ctrl-C, described and watched, and rows that several of them share.

PySpark's handler of SIGINT calls the JVM on the very connection whose answer the main thread is
reading, which breaks it: the interrupt becomes an error of Py4J, and the job goes on. The handler
here makes no such call. Jobs are cancelled by another thread, on a connection of its own, and a
call that is under way is left to end by that: its connection stays usable, and nothing of it goes
on in the JVM when files are removed.
"""

from __future__ import annotations

import _thread
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec.errors import EngineError, UnsupportedFeatureError
from delvec.spark import jvm

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession

    OnProgress: TypeAlias = Callable[[str, int, int], None]

_LOG = logging.getLogger("delvec")
_POLL: Final = 0.05
_LONGEST_WAIT: Final = 60.0
_INTERRUPT_ON_CANCEL: Final = "spark.job.interruptOnCancel"
_GONE: Final = (Py4JError, PySparkException, OSError)
_RESTARTS: Final = 3

T = TypeVar("T")


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Make Ctrl-C in the block a KeyboardInterrupt that is raised when no task runs any more.

    All jobs of the session are cancelled, as PySpark does on Ctrl-C, and their tasks interrupted. A
    second Ctrl-C does not wait for them. A handler of SIGINT that is the user's own stays; if it
    raises KeyboardInterrupt, that waits for the tasks as well.
    """
    if current_thread() is not main_thread():
        yield  # signals reach the main thread only
        return
    before = _CTRL_C.count
    with _CTRL_C.handled(spark):
        try:
            yield
        except BaseException as error:
            if _CTRL_C.count > before or isinstance(error, KeyboardInterrupt):
                _CTRL_C.settle(spark)
            if _CTRL_C.count > before and not isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt from error  # the failure of a job that was cancelled
            raise
        if _CTRL_C.count > before:  # the call under way was the last one
            _CTRL_C.settle(spark)
            raise KeyboardInterrupt


@contextmanager
def describe_jobs(spark: SparkSession, what: str) -> Iterator[None]:
    """Set the description of the jobs of the block; restore the caller's own afterwards."""
    context = spark.sparkContext
    before: Any = context.getLocalProperty("spark.job.description")
    context.setJobDescription(what)
    try:
        yield
    finally:
        context.setJobDescription(before)


@contextmanager
def watch_jobs(
    spark: SparkSession, on_progress: OnProgress, *, seconds: float = 0.2
) -> Iterator[None]:
    """Call a function with the progress of Spark's active stages, for as long as the block runs.

    It is called from another thread, and only when the progress has changed. The thread polls
    Spark's status tracker a few times a second, which costs the same for any data; a job that is
    shorter than the time between two polls is missed.
    """
    jvm.view_of(spark)
    ended = Event()
    work = (spark, on_progress, ended, seconds)
    watcher = Thread(target=_watch, args=work, name="delvec-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@contextmanager
def stage_rows(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute rows once, so that all jobs of the block see the same ones.

    On a cluster they go to Spark's checkpoint directory if there is one: there they outlive
    executors, and only one attempt of a task counts. Otherwise they stay in the memory of the
    executors, and on their disks beyond it, until the block ends. Unlike with a cache, lost rows
    are never computed again behind the back of jobs that have seen them, with other random numbers
    or from a source that has changed: the job fails, and `restart_if_lost` starts all of it again.
    """
    where = _staging(rows.sparkSession)
    if where == "directory":
        kept = rows.checkpoint(eager=False)
    else:
        # In one JVM they are computed with the job that needs them first. Elsewhere before it: no
        # job has seen yet what is lost and computed again meanwhile.
        kept = rows.localCheckpoint(eager=where == "executors")
    plan: Any = kept._jdf.logicalPlan()  # noqa: SLF001
    staged = plan.rdd()
    try:
        if where == "directory":
            staged.doCheckpoint()
        yield kept
    finally:
        if where == "directory":
            _remove_checkpoint(rows.sparkSession, staged)
        else:
            staged.unpersist(False)


def restart_if_lost(operation: Callable[[], T]) -> T:
    """Run an operation; start it again, a few times, if rows that it staged are lost.

    It has committed nothing then, and has removed what it wrote. All of its parts come from rows
    that are staged anew, so they agree even if the source returns others than before.
    """
    for restart in range(_RESTARTS + 1):
        try:
            return operation()
        except EngineError as error:  # noqa: PERF203 - an operation takes seconds
            if not error.retryable:
                raise
            if restart == _RESTARTS:
                error.message += f" (after {_RESTARTS} restarts)"
                raise
            _LOG.warning("%s; starting again", error.describe())
    raise AssertionError("the last attempt returns or raises")


class _CtrlC:
    """The handler of SIGINT while a block runs in the main thread; blocks may be nested."""

    def __init__(self) -> None:
        self.count = 0
        self._installed = False
        self._raised = False
        self._again = False
        self._outside: BaseException | None = None
        self._spark: SparkSession | None = None
        self._over = Event()
        self._over.set()
        self._lock = Lock()

    @contextmanager
    def handled(self, spark: SparkSession) -> Iterator[None]:
        """Install the handler for the block, unless an outer block has or a user's own is there."""
        found = signal.getsignal(signal.SIGINT)
        is_pyspark = getattr(found, "__module__", None) == "pyspark.core.context"
        if self._installed or not (is_pyspark or found is signal.default_int_handler):
            yield
            return
        self._spark, self._outside = spark, sys.exc_info()[1]
        self._installed = True
        signal.signal(signal.SIGINT, self._on_signal)
        try:
            with _interrupted_tasks(spark):
                yield
        finally:
            self._end()
            # A session that started in the block has installed a handler of PySpark.
            if signal.getsignal(signal.SIGINT) == self._on_signal:
                signal.signal(signal.SIGINT, found)
            self._installed = False

    def settle(self, spark: SparkSession) -> None:
        """Cancel all jobs and wait until their tasks have ended."""
        self._raised = True
        try:
            if not jvm.tasks_ended(spark, _LONGEST_WAIT):
                _LOG.warning("tasks of Spark run on, and may leave files")
        except _GONE:
            pass  # the JVM is gone, and its tasks with it
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._over.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        again, self._again = self._again, False
        if again:
            # What is raised already, or a failure on its way out, ends the block.
            if self._raised or sys.exc_info()[1] not in (None, self._outside):
                return
            if _in_call(frame):
                return
        else:
            self.count += 1
            if self._over.is_set():
                self._raised, self._over = False, Event()
                # Not `threading.Thread`, whose locks the main thread may hold at this moment.
                _thread.start_new_thread(self._cancel, (self._over,))
                if _in_call(frame):
                    return
        self._raised = True
        raise KeyboardInterrupt

    def _cancel(self, over: Event) -> None:
        """Cancel jobs, also those that a call has yet to start; signal again when it has ended."""
        spark = self._spark
        while spark is not None and not over.is_set():
            # A second Ctrl-C closes the connections of all threads, in whatever they are doing.
            with suppress(Exception):
                spark.sparkContext.cancelAllJobs()
            with self._lock:
                if not over.is_set() and not self._raised:
                    self._again = True
                    _thread.interrupt_main()
            over.wait(_POLL)


_CTRL_C: Final = _CtrlC()


def _in_call(frame: FrameType | None) -> bool:
    """Whether a frame is in a call of the JVM, whose connection an exception would break."""
    while frame is not None:
        if frame.f_code is GatewayClient.send_command.__code__:
            return True
        frame = frame.f_back
    return False


@contextmanager
def _interrupted_tasks(spark: SparkSession) -> Iterator[None]:
    """Let tasks of jobs in the block be interrupted when these are cancelled, not only asked."""
    context = spark.sparkContext
    before: Any = context.getLocalProperty(_INTERRUPT_ON_CANCEL)
    context.setLocalProperty(_INTERRUPT_ON_CANCEL, "true")
    try:
        yield
    finally:
        try:
            context.setLocalProperty(_INTERRUPT_ON_CANCEL, before)
        except _GONE:
            _LOG.debug("the JVM is gone", exc_info=True)


def _watch(spark: SparkSession, on_progress: OnProgress, ended: Event, seconds: float) -> None:
    last: tuple[str, int, int] | None = None
    while not ended.wait(seconds):
        try:
            now = _progress(spark)
        except (Py4JError, OSError):
            return  # the session has ended; its user gets the error
        if now is not None and now != last:
            on_progress(*now)
            last = now


def _progress(spark: SparkSession) -> tuple[str, int, int] | None:
    """Add up the tasks of all active stages; None if there is none."""
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [stage for stage in found if stage is not None]
    jobs = tracker.getActiveJobsIds()
    if not stages or not jobs:
        return None
    done = sum(stage.numCompletedTasks for stage in stages)
    total = sum(stage.numTasks for stage in stages)
    # The status tracker of Python does not have the description.
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001
    description = store.job(min(jobs)).description()
    what = str(description.get()) if description.isDefined() else ""
    return what or stages[0].name, done, total


def _staging(spark: SparkSession) -> Literal["process", "executors", "directory"]:
    """Return where staged rows are kept."""
    context = spark.sparkContext
    master = str(context.master)
    if master.startswith("local") and "cluster" not in master:
        return "process"
    if context.getCheckpointDir() is not None:
        return "directory"
    if context.getConf().get("spark.speculation", "false").lower() == "true":
        raise UnsupportedFeatureError(
            "with spark.speculation two attempts of a task may compute different rows, and two"
            " executors keep them: without a checkpoint directory nothing chooses one of them",
            feature="spark.speculation",
            hint="call spark.sparkContext.setCheckpointDir(...), or switch spark.speculation off",
        )
    return "executors"


def _remove_checkpoint(spark: SparkSession, staged: Any) -> None:  # noqa: ANN401
    """Remove staged rows from the checkpoint directory, where Spark leaves them by default."""
    data = jvm.java_class(spark, "org.apache.spark.rdd.ReliableRDDCheckpointData")
    try:
        data.cleanCheckpoint(staged.context(), staged.id())
    except _GONE as error:  # not worth the failure of an operation that is committed already
        _LOG.warning("staged rows are left in the checkpoint directory: %s", error)
