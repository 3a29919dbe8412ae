"""`delvec traces` and `delvec downgrade`: what they print, and the codes that they end with."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delvec.cli.commands.check import plain_comparisons
from delvec.cli.exits import ExitCode
from delvec.delta.table import DeltaTable
from tests.cli import runner
from tests.delta.builder import TableBuilder, small_table
from tests.delta.vacuum.aging import age

run = partial(runner.run, columns=300)


@pytest.fixture
def people(tmp_path: Path) -> TableBuilder:
    """Make a table with a row that a vector deletes."""
    table = TableBuilder(tmp_path / "t", fields={"id": "long", "name": "string"})
    table.create()
    add = table.write_file("a.parquet", {"id": [1, 2], "name": ["Anna", "Bob"]})
    table.commit({"add": add})
    [vector] = table.write_vectors([0])
    table.delete(add, vector)
    return table


def test_traces_end_with_a_code_of_their_own_while_something_is_left(people: TableBuilder) -> None:
    result = run("traces", people.root, "--where", "name = 'Anna'", code=ExitCode.TRACES)
    assert "1 row in 1 file" in result.output
    assert "run `delvec purge`, then `delvec vacuum` after 20" in result.output
    told = json.loads(run("traces", people.root, "--where", "id = 1", "--json").output)
    [place] = told["places"]
    assert (place["kind"], place["path"], place["rows"]) == ("deleted", "a.parquet", 1)
    assert [step["action"] for step in place["steps"]] == ["delvec purge", "delvec vacuum"]
    assert told["gone_at"] == place["steps"][1]["not_before"]
    nothing = run("traces", people.root, "--where", "name = 'Carl' AND id = 5")
    assert (nothing.exit_code, "nothing is left" in nothing.output) == (ExitCode.OK, True)


def test_a_record_holds_digests_in_place_of_values(people: TableBuilder) -> None:
    result = run("traces", people.root, "--where", "name = 'Anna'", "--redact", "--json")
    assert result.exit_code == ExitCode.TRACES
    assert "Anna" not in result.output
    told = json.loads(result.output)
    assert "'name', '=', 'sha256:" in told["condition"]
    assert {"time", "delvec", "host", "table_id", "version"} <= told.keys()


@pytest.mark.parametrize(
    ("where", "comparisons"),
    [
        ("a = 1", [("a", "=", 1)]),
        (" `a b` == 'x' and\nb=-5 ", [("a b", "=", "x"), ("b", "=", -5)]),
        ("a = 'x AND y = 1'", [("a", "=", "x AND y = 1")]),
        ("a = 'it''s'", None),
        (r"a = 'x\n'", None),
        ("a = 1.5", None),
        ("a = 1 OR b = 2", None),
        ("a.b = 1", None),
        ("lower(a) = 'x'", None),
        ("a = 1 AND", None),
        ("a = 1L", None),
        ("not a = 1", None),
    ],
)
def test_only_plain_comparisons_are_evaluated_without_spark(
    where: str, comparisons: list[tuple[str, str, object]] | None
) -> None:
    assert plain_comparisons(where) == comparisons


def test_a_downgrade_of_a_table_without_vectors_starts_no_spark(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path)
    table.create()
    planned = run("downgrade", tmp_path, "--dry-run", "--json")
    assert json.loads(planned.output)["after"] == "reader 1, writer 7 with checkpointProtection"
    assert DeltaTable.for_path(None, tmp_path).version == 0
    result = run("downgrade", tmp_path, code=ExitCode.OK)
    assert "version 5, reader 1, writer 7 with checkpointProtection" in result.output
    young = run("downgrade", tmp_path, "--truncate-history", code=ExitCode.UNSUPPORTED)
    assert "run it again after 20" in young.output
    age(tmp_path, days=2, log=True)
    run("downgrade", tmp_path, "--truncate-history", code=ExitCode.OK)
    assert "nothing to do" in run("downgrade", tmp_path).output


@pytest.mark.spark
def test_spark_evaluates_other_conditions_and_rewrites_files(
    spark: SparkSession, people: TableBuilder, tmp_path: Path
) -> None:
    assert spark is not None
    result = run("traces", people.root, "--where", "upper(name) = 'ANNA'", "--json")
    assert result.exit_code == ExitCode.TRACES
    assert json.loads(result.output)["places"][0]["kind"] == "deleted"
    redacted = run("traces", people.root, "--where", "upper(`name`) = 'ANNA'", "--redact")
    assert "TRACES of upper(`name`) = sha256:" in redacted.output
    run("traces", people.root, "--where", "nam = 'Anna'", code=ExitCode.USAGE)
    small_table(tmp_path / "v")
    told = json.loads(run("downgrade", tmp_path / "v", "--json").output)
    assert told["files_with_vectors"] == 2
    assert "deletionVectors" not in DeltaTable.for_path(None, tmp_path / "v").protocol.features
