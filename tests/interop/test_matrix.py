"""Who reads whose deletes: docs/compatibility.md says what is so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.interop.matrix import PAGE, shown_matrix, with_matrix, written_tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def cells(text: str) -> list[str]:
    """The rows of the matrix: versions may be newer than those that the page was written with."""
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_matrix_in_the_docs_is_what_the_engines_do(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    matrix = shown_matrix(spark, written_tables(spark, tmp_path))
    assert "WRONG" not in matrix
    page = PAGE.read_text()
    if os.environ.get("DELVEC_MATRIX") == "write":
        PAGE.write_text(with_matrix(page, matrix))
    else:
        wanted = cells(with_matrix(page, matrix))
        assert wanted == cells(page), "`make compatibility-table` writes what they do now"
