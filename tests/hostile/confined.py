"""Run an attack in a process of its own, with little memory and time."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.hostile.attack import Attack, Ground, launch
from tests.hostile.attacks import ATTACKS
from tests.hostile.operations import OPERATIONS
from tests.repository import ROOT

__all__ = ["launch_confined"]

# Beyond what the imports took. Address space is more than memory: Arrow reserves some.
_MEMORY: Final = 1 << 30
_SECONDS: Final = 120  # a defence takes less than one: this ends a test that would never end


def launch_confined(attack: Attack, folder: Path) -> None:
    """Carry out an attack in a child; fail with what it printed."""
    command = [sys.executable, "-m", "tests.hostile.confined", attack.name, str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _main(name: str, folder: str) -> None:
    [attack] = [each for each in ATTACKS if each.name == name]
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    launch(attack, Ground(Path(folder)), OPERATIONS[attack.operation].run)


if __name__ == "__main__":
    _main(*sys.argv[1:])
