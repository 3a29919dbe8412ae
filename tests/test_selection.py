"""Which tests run: the options and marks of `tests/conftest.py`, on a file of tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

pytestmark = pytest.mark.more

TESTS = """
import pytest
def test_passes(): ...
def test_skips(): pytest.skip("nothing is here")
@pytest.mark.skipif(True, reason="not on this machine")
def test_is_of_another_machine(): raise AssertionError
def test_asks_for_a_server(s3): raise AssertionError
@pytest.mark.quick_cases(4)
@pytest.mark.first_cases(2)
@pytest.mark.parametrize("number", range(9))
def test_cases(number): ...
"""
WITHOUT = ("-k", "not cases", "--without", "s3")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (WITHOUT, "1 passed, 2 skipped, 10 deselected"),
        ((*WITHOUT, "--no-skips"), "1 failed, 1 passed, 11 deselected"),
        (("-k", "cases"), "4 passed, 9 deselected"),
        (("-k", "cases", "-m", "not more and not slow"), "2 passed, 11 deselected"),
        (("-k", "cases", "-m", "more and not slow"), "2 passed, 11 deselected"),
    ],
    ids=["skips", "no skips", "quick", "make test", "make test-more"],
)
def test_options_and_marks(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    file = tmp_path / "test_these.py"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "pyproject.toml"]
    command += ["-p", "no:cacheprovider", "-n", "0", *options, str(file)]
    # What the outer run was told is not for this one.
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    closing = [line for line in done.stdout.splitlines() if line.startswith("=")][-1]
    assert told in closing, done.stdout
