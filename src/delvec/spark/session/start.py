"""A quiet start of Spark's JVM, alone while it downloads packages.

A JVM that resolves packages prints some fifty lines before anything of interest. Its standard error
goes through a pipe: output before the session is up is held back, and shown only if the start
fails; later output is passed on to standard error.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from select import select
from subprocess import Popen
from threading import Event, Lock, Thread
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from delvec.errors import EngineError

if TYPE_CHECKING:
    from typing_extensions import Self

_IVY = "~/.ivy2.5.2"  # of Spark 4, where spark.jars.ivy does not name another
_STDERR = 2
_HELD_AT_MOST = 1 << 16
_LAST_LINES = 15
# The settings that `start_jvm` gave the JVM of this process, which keeps them for life.
_started_here: set[str] = set()


class QuietStart:
    """Provides a `sink` for the standard error of a process that is started in the block.

    What the process writes is held until the block ends, and then shown only if the block failed.
    The thread that reads the pipe lives as long as the process: a JVM whose pipe is full stops.
    """

    def __init__(self) -> None:
        self._source, self.sink = os.pipe()
        try:
            self._target: int | None = os.dup(_STDERR)
        except OSError:
            self._target = None  # no standard error, as in some GUI hosts
        self._held = bytearray()
        self._is_open = False
        self._drained, self._ended = Event(), Event()
        self._lock = Lock()
        self._reader = Thread(target=self._relay, name="delvec-jvm-stderr", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        self._close_sink()
        with self._lock:
            if isinstance(error, Exception):  # who interrupts it does not want to know more
                self._pass_on(bytes(self._held))
            self._held.clear()
            self._is_open = True
        self._ended.set()

    def last_lines(self) -> str:
        """Return the last lines of a process that has ended; the block will not show them."""
        self._close_sink()
        self._drained.wait(timeout=5)
        with self._lock:
            lines = self._held.decode(errors="replace").splitlines()
            self._held.clear()
        return "\n".join(lines[-_LAST_LINES:])

    def _close_sink(self) -> None:
        """Close our end of the pipe, so that the reader ends when the process closes its own."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1

    def _relay(self) -> None:
        while chunk := os.read(self._source, 1 << 16):
            with self._lock:
                if self._is_open:
                    self._pass_on(chunk)
                else:
                    self._held += chunk
                    del self._held[:-_HELD_AT_MOST]
        os.close(self._source)
        self._drained.set()
        self._ended.wait()  # the block may still show what was held
        if self._target is not None:
            os.close(self._target)

    def _pass_on(self, chunk: bytes) -> None:
        """Write a chunk to standard error, waiting if that is full; drop it if that is closed."""
        while chunk and self._target is not None:
            try:
                chunk = chunk[os.write(self._target, chunk) :]
            except BlockingIOError:  # noqa: PERF203  (a pipe that is non-blocking)
                select([], [self._target], [])
            except OSError:
                return


def started_with(key: str) -> str:
    """Return a setting of the running context, else one that the JVM was started with, else "".

    Settings that an earlier session of delvec started the JVM with are not the user's own, and do
    not count.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is None and key in _started_here:
        return ""
    conf = SparkConf() if context is None else context.getConf()
    return conf.get(key) or ""


def jar_name(coordinate: str) -> str:
    """Return the name that Spark gives the jar of a package in Ivy's folder.

    >>> jar_name("org.apache.iceberg:iceberg-core:1.12.0")
    'org.apache.iceberg_iceberg-core-1.12.0.jar'
    """
    return f"{coordinate.replace(':', '_', 1).replace(':', '-')}.jar"


@contextmanager
def download_alone(packages: Sequence[str], folder: str) -> Iterator[None]:
    """Let one process start at a time where packages are missing in Ivy's folder.

    Two that download into one folder break each other's files. Where the jars are there, also
    after a wait for who downloaded them, nobody waits. The lock of a process that dies is free.
    """
    ivy = Path(folder or _IVY).expanduser()
    with ExitStack() as held:
        if packages:
            try:
                ivy.mkdir(parents=True, exist_ok=True)
                lock = held.enter_context((ivy / "delvec.lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                held.close()  # no lock in this folder; what Ivy cannot write there, it tells itself
        if all((ivy / "jars" / jar_name(each)).exists() for each in packages):
            held.close()
        yield


@contextmanager
def start_jvm(options: Mapping[str, object], *, quiet: bool) -> Iterator[None]:
    """Start the JVM, as PySpark does when it is first needed."""
    conf = SparkConf()
    for key, value in options.items():
        conf.set(key, str(value))
    with QuietStart() if quiet else nullcontext() as console:
        # In a session of its own: a signal to our process group is for this process to handle, and
        # the JVM ends by itself when this process does.
        arguments: dict[str, Any] = {"start_new_session": True}
        if console:
            arguments["stderr"] = console.sink
        try:
            gateway = launch_gateway(None, arguments)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise EngineError(
                "Spark's JVM did not start",
                output=console.last_lines() if console else "",
                hint="Spark needs Java 17 or 21: is JAVA_HOME set to one?",
            ) from error
        except BaseException as interrupt:
            _kill_started(interrupt)
            raise
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001
        _started_here.update(options)
        yield


def _kill_started(interrupt: BaseException) -> None:
    """End the JVM that PySpark was starting when it was interrupted.

    The JVM would tell its port by a file in a folder that PySpark has removed, fail, and never end.
    """
    for frame, _ in walk_tb(interrupt.__traceback__):
        started = frame.f_locals.get("proc")
        if isinstance(started, Popen):
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(started.pid, signal.SIGKILL)
