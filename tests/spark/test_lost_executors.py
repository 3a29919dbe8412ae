"""Executors that are killed while rows are staged on them: all rows are there, each once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.spark.losing import OPERATIONS

pytestmark = [pytest.mark.spark, pytest.mark.more]

Run = Callable[..., dict[str, Any]]
# When rows are staged for this time, all that were staged before are lost with them.
STAGED = [
    ("update", 1),
    ("merge", 1),
    ("merge", 4),
    ("delete by keys", 1),
    ("append", 1),
    ("overwrite", 1),
    ("iceberg upsert", 1),
    ("iceberg upsert", 2),
    ("iceberg delete by keys", 1),
]


@contextmanager
def cluster(folder: Path, *arguments: str) -> Iterator[Run]:
    """Start a cluster of two executors, which runs one case after the other."""
    kept = {key: value for key, value in os.environ.items() if key != "SPARK_HOME"}
    command = [sys.executable, "-m", "tests.spark.losing", str(folder), *arguments]
    errors = (folder / "errors").open("w+")
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=kept, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def run(operation: str, **how: float) -> dict[str, Any]:
        print(json.dumps({"operation": operation, **how}), file=child.stdin, flush=True)
        line = child.stdout.readline()  # type: ignore[union-attr]
        assert line, (folder / "errors").read_text()[-4000:]
        found: dict[str, Any] = json.loads(line)
        return found

    with errors, child:
        yield run
        child.stdin.close()


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with cluster(tmp_path_factory.mktemp("losing")) as run:
        yield run


def require_consistent(found: dict[str, Any]) -> None:
    """Compare the rows with the report: new rows have n = -1, others n = id."""
    assert "error" not in found, found
    rows = dict(found["rows"])
    assert len(rows) == len(found["rows"]), "a row came back beside its new version"
    new = {id_ for id_, n in rows.items() if n == -1}
    assert all(rows[id_] == id_ for id_ in rows.keys() - new)
    old = len(rows.keys() & set(range(20)))
    if "left" in found:  # a Delta table
        assert found["left"] == []
        assert len(new) == found["rows_updated"] + found["rows_inserted"] == found["fed"]
        assert len(rows) == 20 + found["rows_inserted"] - found["rows_deleted"]
    elif found["rows_added"]:
        assert (len(new), old) == (found["rows_added"], 20)
    else:
        assert (len(new), old) == (0, len(rows))
        assert len(rows) >= 20 - found["keys"]


@pytest.mark.parametrize(("operation", "staging"), STAGED)
def test_an_operation_begins_again_when_its_staged_rows_are_lost(
    losing: Run, operation: str, staging: int
) -> None:
    found = losing(operation, staging=staging)
    require_consistent(found)
    assert found["killed"], "it staged rows less often than this"


def test_rows_that_two_attempts_may_compute_are_staged_in_a_directory_only(losing: Run) -> None:
    found = losing("merge", staging=9, speculation=1)
    assert "without a checkpoint directory nothing chooses one of them" in found["error"]


@pytest.mark.slow
def test_executors_are_lost_at_any_time(losing: Run) -> None:
    choice = random.Random(11)
    for operation in [*OPERATIONS, *OPERATIONS, *OPERATIONS]:
        require_consistent(losing(operation, seconds=choice.uniform(0, 8)))


def test_rows_in_a_checkpoint_directory_outlive_executors(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    with cluster(tmp_path, str(checkpoints)) as run:
        found = run("merge", staging=1, speculation=1)
    require_consistent(found)
    assert found["killed"]
    assert "starting again" not in (tmp_path / "errors").read_text()
    assert not [each for each in checkpoints.rglob("*") if each.is_file()]
