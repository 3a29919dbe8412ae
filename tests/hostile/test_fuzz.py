"""What reads bytes or JSON of a table, fed with mutated ones in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.hostile.fuzz import MEMORY
from tests.repository import ROOT

_AT_ONCE: Final = 2_500  # a process that dies takes no more inputs with it
_SLOWEST: Final = 2.0


def feed(count: int, seed: int, folder: Path) -> Counter[str]:
    """Feed inputs to a child; a crash of a library in C, or a runaway allocation, is its end."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.hostile.fuzz", str(count), str(seed), str(folder)]
    # An hour is no measurement, only an end for what hangs outside of Python.
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3600, check=False, cwd=ROOT
    )
    number = (folder / "number").read_text() if (folder / "number").exists() else "none"
    again = f"{' '.join(command[1:])} {number}"
    assert done.returncode == 0, f"died at input {number}: {again}\n{done.stderr[-3000:]}"
    report = json.loads(done.stdout)
    assert not report["wrong"], "\n\n".join([again, *report["wrong"].values()])
    assert report["slowest"] < _SLOWEST
    assert report["peak"] < MEMORY
    return Counter(report["outcomes"])


def test_mutated_inputs_end_in_a_value_or_an_error_of_delvec(tmp_path: Path) -> None:
    outcomes = feed(300, 1, tmp_path / "first")
    assert outcomes.total() == 300
    assert outcomes["value"] > 20
    assert outcomes["FormatError"] > 20


@pytest.mark.slow
def test_a_hundred_thousand_mutated_inputs(tmp_path: Path) -> None:
    count = int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 100_000)
    outcomes: Counter[str] = Counter()
    for seed in range(max(1, count // _AT_ONCE)):
        outcomes += feed(min(count, _AT_ONCE), 1000 + seed, tmp_path / str(seed))
    assert outcomes.total() >= count - _AT_ONCE
