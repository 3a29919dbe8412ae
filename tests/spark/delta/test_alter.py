"""New tables and changes to them, with the metadata, protocols and refusals of delta-spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from delvec import DeltaTable
from delvec.delta.alter import columns, definition
from delvec.delta.alter.table_state import TableState
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from tests.delta.alter.test_location import HIDDEN, VISIBLE, put
from tests.delta.log_files import commits
from tests.delta.vacuum.aging import age
from tests.spark.delta import spark_tables

pytestmark = pytest.mark.spark

OFF = {"delta.enableDeletionVectors": "false"}
NAMES = {"delta.columnMapping.mode": "name"}
VECTORS = {"delta.enableDeletionVectors": "true"}
CDF = {"delta.enableChangeDataFeed": "true"}
MORE = {"delta.enableRowTracking": "true", "delta.checkpointPolicy": "v2"}
NESTED = "a bigint, s struct<x:int,y:array<struct<z:int>>>"


def add_mapping(state: TableState) -> TableState:
    return definition.set_properties(definition.add_feature(state, "columnMapping"), NAMES)


# Columns, properties, what delvec does to the table and the same in SQL.
CASES: dict[str, tuple[str, Mapping[str, str], Callable[[TableState], TableState], str]] = {
    "plain": ("a bigint, b string", OFF, lambda state: state, ""),
    "vectors": ("a bigint not null, b string", VECTORS, lambda state: state, ""),
    "mapped": (NESTED, NAMES | OFF, lambda state: state, ""),
    "all": ("a timestamp_ntz, b bigint", VECTORS | NAMES | CDF | MORE, lambda state: state, ""),
    "check": (
        *("a bigint", OFF, lambda state: definition.add_constraint(state, "c", "a > 0")),
        "ADD CONSTRAINT c CHECK (a > 0)",
    ),
    "feed": (
        *("a bigint", VECTORS, lambda state: definition.set_properties(state, CDF)),
        "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    ),
    "mapping": (
        *("a bigint, s struct<x:int>", VECTORS, add_mapping),
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    ),
    "rename": (
        *("a bigint, s struct<x:int>", NAMES | OFF),
        lambda state: columns.rename_column(state, "s.x", "y"),
        "RENAME COLUMN s.x TO y",
    ),
    "vectors later": (
        *("a bigint", NAMES | OFF, definition.enable_deletion_vectors),
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    ),
}


@pytest.mark.first_cases(3)
@pytest.mark.parametrize("name", CASES)
def test_tables_are_as_delta_spark_makes_them(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    ddl, properties, change, statement = CASES[name]
    path = tmp_path / "t"
    spark_tables.create(spark, path, ddl, properties=properties)
    [created] = [action["metaData"] for action in commits(path)[0] if "metaData" in action]
    if statement:
        spark.sql(f"ALTER TABLE delta.`{path}` {statement}")
    theirs: dict[str, Any] = {}
    for actions in commits(path):
        theirs |= {key: value for action in actions for key, value in action.items()}
    fields = Metadata.from_json(created).schema
    ours = change(definition.new_table(fields, properties=properties))
    assert ours.protocol == Protocol.from_json(theirs["protocol"])

    def known(metadata: Metadata) -> tuple[Any, ...]:
        text = re.sub(r"[0-9a-f]{8}-[-0-9a-f]{27}", "UUID", json.dumps(metadata.to_json()))
        value = json.loads(text)
        return value["configuration"], json.loads(value["schemaString"]), value["partitionColumns"]

    assert known(ours.metadata) == known(Metadata.from_json(theirs["metaData"]))


@pytest.mark.slow
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


@pytest.mark.slow
def test_delta_spark_refuses_collations_too(spark: SparkSession, tmp_path: Path) -> None:
    columns = [StructField("id", LongType()), StructField("c", StringType("UTF8_LCASE"))]
    rows = spark.createDataFrame([(1, "A")], StructType(columns))
    with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_DATA_TYPES"):
        rows.write.format("delta").save(str(tmp_path / "theirs"))
    table = DeltaTable.create(spark, tmp_path / "t", "id long")
    with pytest.raises(UnsupportedFeatureError, match="column c has a collation"):
        table.append(rows, merge_schema=True)
    assert table.version == 0
