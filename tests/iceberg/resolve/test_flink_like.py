from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from tests.iceberg.deletes.tables import new_table
from tests.iceberg.resolve.flink_like import commit_batch, upserts

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, g string, v int"


@pytest.mark.parametrize(
    "version", [2, pytest.param(3, marks=pytest.mark.slow)], ids=lambda each: f"v{each}"
)
@pytest.mark.parametrize(
    "partitioned", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["by g", "whole"]
)
def test_a_batch_has_the_files_that_flink_writes(
    spark: SparkSession, version: int, *, partitioned: bool
) -> None:
    name = new_table(spark, COLUMNS, "PARTITIONED BY (g)" if partitioned else "", version)
    table = IcebergTable.for_name(spark, name)
    keys = ("id", "g") if partitioned else ("id",)
    values = [(1, "a", 1), (2, "a", 2), (3, "b", 3), (4, "b", 4)]
    commit_batch(table, upserts(*map(row, values)), keys)
    values = [(1, "a", 10), (5, "a", 50), (1, "a", 11), (5, "a", 51), (3, "b", 30)]
    commit_batch(table, upserts(*map(row, values)), keys, branch="staging")

    found = spark.sql(
        "SELECT sequence_number, data_file.content, data_file.file_format, data_file.record_count"
        f" FROM {name}.entries VERSION AS OF 'staging'"
    ).collect()
    by_position = "PARQUET" if version == 2 else "PUFFIN"
    if partitioned:
        expected = [
            *[(1, 0, "PARQUET", 2), (1, 0, "PARQUET", 2), (1, 2, "PARQUET", 2)],
            *[(1, 2, "PARQUET", 2), (2, 0, "PARQUET", 1), (2, 0, "PARQUET", 4)],
            *[(2, 1, by_position, 2), (2, 2, "PARQUET", 1), (2, 2, "PARQUET", 2)],
        ]
    else:
        expected = [
            *[(1, 0, "PARQUET", 4), (1, 2, "PARQUET", 4), (2, 0, "PARQUET", 5)],
            *[(2, 1, by_position, 2), (2, 2, "PARQUET", 3)],
        ]
    assert sorted(map(tuple, found)) == expected
    rows = spark.sql(f"SELECT * FROM {name} VERSION AS OF 'staging' ORDER BY id").collect()
    assert list(map(tuple, rows)) == [
        *[(1, "a", 11), (2, "a", 2), (3, "b", 30), (4, "b", 4), (5, "a", 51)]
    ]


def row(values: tuple[int, str, int]) -> dict[str, object]:
    return dict(zip(("id", "g", "v"), values, strict=True))
