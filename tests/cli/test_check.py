"""`delvec check` of Delta tables: no session is started."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from delvec.cli.exits import ExitCode
from tests.cli import runner
from tests.delta.builder import small_table
from tests.delta.check.checks import INLINE, table_with

run = partial(runner.run, "check")


def test_a_sound_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_table(tmp_path / "orders")
    result = run(tmp_path / "orders")
    assert (result.exit_code, "nothing is wrong" in result.output) == (ExitCode.OK, True)
    assert "2 data files, 2 deletion vectors, 3 files of the log" in result.output
    as_json = run(tmp_path / "orders", "--json", "--sample", "1")
    assert (as_json.exit_code, json.loads(as_json.output)["sampled_files"]) == (ExitCode.OK, 1)
    monkeypatch.chdir(tmp_path)
    assert run("orders").exit_code == ExitCode.OK  # a folder with a log needs no slash


def test_a_damaged_table(tmp_path: Path) -> None:
    small_table(tmp_path)
    (tmp_path / "part-1.parquet").unlink()
    result = run(tmp_path, code=ExitCode.DAMAGED)
    assert "error: the data file is gone (part-1.parquet)" in result.output
    found = json.loads(run(tmp_path, "--json").output)
    assert (found["ok"], found["errors"]) == (False, 1)
    [finding] = found["findings"]
    assert (finding["kind"], finding["path"]) == ("missing-file", "part-1.parquet")
    assert finding["hint"]


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    table.commit_path(2).write_text("{")
    result = run(tmp_path)
    assert (result.exit_code, table.commit_path(2).name in result.output) == (
        ExitCode.DAMAGED,
        True,
    )


def test_repairs_are_told_before_they_are_made(tmp_path: Path) -> None:
    table_with(tmp_path, INLINE)
    for arguments in ((), ("--dry-run",), ("--repair", "--dry-run")):
        planned = run(tmp_path, *arguments, code=ExitCode.OK)
        assert "can be repaired: a deletion vector has a form" in planned.output
        assert "nothing was changed" in planned.output
    assert len(list((tmp_path / "_delta_log").iterdir())) == 3
    done = run(tmp_path, "--repair")
    assert (done.exit_code, "Version 3 was committed" in done.output) == (ExitCode.OK, True)
    assert "nothing is wrong" in done.output
    found = json.loads(run(tmp_path, "--repair", "--json").output)
    assert (found["version"], found["repairs"], found["is_repaired"]) == (3, [], False)
