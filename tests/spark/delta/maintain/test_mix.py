"""Two processes change and maintain one table at the same time: no row is lost, none comes back."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from tests.repository import ROOT
from tests.spark.delta import spark_tables
from tests.spark.delta.maintain.mixing import Rows, replayed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = float(os.environ.get("DELVEC_MIX", "150"))
PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {},
    "tracked": {"delta.enableRowTracking": "true"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
}


@pytest.mark.parametrize("kind", PROPERTIES)
def test_rows_are_those_of_all_changes_in_order(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    parts = ["part"] if kind != "plain" else []
    table = DeltaTable.create(
        spark,
        path,
        "id long, n long, part string",
        partition_by=parts,
        properties={
            "delta.deletedFileRetentionDuration": "interval 60 seconds",
            **PROPERTIES[kind],
        },
    )
    for start in range(0, 1200, 200):
        rows = spark.range(start, start + 200, 1, 1)
        table.append(rows.selectExpr("id", "0L AS n", "string(id % 3) AS part"))
    seed = random.randrange(1 << 30)
    logs = [tmp_path / f"log{worker}" for worker in (0, 1)]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.delta.maintain.mixing",
                *(str(path), str(2 * seed + worker), str(SECONDS), str(log)),
            ],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker, log in enumerate(logs)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=SECONDS + 300)
        assert process.returncode == 0, (seed, errors[-4000:])
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    start_rows: Rows = dict.fromkeys(range(1200), 0)
    states: dict[int, Rows] = {}
    first = 6
    for version in range(first + 1):
        states[version] = dict.fromkeys(range(200 * version), 0)
    _fill(states, lines, table.version, first, start_rows)
    expected = states[table.version]
    done = Counter(line["kind"] for line in lines)
    assert len(done) > 5, (seed, done)
    for reader in (table.to_df(), spark_tables.as_delta_spark_reads(spark, path)):
        found = [tuple(row) for row in reader.select("id", "n").collect()]
        assert len(found) == len(set(found)), (seed, "rows twice")
        assert dict(found) == expected, (seed, done)
    report = DeltaTable.for_path(None, path).check()
    assert report.ok, (seed, str(report))


def _fill(
    states: dict[int, Rows], lines: list[dict[str, Any]], newest: int, first: int, rows: Rows
) -> None:
    """Compute the rows of every version; those between are of commits that change none."""
    by_version = {line["version"]: line for line in lines}
    assert len(by_version) == len(lines), "a version was committed twice"
    for version in range(first + 1, newest + 1):
        if version in by_version:
            rows = replayed(rows, by_version[version], states)
        states[version] = rows
