"""`delvec clean-target`: what it tells people and programs, and how it ends."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.cli.demo.bytes import write_orders
from delvec.cli.exits import ExitCode
from tests.cli import runner

run = partial(runner.run, "clean-target")


@pytest.mark.spark
def test_a_dry_run_shows_what_a_run_then_does(spark: SparkSession, tmp_path: Path) -> None:
    name, path = "lake.cli.cleaned", tmp_path / "orders"
    write_orders(str(path))
    delvec.convert(spark, path, name, history="per-version")
    shown = run(name, "--older-than", "0s", "--retain-last", "2", "--dry-run", "--limit", "1")
    assert shown.exit_code == 0, shown.output
    assert f"{name}: 1 snapshot would expire, 1 file (" in shown.output
    assert "1 expire, 2 are kept" in shown.output
    assert "1: delta-version-0" in shown.output
    assert "manifest list" in shown.output
    done = json.loads(run(name, "--retain-last", "1", "--json").output)
    assert (len(done["snapshots"]), done["snapshots_kept"]) == (2, 1)
    assert done["tags"] == ["delta-version-0", "delta-version-1"]
    assert len(done["files"]) == done["files_expired"]
    assert {file["reason"] for file in done["files"]} == {"expired"}
    again = run(name, "--older-than", "2020-01-31")
    assert f"{name}: nothing to remove" in again.output
    run("lake.cli.nothing", "--json", code=ExitCode.NOT_FOUND)
    assert spark.table(name).count() == 27_142
