"""The demonstration: what it prints is what its tables hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.cli.demo import demo as story
from delvec.cli.demo import steps
from delvec.cli.demo.demo import Tour
from delvec.cli.demo.steps import ACCOUNTS, BLIND, CONVERTED, STEPS, show_steps
from delvec.cli.exits import ExitCode
from delvec.cli.output import Output
from delvec.errors import MissingDependencyError
from delvec.report.format import format_size
from delvec.storage import Storage
from tests.cli import runner
from tests.cli.runner import run_json
from tests.repository import ROOT

PERSON = b"maria.keller"
run = partial(runner.run, "demo")


class Told(NamedTuple):
    """One run of all steps: where, the text in a pipe, and the document."""

    folder: Path
    text: str
    found: dict[str, Any]

    def table(self, name: str = "orders") -> DeltaTable:
        return DeltaTable.for_path(None, self.folder / name)


def in_catalog(name: str) -> str:
    """A table of the demonstration, by the catalog that this session has for it."""
    return name.replace("lake.", "told.", 1)


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a process tells whose Spark has no jar of delta-spark; this one reads its tables."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "tests.cli.told", str(folder)]
    place = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=place)
    assert done.returncode == 0, done.stderr[-3000:]
    for key, value in (
        ("", "org.apache.iceberg.spark.SparkCatalog"),
        *((".type", "hadoop"), (".warehouse", f"{folder}/warehouse")),
    ):
        spark.conf.set(f"spark.sql.catalog.told{key}", value)
    return Told(folder, **json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.more
@pytest.mark.spark
def test_all_readers_of_the_log_agree_on_a_delete_that_changes_no_data_file(
    spark: SparkSession, told: Told
) -> None:
    found = told.found["delete"]
    before, after = (told.table().count(version=version) for version in (1, 2))
    assert before - after == found["report"]["rows_deleted"] > 0
    *others, blind = found["readers"]
    assert any(each["reader"].startswith("delta-rs") for each in others)
    seen = {(each["before"], each["after"], each["agrees"]) for each in others}
    assert seen == {(before, after, "yes")}
    differs = f"no, +{before - after:,}"
    assert blind == {"reader": BLIND, "before": before, "after": before, "agrees": differs}
    by_delta = spark.read.format("delta").option("versionAsOf", 2).load(str(told.folder / "orders"))
    assert by_delta.count() == after
    assert f"{after:,}" in told.text
    assert found["files_unchanged"] is True
    assert len(found["files"]) == found["report"]["vectors_added"]
    for name, facts in found["files"].items():
        file = told.folder / "orders" / name
        assert sha256(file.read_bytes()).hexdigest() == facts["sha256"]
        assert file.stat().st_size == facts["size"]
    assert format_size(sum(each["size"] for each in found["files"].values())) in told.text
    writes = told.found["writes"]
    update, merge = writes["commits"]
    assert (update["statement"], merge["statement"], writes["rewritten"]) == ("UPDATE", "MERGE", 0)
    for each, version in ((update, 3), (merge, 4)):
        assert each["rows"] == told.table().count(version=version)
    assert merge["rows"] - update["rows"] == merge["inserted"] > 0
    paid = told.table().to_arrow([("status", "=", "paid")], ["id"], version=3)
    assert update["affected"] == paid.num_rows > 0


@pytest.mark.more
@pytest.mark.spark
def test_stock_iceberg_reads_upserts_and_the_rows_of_the_delta_table_from_its_files(
    spark: SparkSession, told: Told
) -> None:
    found = told.found["keys"]
    before, staged, after = found["branches"]
    assert (staged["edvs"], staged["vectors"], staged["stock"]) == (2, 0, "refuses")
    assert (after["edvs"], after["vectors"] > 0) == (0, True)
    assert found["same_as_staged"] is True
    stock = spark.table(in_catalog(ACCOUNTS))
    assert after["stock"] == f"{stock.count():,}"
    assert after["rows"] == staged["rows"] == stock.count()
    new = stock.where(f"id >= {before['rows']}").count()
    assert after["rows"] - before["rows"] == new > 0
    assert stock.where("balance = 200").count() == 1_500
    found = told.found["conversion"]
    first, second = found["rows"]
    assert (first["mode"], second["mode"], second["files"]) == ("full", "incremental", 0)
    assert (first["same"], second["same"]) == ("yes", "yes")
    assert second["delta"] == second["iceberg"] == told.table().count()
    assert spark.table(in_catalog(CONVERTED)).count() == second["iceberg"]
    files = {row.file_path for row in spark.table(f"{in_catalog(CONVERTED)}.data_files").collect()}
    assert found["files"] == found["shared_files"] == len(files)
    assert all(f"{told.folder}/orders/" in each for each in files)


@pytest.mark.more
@pytest.mark.spark
def test_the_person_is_in_the_bytes_until_the_vacuum_and_the_page_comes_last(told: Told) -> None:
    found, table = told.found["erasing"], told.table("customers")
    rows = found["steps"][0]["live"]
    assert rows > 0
    assert [
        (each["live"], each["deleted"], each["removed"], each["raw"] > 0) for each in found["steps"]
    ] == [(rows, 0, 0, True), (0, rows, 0, True), (0, 0, rows, True), (0, 0, 0, False)]
    files = [each for each in (told.folder / "customers").rglob("*") if each.is_file()]
    assert not [each for each in files if PERSON in each.read_bytes()]
    assert table.count() == found["rows"]
    assert not table.to_arrow([("customer", "=", 7)]).num_rows
    assert found["traces"]["is_empty"] is True
    assert "traces finds nothing" in told.text
    file, page = told.folder / "report.html", told.found["page"]
    assert (page["path"], page["report"]["version"]) == (str(file), told.table().version)
    assert str(file) in told.text
    assert file.read_text().startswith("<!doctype html>")


@pytest.mark.more
@pytest.mark.spark
def test_no_line_is_longer_than_80_columns_and_no_table_wider_than_60(told: Told) -> None:
    lines = told.text.replace(str(told.folder), "").splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    tables, _, _ = told.text.partition("\n6.")
    assert max(len(line) for line in tables.splitlines() if line.startswith("    ")) <= 59
    assert len(lines) < 120
    for number, word in enumerate(("Delete", "UPDATE", "Upserts", "The Delta", "Erase", "What"), 1):
        assert f"\n{number}. {word}" in told.text
    assert "\x1b" not in told.text


def test_the_bytes_of_a_vector_are_told_by_an_option() -> None:
    result = run("--bytes", code=0)
    for text in (
        *("6 of 30 rows are deleted", "sizeInBytes     44", "d1 d3 39 64", "CRC-32"),
        *("PFA1: a Puffin file", "JSON: place and file of a vector", "rows 3 4 7 11 18 29"),
        *('{"blobs":[{"type": "deletion-vector-', "5,000,000"),
        "52 bytes of Delta's file, 52 of Puffin's: the same",
        "checksum of the vector does not match in deletion_vector_",
    ):
        assert text in result.output
    assert max(len(line.rstrip()) for line in result.output.splitlines()) <= 80


def test_bytes_as_json_are_those_of_the_files_that_are_kept(tmp_path: Path) -> None:
    document = run_json("demo", "--bytes", "--folder", tmp_path / "demo")
    assert document["same_bytes"] is True
    assert document["deleted_rows"] == [3, 4, 7, 11, 18, 29]
    for side in ("delta", "iceberg"):
        file = tmp_path / "demo" / document[side]["file"]
        assert file.read_bytes().hex() == document[side]["bytes"]
        entries = run_json("inspect", file)["entries"]
        assert [each["cardinality"] for each in entries] == [6]


def test_without_java_it_says_how_to_get_one_and_shows_what_needs_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("--folder", tmp_path / "demo", code=0)
    assert "openjdk-17-jre-headless" in result.output
    table = DeltaTable.for_path(None, tmp_path / "demo" / "orders")
    assert f"{table.count():,} rows" in result.output


def test_a_table_that_is_there_already_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/usr")
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "mine").write_text("mine")
    result = run("--folder", tmp_path, code=ExitCode.USAGE)
    assert "has a folder orders already" in result.output
    assert [each.name for each in tmp_path.rglob("*")] == ["orders", "mine"]


def test_where_iceberg_has_no_runtime_one_line_says_which_steps_are_left_out_and_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_runtime() -> str:
        raise MissingDependencyError("Iceberg has no runtime for this Spark", dependency="x")

    catalogs = []

    def session(_output: object, _table: str, catalog: object, _conf: object) -> Any:  # noqa: ANN401
        catalogs.append(catalog)
        return nullcontext()

    name = "delvec.spark.session.iceberg_runtime.iceberg_coordinate"
    monkeypatch.setattr(name, no_runtime)
    monkeypatch.setenv("JAVA_HOME", "/usr")
    monkeypatch.setattr(story, "on_spark", session)
    monkeypatch.setattr(steps, "show_steps", lambda _tour, _spark, *, iceberg: {"iceberg": iceberg})
    result = run("--folder", tmp_path, code=0)
    assert catalogs == [None]
    [line] = [each.strip() for each in result.output.splitlines() if "No Iceberg" in each]
    assert line == "No Iceberg steps: no runtime for this Spark (pip install 'delvec[spark]')."
    assert run_json("demo", "--folder", tmp_path)["iceberg"] is False


@pytest.mark.more
@pytest.mark.spark
def test_steps_that_need_iceberg_are_left_out_without_it(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    monkeypatch.setattr(steps, "STEPS", [step._replace(show=lambda *_: {}) for step in STEPS])
    tour = Tour(Output(), Storage.open(str(tmp_path)), is_kept=True)
    assert set(show_steps(tour, spark, iceberg=False)) == {"delete", "writes", "erasing", "page"}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("option", ["--iceberg", "--no-iceberg"])
def test_the_command_runs_in_a_pipe_and_leaves_only_the_page(tmp_path: Path, option: str) -> None:
    command = [str(Path(sys.executable).parent / "delvec"), "demo", "--json", option]
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=place)
    document = json.loads(done.stdout)
    assert ("conversion" in document) == (option == "--iceberg")
    page = Path(document["page"]["path"])
    assert page.parent == tmp_path
    assert [each for each in tmp_path.glob("*delvec*") if each != page] == []
    assert not [each for each in tmp_path.rglob("*") if each.name in ("orders", "customers")]
