"""Whole jobs in files: run by `delvec sql -f`, and statement by statement by delta-spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.statements.clauses import split_statements
from tests.statements.door.engine import SETTINGS
from tests.statements.door.judge import compare, tables

pytestmark = [pytest.mark.spark, pytest.mark.more]

JOBS = sorted(Path(__file__).with_name("jobs").glob("*.sql"))
RUN = "from delvec.cli import main; main()"
# What these tell of are files and times, and those are an engine's own.
OF_FILES = ("OPTIMIZE", "REORG", "VACUUM", "RESTORE", "SET")
OF_HISTORY = ("version", "operation")


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_both_leave_the_same_tables(spark: SparkSession, job: Path, tmp_path: Path) -> None:
    theirs, ours = (tmp_path / engine for engine in ("delta-spark", "delvec"))
    statements = split_statements(text_for(job, theirs))
    try:
        expected = [by_delta_spark(spark, each) for each in statements]
        expected_tables = tables(theirs)
    finally:
        spark.sql("USE default")
        spark.sql(f"DROP DATABASE IF EXISTS {job.stem} CASCADE")
    found = by_command(text_for(job, ours), ours)
    assert len(found) == len(statements) >= 40
    differences = compare(statements, expected, found, expected_tables, tables(ours))
    assert not differences, "\n".join(differences)


def text_for(job: Path, folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    return job.read_text().replace("$W", str(folder))


def by_delta_spark(spark: SparkSession, statement: str) -> dict[str, Any]:
    result = spark.sql(statement)
    rows = json.dumps([row.asDict() for row in result.collect()], default=str)
    return outcome(statement, result.columns, json.loads(rows))


def by_command(text: str, folder: Path) -> list[dict[str, Any]]:
    file = folder / "job.sql"
    file.write_text(text)
    conf = [word for item in SETTINGS.items() for word in ("--conf", "=".join(item))]
    done = subprocess.run(
        [sys.executable, "-c", RUN, "sql", "-f", str(file), "--json", "--limit", "0"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": " ".join([*conf, "pyspark-shell"])},
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    results = json.loads(done.stdout)["statements"]
    return [outcome(each["statement"], each["columns"], each["rows"]) for each in results]


def outcome(
    statement: str, columns: Sequence[str], rows: Sequence[Mapping[str, object]]
) -> dict[str, Any]:
    """Return what must be the same of a statement's result."""
    bare = "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
    if bare.startswith("DESCRIBE HISTORY"):
        rows = [{name: row[name] for name in OF_HISTORY} for row in rows]
    elif bare.startswith(OF_FILES) or "CLONE" in bare:
        rows = []
    shown = [json.dumps(row) for row in rows]
    return {"columns": columns, "rows": shown if "ORDER BY" in bare else sorted(shown)}
