"""`delvec convert` and `delvec clean-target`: what they tell, and how they end."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.cli.demo.bytes import write_orders
from delvec.cli.exits import ExitCode, stopped_by_signals
from delvec.delta.table import DeltaTable
from tests.cli import runner

run = partial(runner.run, "convert")


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders"
    write_orders(str(path))
    return path


@pytest.mark.more
@pytest.mark.spark
def test_a_dry_run_shows_each_file_and_writes_nothing(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    there = ("--catalog", "dry", "--warehouse", tmp_path / "warehouse", "--dry-run")
    output = run(orders, "dry.db.t", *there, "--limit", "2", code=0).output
    headline, *lines = output.splitlines()
    assert headline.strip().endswith("-> dry.db.t: from nothing to version 2 (full, format 3)")
    assert [line.split()[0] for line in lines if "parquet" in line] == ["add", "add"]
    assert "… and 1 more; --limit 0 shows all" in output
    assert "3 files, 341.1 KiB, 30,000 rows, 2,858 of them deleted (9.5 %)" in output
    document = json.loads(run(orders, "dry.db.t", *there, "--json").output)
    assert document["total"]["deleted_rows"] == 2858
    found = sorted((file["action"], file["new_vector"] is None) for file in document["files"])
    assert found == [("add", False), ("add", False), ("add", True)]
    steps = run(orders, "dry.db.t", *there, "--history", "per-version").output
    assert "vector-add" in steps
    assert "5 changes" in steps
    assert not (tmp_path / "warehouse").exists()
    assert not spark.catalog.tableExists("dry.db.t")


@pytest.mark.spark
def test_a_conversion_tells_what_it_did_and_goes_on_from_there(
    spark: SparkSession, orders: Path
) -> None:
    name = "lake.cli.converted"
    first = json.loads(
        run(orders, name, "--version", "1", "--format-version", "2", "--json").output
    )
    assert (first["version"], first["mode"], first["format_version"]) == (1, "full", 2)
    shown = run(orders, name, "--verify", "rows").output
    for told in (f"-> {name}: version 2 (from 1)", "vectors   2 added", "verified  rows"):
        assert told in shown
    assert "nothing was written" in run(orders, name).output
    assert spark.table(name).count() == DeltaTable.for_path(None, orders).count()
    refused = run(orders, name, "--format-version", "3", code=ExitCode.FAILED)
    assert "has format 2, not 3" in refused.output


@pytest.mark.spark
def test_cleaning_a_target_shows_in_a_dry_run_what_it_then_does(
    spark: SparkSession, orders: Path
) -> None:
    name = "lake.cli.cleaned"
    delvec.convert(spark, orders, name, history="per-version")
    clean = partial(runner.run, "clean-target")
    older = ("--older-than", "0s", "--retain-last", "2", "--dry-run", "--limit", "1")
    shown = clean(name, *older, code=0).output
    for told in (
        *(f"{name}: 1 snapshot would expire, 1 file (", "1 expire, 2 are kept"),
        *("1: delta-version-0", "manifest list"),
    ):
        assert told in shown
    done = json.loads(clean(name, "--retain-last", "1", "--json").output)
    assert (len(done["snapshots"]), done["snapshots_kept"]) == (2, 1)
    assert done["tags"] == ["delta-version-0", "delta-version-1"]
    assert [file["reason"] for file in done["files"]] == ["expired"] * done["files_expired"]
    assert f"{name}: nothing to remove" in clean(name, "--older-than", "2020-01-31").output
    clean("lake.cli.nothing", "--json", code=ExitCode.NOT_FOUND)
    assert spark.table(name).count() == 27_142


@pytest.mark.more
@pytest.mark.spark
def test_settings_name_another_catalog(spark: SparkSession, orders: Path, tmp_path: Path) -> None:
    catalog, place = "spark.sql.catalog.elsewhere", tmp_path / "elsewhere"
    kind = f"{catalog}=org.apache.iceberg.spark.SparkCatalog"
    settings = (kind, f"{catalog}.type=hadoop", f"{catalog}.warehouse={place}")
    words = [word for each in settings for word in ("--conf", each)]
    run(orders, "elsewhere.db.t", *words, "--json", code=0)
    assert (place / "db/t/metadata").is_dir()
    assert spark.table("elsewhere.db.t").count() == 27_142


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_following_after_the_running_conversion(
    spark: SparkSession, orders: Path, sign: signal.Signals
) -> None:
    name = f"lake.cli.{sign.name.lower()}"
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    done = Event()

    def kill() -> None:
        while not done.wait(0.05):
            if spark.catalog.tableExists(name):  # it is verified and published at the earliest
                os.kill(os.getpid(), sign)
                return

    killer = Thread(target=kill)
    killer.start()
    try:
        result = run(orders, name, "--follow", "--interval", "600", "--json")
    finally:
        done.set()
        killer.join()
    assert result.exit_code == 0, result.output
    report, end = map(json.loads, result.output.splitlines())
    assert (report["version"], report["mode"]) == (2, "full")
    assert (end["stopped"], end["version"]) == (True, 2)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_second_signal_does_what_it_did_before() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        stop = Event()
        with stopped_by_signals(stop):
            signal.raise_signal(signal.SIGTERM)
            assert stop.wait(10)
            assert not heard
            signal.raise_signal(signal.SIGTERM)
            assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
