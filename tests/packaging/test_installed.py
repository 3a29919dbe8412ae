"""The wheel in clean environments: one command installs it, and then it works.

Each environment is some 500 MB, which pip takes from its cache from the second time on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LIVE = sorted({*range(100)} - {*range(0, 100, 7)} | {*range(90, 110)})
BY_SQL = {
    **{name: [] for name in ("create", "create by path", "insert", "alter", "constraint", "drop")},
    **dict.fromkeys(("save", "saveAsTable", "writeTo", "stream")),
    "merge": [[2, 1, 0, 1]],
    "update": [[1]],
    "delete": [[1]],
    "select": [[1, "x", "x"], [9, None, None]],
    "arguments": [[2]],
    "versions": [[5]],
    "at": [[6]],
    "changes": [["delete", 1], ["insert", 1], ["update_postimage", 2], ["update_preimage", 2]],
    "optimize": [["by sql"]],
    "restore": [[2]],
    "history": [
        [0, "CREATE TABLE"],
        [1, "WRITE"],
        [2, "ADD COLUMNS"],
        [3, "ADD CONSTRAINT"],
        [4, "RESTORE"],
    ],
    "describe": [["id", "bigint", None], ["s", "string", None]],
    "load": [[1], [2]],
    "streamed": [[0], [1], [2]],
    "show": [["orders"], ["saved"], ["streamed"]],
    "nothing of ours": [[2]],
}
BARE = "delvec"  # which gets the newest Spark
MATRIX = [
    ("3.10", BARE, ()),
    ("3.10", BARE, ("pyspark~=4.0.0",)),
    ("3.11", BARE, ("pyspark~=4.2.0",)),
    ("3.12", "delvec[spark]", ()),
    ("3.13", BARE, ()),
    ("3.13", "delvec[spark]", ()),
]


def python_of(version: str) -> str | None:
    """Find a Python; that of these tests if it is of that version."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = shutil.which(f"python{version}")
    if found is not None and not Path(found).is_relative_to(pyenv / "shims"):
        return found
    return next(map(str, (pyenv / "versions").glob(f"{version}.*/bin/python")), None)


def cases() -> Iterator[Any]:
    for version, name, pins in MATRIX:
        python = python_of(version)
        absent = pytest.mark.skipif(python is None, reason=f"there is no Python {version} here")
        yield pytest.param(python, name, pins, id=" ".join((version, name, *pins)), marks=absent)


def run(command: list[str], folder: Path) -> str:
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize(("python", "name", "pins"), list(cases()))
def test_one_command_installs_what_works(
    python: str, name: str, pins: tuple[str, ...], wheel: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    run([python, "-m", "venv", str(environment)], tmp_path)
    bin_ = environment / "bin"
    requirement = name.replace("delvec", str(wheel)) if "[" in name else str(wheel)
    run([str(bin_ / "python"), "-m", "pip", "install", "-q", requirement, *pins], tmp_path)

    assert "delete" in run([str(bin_ / "delvec"), "--help"], tmp_path)
    script = str(ROOT / "tests" / "packaging" / "first_steps.py")
    found = json.loads(
        run([str(bin_ / "python"), script, str(tmp_path)], tmp_path).splitlines()[-1]
    )

    assert found["delvec"].startswith(str(environment))
    assert found["deleted"] == 15
    assert found["rows"] == found["by_source"] == found["arrow"] == LIVE
    assert found["sql"].pop("violation").startswith("SparkRuntimeException: ")
    assert found["sql"].pop("dropped").startswith("AnalysisException: ")
    assert found["sql"] == BY_SQL
    if found["spark"].startswith(("4.0.", "4.1.")):
        assert found["iceberg"] == LIVE
        assert "missing" not in found
        assert found["told"] == []
    else:  # it has no Iceberg runtime
        [message, dependency] = found["missing"]
        assert f"Iceberg has no runtime for Spark {found['spark']}" in message
        assert "pip install 'delvec[spark]'" in message
        assert dependency == "pyspark~=4.1.0"
        [told] = found["told"]
        assert told.startswith(f"Iceberg has no runtime for Spark {found['spark']}")
    if name == "delvec[spark]":
        assert found["spark"].startswith("4.1.")
    # The command alike: on Delta tables, with an exit code, and as JSON.
    told = run(
        [str(bin_ / "delvec"), "delete", "orders", "--where", "id >= 100", "--json"], tmp_path
    )
    assert json.loads(told)["rows_deleted"] == 10
