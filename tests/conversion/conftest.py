from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.delta.builder import small_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conversion.targets import Pair


@pytest.fixture
def target() -> str:
    return f"lake.conversions.t_{uuid4().hex[:8]}"


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path, target: str) -> Pair:
    """A source of three versions, see `small_table`, and a target that is not there yet."""
    from tests.conversion.targets import Pair  # noqa: PLC0415 - it imports PySpark

    return Pair(spark, *small_table(tmp_path / "source"), target)
