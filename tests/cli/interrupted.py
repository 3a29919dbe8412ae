"""A process that runs commands, and says when each is where a signal is to reach it.

    python -m tests.cli.interrupted '[{"at": "job", "arguments": ["delete", ...]}, ...]'

`at` is `start` (of Spark's JVM), `job` (a job of Spark runs), `before` the commit or `after` it. A
line `ready` is printed there, and a line with the exit code when the command has ended; before
that, of a JVM that was being started, how it has ended.
"""

from __future__ import annotations

import json
import sys
import time
from subprocess import Popen
from threading import Thread
from typing import Any

from pyspark import SparkContext

import delvec.delta.write.transaction as running
from delvec.cli.main import main
from delvec.spark.session import start

_STARTED: list[Popen[bytes]] = []
_COMMIT, _AFTER = running.commit, running.after_commit  # type: ignore[attr-defined]


def _wait(*_: Any) -> Any:  # noqa: ANN401
    print("ready", flush=True)  # noqa: T201
    time.sleep(600)


def _launch(*_: Any) -> None:  # noqa: ANN401
    """Start a process as PySpark does, which has this very name for it."""
    proc = Popen(["/bin/sleep", "600"], start_new_session=True)
    _STARTED.append(proc)
    _wait()


def _wait_for_job() -> None:
    while True:
        context = SparkContext._active_spark_context
        # It is known before it is complete: its Java half comes last.
        started = context is not None and getattr(context, "_jsc", None) is not None
        if context is not None and started and context.statusTracker().getActiveStageIds():
            print("ready", flush=True)  # noqa: T201
            return
        time.sleep(0.05)


def _run(at: str, arguments: list[str]) -> None:
    setattr(running, "commit", _wait if at == "before" else _COMMIT)  # noqa: B010
    setattr(running, "after_commit", _wait if at == "after" else _AFTER)  # noqa: B010
    if at == "start":
        setattr(start, "launch_gateway", _launch)  # noqa: B010
    if at == "job":
        Thread(target=_wait_for_job, daemon=True).start()
    try:
        main(arguments)
    except SystemExit as end:
        for each in _STARTED:
            print(each.wait(60), flush=True)  # noqa: T201
        print(end.code, flush=True)  # noqa: T201


if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        _run(each["at"], each["arguments"])
