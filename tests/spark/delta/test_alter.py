"""New tables and changes to them, with the metadata and protocols of delta-spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.delta.alter import columns, definition
from delvec.delta.alter import definition as constraints
from delvec.delta.alter.table_state import TableState
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from tests.delta.log_files import commits

OFF = {"delta.enableDeletionVectors": "false"}
NAMES = {"delta.columnMapping.mode": "name"}
VECTORS = {"delta.enableDeletionVectors": "true"}
CDF = {"delta.enableChangeDataFeed": "true"}
CASES: dict[str, tuple[str, Mapping[str, str], Callable[[TableState], TableState], str]] = {
    "plain": ("a bigint, b string", OFF, lambda state: state, ""),
    "vectors": ("a bigint not null, b string", VECTORS, lambda state: state, ""),
    "mapped": ("a bigint, s struct<x:int,y:array<struct<z:int>>>", NAMES | OFF, lambda s: s, ""),
    "all": (
        "a timestamp_ntz, b bigint",
        VECTORS | NAMES | CDF | {"delta.enableRowTracking": "true", "delta.checkpointPolicy": "v2"},
        lambda state: state,
        "",
    ),
    "check": (
        "a bigint",
        OFF,
        lambda state: constraints.add_constraint(state, "c", "a > 0"),
        "ADD CONSTRAINT c CHECK (a > 0)",
    ),
    "feed": (
        "a bigint",
        VECTORS,
        lambda state: definition.set_properties(state, CDF),
        "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    ),
    "mapping": (
        "a bigint, s struct<x:int>",
        VECTORS,
        lambda state: definition.set_properties(
            definition.add_feature(state, "columnMapping"), NAMES
        ),
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    ),
    "rename": (
        "a bigint, s struct<x:int>",
        NAMES | OFF,
        lambda state: columns.rename_column(state, "s.x", "y"),
        "RENAME COLUMN s.x TO y",
    ),
    "vectors later": (
        "a bigint",
        NAMES | OFF,
        definition.enable_deletion_vectors,
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    ),
}


@pytest.mark.first_cases(3)
@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_tables_are_as_delta_spark_makes_them(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    ddl, properties, change, statement = CASES[name]
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} ({ddl}) USING delta TBLPROPERTIES ({listed})")
    [created] = [
        action["metaData"] for action in commits(tmp_path / "t")[0] if "metaData" in action
    ]
    if statement:
        spark.sql(f"ALTER TABLE {table} {statement}")
    theirs: dict[str, Any] = {}
    for actions in commits(tmp_path / "t"):
        theirs |= {key: value for action in actions for key, value in action.items()}
    fields = Metadata.from_json(created).schema
    ours = change(definition.new_table(fields, properties=properties))
    assert ours.protocol == Protocol.from_json(theirs["protocol"])
    found = Metadata.from_json(theirs["metaData"])

    def known(metadata: Metadata) -> tuple[Any, ...]:
        text = re.sub(r"[0-9a-f]{8}-[-0-9a-f]{27}", "UUID", json.dumps(metadata.to_json()))
        value = json.loads(text)
        return value["configuration"], json.loads(value["schemaString"]), value["partitionColumns"]

    assert known(ours.metadata) == known(found)
