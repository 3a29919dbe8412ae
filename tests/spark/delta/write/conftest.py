from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from tests.delta.write.write_checks import before_commit
from tests.spark.delta.write.judge import Meanwhile, New


@pytest.fixture
def new(spark: SparkSession, tmp_path: Path) -> New:
    """Create the table `t` in the folder of the test."""
    return partial(DeltaTable.create, spark, tmp_path / "t")


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let other things happen before the next commits, see `before_commit`."""
    return partial(before_commit, monkeypatch)
