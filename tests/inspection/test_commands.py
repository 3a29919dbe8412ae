"""The commands that `delvec inspect` advises work as they are typed."""

from __future__ import annotations

import json
import os
import shlex
from functools import partial
from pathlib import Path

import pytest

from delvec import DeltaTable
from tests.cli import runner
from tests.delta.builder import TableBuilder
from tests.inspection.tables import partitioned_table

run = partial(runner.run, columns=80)


def dead_table(root: Path) -> None:
    """Make a table that a purge and a vacuum are worth for."""
    partitioned_table(root)
    (root / "old.parquet").write_bytes(bytes(50_000))
    os.utime(root / "old.parquet", (1_600_000_000, 1_600_000_000))


def advised(*arguments: str) -> dict[str, str]:
    result = run("inspect", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return {each["action"]: each["command"] for each in json.loads(result.output)["advice"]}


@pytest.mark.parametrize("name", ["orders", "it's my $(orders)", "-orders"])
def test_an_advised_command_runs_as_it_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = TableBuilder(tmp_path / name)
    table.create()
    for _ in range(30):
        table.commit()
    monkeypatch.chdir(tmp_path)
    commands = advised("--storage-option", "timeout=9s", "--", name)
    program, *words = shlex.split(commands["checkpoint"])
    assert program == "delvec"
    assert words[-2:] == ["--storage-option", "timeout=9s"]
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "checkpoint" not in advised("--", name)


def test_options_that_the_advised_command_takes_are_passed_on(tmp_path: Path) -> None:
    dead_table(tmp_path)
    options = [
        *("-o", "region=eu west", "--conf", "spark.driver.memory=2g"),
        *("--conf", "spark.sql.catalog.x.type=rest", "--master", "local[4]"),
    ]
    commands = advised(str(tmp_path), *options, "--package", "g:a:1", "--no-listing")
    words = shlex.split(commands["purge"])
    assert words[:3] == ["delvec", "purge", str(tmp_path)]
    rest = words[3:]
    assert sorted(zip(rest[::2], rest[1::2], strict=True)) == [
        ("--conf", "spark.driver.memory=2g"),
        ("--conf", "spark.sql.catalog.x.type=rest"),
        ("--master", "local[4]"),
        ("--package", "g:a:1"),
        ("--storage-option", "region=eu west"),
    ]
    vacuum = shlex.split(advised(str(tmp_path), *options)["vacuum"])
    assert vacuum[3:] == ["--storage-option", "region=eu west"]  # it starts no Spark


def test_keys_and_passwords_are_not_repeated(tmp_path: Path) -> None:
    dead_table(tmp_path)
    secret = "hush-hush"  # noqa: S105
    options = [
        *("-o", f"aws_secret_access_key={secret}", "-o", f"AWS_ACCESS_KEY_ID={secret}"),
        *("--conf", f"spark.hadoop.fs.s3a.secret.key={secret}", "-o", "region=eu-west-1"),
        *("-o", f"azure_storage_sas_token={secret}", "-o", f"account_key={secret}"),
        *("-o", f"api_key={secret}", "-o", f"azure_connection_string=AccountKey={secret}"),
        *("-o", f"aws_sse_customer_key_base64={secret}"),
        *("--conf", f"spark.sql.catalog.x.uri=jdbc:postgresql://u:{secret}@h/db?p={secret}"),
        *("--conf", f"spark.sql.catalog.x.header.Authorization={secret}"),
    ]
    page = tmp_path / "page.html"
    result = run("inspect", str(tmp_path), *options, "--html", str(page))
    assert result.exit_code == 0, result.output
    assert secret not in result.output + page.read_text()
    assert "'aws_secret_access_key=***'" in result.output
    assert "region=eu-west-1" in result.output
    assert "put yours in place of ***" in result.output
    assert f"delvec vacuum {tmp_path} " in page.read_text()
    assert "***" not in run("inspect", str(tmp_path)).output


def test_python_names_a_session_where_the_table_has_none(tmp_path: Path) -> None:
    dead_table(tmp_path)
    calls = {
        each.action: each.call for each in DeltaTable.for_path(None, tmp_path).inspect().advice
    }
    assert calls["purge"] == f"DeltaTable.for_path(spark, {str(tmp_path)!r}).purge()"
    assert calls["vacuum"] == "t.vacuum()"
    with_options = DeltaTable.for_path(None, tmp_path, {"timeout": "9s"}).inspect()
    assert "storage_options).purge()" in str(with_options)
    assert DeltaTable.for_path(None, tmp_path).vacuum(dry_run=True).files.num_rows
