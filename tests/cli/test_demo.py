"""The steps of the demonstration on Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delvec.cli.demo.keys import show_key_deletes
from delvec.cli.demo.maintain import show_maintenance
from delvec.cli.demo.resolve import show_resolving
from delvec.cli.output import TextOutput

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_deletes_by_key_are_told_in_80_columns_and_as_json(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result: dict[str, Any] = {}
    show_key_deletes(TextOutput(), spark, result)
    shown = capsys.readouterr().out
    show_resolving(TextOutput(), spark, result)
    resolving = capsys.readouterr().out
    assert_resolving_is_told(resolving, json.loads(json.dumps(result))["resolve"])
    assert max(map(len, shown.splitlines())) <= 80
    for text in (
        "10,000 keys in an Equality Delete Vector",
        "15 rows added",
        "keys are compared",
        "by stock Iceberg",
    ):
        assert text in " ".join(shown.split())
    found = json.loads(json.dumps(result))["keys"]
    deleted, upserted, staged = found["reports"]
    assert [deleted["keys"], upserted["keys"], staged["keys"]] == [10_000, 20, 50_000]
    for report in (deleted, upserted):
        assert (report["delete_files"], report["key_vectors"]) == (1, 1)
    assert (staged["delete_files"], staged["key_vectors"]) == (0, 1)
    assert (found["plan"]["vectors"], found["plan"]["reader"]) == (1, "keys")
    assert found["rows"] == {"main": 90_005, "stock": 90_005, "same": "yes", "changes": 50_005}


def assert_resolving_is_told(shown: str, found: dict[str, Any]) -> None:
    assert max(map(len, shown.splitlines())) <= 80
    for text in ("RESOLVE on lake.demo.keys", "is not a Parquet file", "equality delete vectors"):
        assert text in " ".join(shown.split())
    assert [each["key_vectors"] for each in found["upserts"]] == [1, 1]
    report = found["report"]
    assert (report["staging"], report["target"], report["commits"]) == ("changes", "main", 1)
    assert (report["delete_files"], report["key_vectors"]) == (2, 3)
    before, after = found["rows"]
    assert (before["rows"], before["equality"], before["same"]) == (90_005, 2, "yes")
    # Those above 50,000 with the changes of ids from 95,000 on.
    assert (after["rows"], after["equality"], after["same"]) == (52_000, 0, "yes")
    assert after["vectors"] > 0
    assert found["same_as_staged"]


@pytest.mark.spark
def test_maintenance_is_told_in_80_columns_and_as_json(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result: dict[str, Any] = {}
    show_maintenance(TextOutput(), spark, str(tmp_path / "customers"), result)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "nothing is wrong" in shown
    found = json.loads(json.dumps(result))["maintain"]
    places = [(each["live"], each["deleted"], each["removed"]) for each in found["steps"]]
    assert places == [(600, 0, 0), (0, 600, 0), (0, 0, 600), (0, 0, 0)]
    assert (found["ok"], found["rows"]) == (True, 59_400)
    assert [each["files"] for each in found["steps"]] == [3, 4, 5, 1]
