"""Sources that delvec itself has maintained: every step is followed, with the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec import DeltaTable
from tests.conversion.targets import delete_paths, ids, ids_in_delta
from tests.delta.builder import small_table

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.parametrize("format_version", [3, 2])
@pytest.mark.parametrize("history", ["latest", "per-version"])
def test_maintenance_of_the_source_is_followed(
    spark: SparkSession,
    tmp_path: Path,
    format_version: int,
    history: Literal["latest", "per-version"],
) -> None:
    builder, _ = small_table(tmp_path / "source")
    path, target = builder.root, f"lake.maintained.t_{uuid4().hex[:8]}"
    table = DeltaTable.for_path(spark, path)
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: None, 2),
        (table.optimize, 0),
        (lambda: table.delete("id IN (5, 15)"), 1),
        (lambda: table.restore(2), 2),
        (table.recompute_statistics, 2),
        (table.purge, 0),
        (lambda: table.vacuum(0, force=True, dry_run=True), 0),
        (lambda: table.optimize(zorder_by=["id"]), 0),
    ]
    for act, vectors in steps:
        act()
        delvec.convert(
            spark, path, target, format_version=format_version, history=history, verify="rows"
        )
        assert ids(spark, target) == ids_in_delta(path, table.version)
        assert len(delete_paths(spark, target)) == vectors
