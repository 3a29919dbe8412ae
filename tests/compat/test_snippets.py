"""Snippets of the guides of delta-spark and deltalake run as they are typed, but for imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.compat.snippets import SNIPPETS
from tests.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.more]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.compat.snippets", str(tmp_path_factory.mktemp("job"))]
    told = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, check=False)
    assert told.returncode == 0, told.stderr.decode()[-3000:]
    answers: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_gives_what_its_guide_says(found: dict[str, Any], name: str) -> None:
    assert found[name] == SNIPPETS[name][1]


def test_there_are_enough_of_them() -> None:
    assert len(SNIPPETS) >= 25
