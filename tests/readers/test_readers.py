"""Readers of Iceberg tables, given what conversions wrote: the docs say what they make of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.readers.matrix import PAGE, see, with_table

pytestmark = [pytest.mark.spark, pytest.mark.readers]


def test_the_table_of_readers_in_the_docs_is_what_they_give(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen = see(spark, tmp_path)
    assert {each.cell for each in seen if each.reader == "Spark"} == {"reads"}
    page = PAGE.read_text()
    now = with_table(page, seen)
    if os.environ.get("DELVEC_READERS_TABLE") == "write":
        PAGE.write_text(now)
    else:
        assert page == now, "`make readers-table` writes what they give now"
