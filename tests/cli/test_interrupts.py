"""Ctrl-C: the command says what is true, leaves no files of its own, and exits with 130."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import delvec.delta.write.transaction as running
from delvec import DeltaTable
from delvec.cli.main import main
from delvec.iceberg.commit import branch_commit
from delvec.iceberg.commit import commit as attempts
from tests.delta.builder import TableBuilder
from tests.delta.log_files import newest_version
from tests.delta.write.write_checks import ids, unnamed_files
from tests.repository import ROOT

pytestmark = pytest.mark.spark


def make(path: Path) -> None:
    builder = TableBuilder(
        path, fields={"id": "long"}, properties={"delta.enableDeletionVectors": "true"}
    )
    builder.create()
    entry = builder.write_file("part", {"id": list(range(10))})
    stats = {"numRecords": 10, "minValues": {"id": 0}, "maxValues": {"id": 9}}
    builder.commit({"add": entry | {"stats": json.dumps(stats)}})


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupted_command_says_whether_it_has_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    assert spark is not None
    make(tmp_path / "t")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "commit" if moment == "before" else "after_commit", interrupt)
    result = CliRunner().invoke(main, ["update", str(tmp_path / "t"), "--set", "id=-id", "--all"])
    assert result.exit_code == 130
    left = {
        "before": "interrupted, nothing was written",
        "after": f"interrupted, version 2 of {tmp_path / 't'} was committed",
    }
    assert left[moment] in " ".join(result.stderr.split())
    assert newest_version(tmp_path / "t") == (1 if moment == "before" else 2)
    assert not unnamed_files(tmp_path / "t")


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_an_interrupted_command_on_iceberg_says_so_too(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    name = f"lake.interrupted.{moment}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.interrupted")
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='3')")
    spark.sql(f"INSERT INTO {name} SELECT id FROM range(10)")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = {"before": "row_delta", "during": "_put", "after": "_forget"}[moment]
    where = branch_commit if moment == "before" else attempts
    monkeypatch.setattr(where, place, interrupt)
    result = CliRunner().invoke(main, ["delete-keys", name, "--key", "id", "--values", "1,2"])
    assert result.exit_code == 130
    told = {
        "before": "interrupted, no row was changed",
        "during": r"interrupted, whether snapshot \d+ of lake\.interrupted",
        "after": r"interrupted, snapshot \d+ of lake\.interrupted\.after was comm",
    }
    assert re.search(told[moment], " ".join(result.stderr.split()))
    spark.catalog.refreshTable(name)
    assert spark.table(name).count() == (8 if moment == "after" else 10)


def test_an_interrupt_before_the_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: str) -> None:
        raise KeyboardInterrupt

    # The package has the command under the name of this module.
    monkeypatch.setattr(sys.modules["delvec.cli.main"], "import_module", interrupt)
    result = CliRunner().invoke(main, ["history", "t"])
    assert (result.exit_code, result.stderr) == (130, "Error: interrupted, nothing was written\n")


def started(jobs: list[dict[str, object]]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cli.interrupted", json.dumps(jobs)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


@pytest.mark.more
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("follow", [("--follow",), ()], ids=["follow", "once"])
def test_a_signal_while_spark_starts_ends_the_command_quietly_and_leaves_no_jvm(
    sign: signal.Signals, follow: tuple[str, ...]
) -> None:
    with started([{"at": "start", "arguments": ["resolve", "lake.db.t", *follow]}]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(sign)
        found, errors = process.communicate(timeout=60)
    assert found.split() == [str(-signal.SIGKILL), str(128 + sign)]
    assert len(errors.splitlines()) == (1 if sign is signal.SIGINT else 0), errors


@pytest.mark.slow
def test_a_real_signal_to_a_real_process(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(path)
    sleep = "reflect('java.lang.Thread', 'sleep', 300000L) IS NULL"
    commands = (
        ("job", "delete", "--where", f"id = 3 OR {sleep}"),
        ("job", "update", "--set", f"id=id + int({sleep})", "--all"),
        ("before", "update", "--set", "id=-1", "--where", "id = 3"),
        ("after", "delete", "--where", "id = 4"),
    )
    jobs: list[dict[str, object]] = [
        {"at": at, "arguments": [name, str(path), *more]} for at, name, *more in commands
    ]
    process = started(jobs)
    assert process.stdout is not None
    found = []
    for _ in jobs:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        found.append(process.stdout.readline().strip())
        found.append(str(newest_version(path)))
        assert not unnamed_files(path)
    _, errors = process.communicate(timeout=60)
    assert found == ["130", "1"] * 3 + ["130", "2"]
    told = [" ".join(line.split()) for line in errors.split("Error: ")[1:]]
    assert told[:3] == ["interrupted, nothing was written"] * 3, errors
    assert told[3].startswith(f"interrupted, version 2 of {path} was committed")
    assert ids(path) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert DeltaTable.for_path(None, path).arrow_history()["operation"][0].as_py() == "DELETE"
