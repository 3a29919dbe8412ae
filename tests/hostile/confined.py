"""Run an attack in a process of its own, with little memory and time.

The processes are forks of one that has imported everything, so that each starts at once.
"""

from __future__ import annotations

import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.hostile.attack import Attack, Ground, launch
from tests.hostile.attacks import ATTACKS
from tests.hostile.operations import OPERATIONS
from tests.repository import ROOT

# Beyond what the imports took. Address space is more than memory: Arrow reserves some.
_MEMORY: Final = 1 << 30
_SECONDS: Final = 60  # a defence takes less than one: this ends a test that would never end


def launch_confined(attack: Attack, folder: Path) -> None:
    """Carry out an attack in a child; fail with what it printed."""
    failure = folder / "failure.txt"
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([attack.name, str(folder), str(failure)]) + "\n")
    server.stdin.flush()
    status = server.stdout.readline().strip()
    told = failure.read_text() if failure.exists() else f"it ended with {status}"
    assert status == "0", told[-3000:]


@cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks for each attack; it ends with its standard input."""
    command = [sys.executable, "-m", "tests.hostile.confined"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def _serve() -> None:
    _import_all("delvec.delta")
    _import_all("delvec.vector")
    import_module("pyarrow.dataset")
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _confined(*json.loads(line))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _import_all(name: str) -> None:
    package: ModuleType = import_module(name)
    for each in pkgutil.walk_packages(package.__path__, f"{name}."):
        import_module(each.name)


def _confined(name: str, folder: str, failure: str) -> None:
    """Carry out an attack in this process, and end it."""
    status = 1
    try:
        [attack] = [each for each in ATTACKS if each.name == name]
        signal.alarm(_SECONDS)
        if sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + _MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        launch(attack, Ground(Path(folder)), OPERATIONS[attack.operation].run)
        status = 0
    except BaseException:  # noqa: BLE001 - the other process tells
        Path(failure).write_text(traceback.format_exc(), errors="backslashreplace")
    finally:
        os._exit(status)


if __name__ == "__main__":
    _serve()
