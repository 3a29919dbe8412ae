"""What delta-spark does where delvec refuses to create a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from tests.delta.alter.test_location import HIDDEN, VISIBLE, put
from tests.delta.vacuum.aging import age

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_delta_spark_refuses_such_folders_too_and_would_delete_these_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    columns = "id BIGINT, _day BIGINT) USING delta PARTITIONED BY (_day"
    put(path, *VISIBLE)
    with pytest.raises(InvalidArgumentError, match="would delete"):
        DeltaTable.create(spark, path, "id long, _day long", ["_day"])
    with pytest.raises(AnalysisException, match="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"):
        spark.sql(f"CREATE TABLE taken ({columns}) LOCATION '{path}'")
    for name in VISIBLE:
        (path / name).rename(tmp_path / name.replace("/", "-"))
    DeltaTable.create(spark, path, "id long, _day long", ["_day"])
    DeltaTable.create(spark, path / "inner", "id long")  # another table below it
    put(path, *VISIBLE, *(name for name in HIDDEN if "_delta_log" not in name))
    age(path, days=400)
    spark.sql(f"VACUUM delta.`{path}`")
    left = {name for name in (*VISIBLE, *HIDDEN) if (path / name).exists()}
    assert left == {name for name in HIDDEN if "_delta_log" not in name}


def test_delta_spark_refuses_collations_too(spark: SparkSession, tmp_path: Path) -> None:
    columns = [StructField("id", LongType()), StructField("c", StringType("UTF8_LCASE"))]
    rows = spark.createDataFrame([(1, "A")], StructType(columns))
    with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_DATA_TYPES"):
        rows.write.format("delta").save(str(tmp_path / "theirs"))
    table = DeltaTable.create(spark, tmp_path / "t", "id long")
    with pytest.raises(UnsupportedFeatureError, match="column c has a collation"):
        table.append(rows, merge_schema=True)
    assert table.version == 0
