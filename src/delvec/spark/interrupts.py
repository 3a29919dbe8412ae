"""Ctrl-C while the driver waits for Spark.

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
from contextlib import contextmanager, suppress
from threading import Event, Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from pyspark.sql import SparkSession

__all__ = ["interruptible"]

_LOG = logging.getLogger("delvec")
_POLL: Final = 0.05
_LONGEST_WAIT: Final = 60.0
_INTERRUPT_ON_CANCEL: Final = "spark.job.interruptOnCancel"
_GONE: Final = (Py4JError, PySparkException, OSError)


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
        if self._installed or not _is_usual(found):
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
                jvm.cancel_jobs(spark)
            with self._lock:
                if not over.is_set() and not self._raised:
                    self._again = True
                    _thread.interrupt_main()
            over.wait(_POLL)


_CTRL_C: Final = _CtrlC()


def _is_usual(handler: Any) -> bool:  # noqa: ANN401
    """Whether a handler of SIGINT is Python's or PySpark's, and not the user's own."""
    module = getattr(handler, "__module__", None)
    return handler is signal.default_int_handler or module == "pyspark.core.context"


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
