"""delta-spark's class over delvec, in a session that has no jar of delta-spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import delvec
from delvec.compat import exceptions
from delvec.compat.delta_spark import DeltaTable, configure_spark_with_delta_pip
from delvec.compat.table_builder import DeltaTableBuilder, IdentityGenerator
from delvec.errors import ConflictError, InvalidArgumentError, UnsupportedFeatureError
from tests.repository import ROOT

pytestmark = pytest.mark.spark

WIDENED = "struct<c:string,id:bigint,d:int,s:struct<z:bigint,a:int,b:array<bigint>>,v:string,n:int>"
MOVED = "struct<c:string,d:int,s:struct<a:int,z:bigint,b:array<bigint>>,v:string,n:int,id:bigint>"
MAPPED = "struct<s:struct<a:int,zz:bigint,b:array<bigint>>,w:string,n:int,id:bigint>"
RESTORED = ["table_size_after_restore", "num_of_files_after_restore", "num_removed_files"]
COUNTS = ["num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.compat.scenario", str(tmp_path_factory.mktemp("job"))]
    told = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, check=False)
    assert told.returncode == 0, told.stderr.decode()[-3000:]
    answers: dict[str, dict[str, Any]] = json.loads(told.stdout.splitlines()[-1])
    return answers


def test_the_session_of_the_application_is_the_opened_one(found: dict[str, Any]) -> None:
    assert found["sessions"] == {
        "one session": [True, True, True],
        "threads": [[[1]]] * 4,
        "new session": [[[1], [2]], False],
        "opened twice": True,
    }


def test_tables_are_built(found: dict[str, Any]) -> None:
    made = found["builders"]
    facts = ["spark_catalog.default.made", "a table", ["day"]]
    assert made["create"] == [[[1, 2, 5, "a"]], facts, "yes"]
    kind, message = made["create again"]
    assert (kind, "already exists" in message) == ("AnalysisException", True)
    assert made["create if not exists"] == ["id", "next", "key", "day"]
    assert (made["replace"], made["by location"]) == (["v"], ["id"])
    assert made["clustered"] == [["id", "s.b"]]
    assert made["replaced by Spark"][0] == "InvalidArgumentError"


def test_rows_are_changed_by_sql_columns_aliases_and_names(found: dict[str, Any]) -> None:
    changed = found["changes"]
    assert changed["delete"] == [[5, "5"], [6, "6"], [7, "7"]]
    assert changed["update"] == [[5, "five!"], [6, "six!"], [7, "7!"]]
    assert changed["moved"][0] == "UnsupportedOperationException"
    merged = [[100, "t"], [5, "sfive!"], [6, "six!"]]
    assert changed["merge"] == [COUNTS, [[3, 1, 1, 1]], merged]
    assert changed["evolve"] == [[2, 2, 0, 0]]
    assert changed["after"] == [[100, "t", 1], [5, "s", 1], [6, "six!", None]]


def test_maintenance_returns_the_columns_of_delta_spark(found: dict[str, Any]) -> None:
    kept = found["maintenance"]
    assert (kept["optimize"], kept["zorder"]) == ([1, 2], ["path", "metrics"])
    assert kept["history"] == ["OPTIMIZE", "OPTIMIZE"]
    columns, count = kept["restore"]
    assert (columns[:3], count) == (RESTORED, 2)
    assert kept["vacuum"] == []
    assert kept["vacuum too early"][0] == "InvalidArgumentError"
    features = ["appendOnly", "deletionVectors", "invariants", "v2Checkpoint"]
    assert kept["protocol"] == features
    assert (kept["clone"], kept["convert"], kept["is"]) == ([2, "b"], 3, [True, False])
    assert kept["drop"] is None
    for refused in ("deep clone", "drop another"):
        assert kept[refused][0] == "UnsupportedFeatureError"


def test_tables_are_altered(found: dict[str, Any]) -> None:
    altered = found["alterations"]
    added = WIDENED.replace("id:bigint", "id:int").replace("array<bigint>", "array<int>")
    assert (altered["added"], altered["widened"]) == (added, WIDENED)
    assert altered["moved"] == altered["with default"] == MOVED
    assert altered["mapped"] == MAPPED
    for name, told in (
        ("narrow", "column id is integer, and cannot become long"),
        ("default", "column n cannot have a default"),
        ("by files", "d cannot be dropped: the files know their columns by name"),
    ):
        kind, message = altered[name]
        assert kind in ("AnalysisException", "UnsupportedOperationException")
        assert message.startswith(told)
    first, second = altered["rows"]
    assert first == "Row(s=Row(a=1, zz=None, b=[1]), w='x', n=1, id=1)"
    assert second == "Row(s=None, w=None, n=7, id=2)"
    assert altered["comment"] == "about"
    # Three changes of one statement are one commit.
    assert altered["history"].count("CHANGE COLUMNS") == 1


def test_beside_delta_spark_the_default_stays_closed(spark: SparkSession) -> None:
    assert delvec.session() is spark
    assert delvec.configure(SparkSession.builder).getOrCreate() is spark
    for builder in (
        delvec.configure(SparkSession.builder, sql=True),
        configure_spark_with_delta_pip(SparkSession.builder),
    ):
        with pytest.raises(UnsupportedFeatureError, match="delta-spark's own Delta"):
            builder.getOrCreate()
    with pytest.raises(InvalidArgumentError, match="CREATE TABLE by a builder needs a session"):
        DeltaTable.create(spark).tableName("t").addColumn("id", "INT").execute()


def test_tables_of_delta_spark_are_opened(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    table.delete("id = 0")
    ours, theirs = table.history(), spark.sql(f"DESCRIBE HISTORY delta.`{path}`")
    assert ours.columns == theirs.columns
    assert [row.operation for row in ours.collect()] == [row.operation for row in theirs.collect()]
    theirs = spark.sql(f"DESCRIBE DETAIL delta.`{path}`")
    assert table.detail().columns == theirs.columns
    assert table.detail().collect()[0].location == theirs.collect()[0].location
    theirs = spark.sql(f"OPTIMIZE delta.`{path}`")
    assert table.optimize().executeCompaction().columns == theirs.columns
    with pytest.raises((AnalysisException, InvalidArgumentError), match="missing"):
        table.delete("missing = 1")


def test_wrong_arguments_are_the_errors_that_delta_spark_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    delvec.DeltaTable.create(spark, path, "id long, v string")
    table: Any = DeltaTable.forPath(spark, path)
    source = spark.range(1)
    merge: Any = table.merge(source, "id = 1")
    configure: Any = configure_spark_with_delta_pip
    builder: Any = DeltaTableBuilder(spark, "CREATE TABLE")
    wrong: list[tuple[type[Exception], str, Any]] = [
        (TypeError, "must be a Spark SQL Column or a string", lambda: table.delete(1)),
        (ValueError, "'set' cannot be None", lambda: table.update("id = 1")),
        (TypeError, "must be a dict", lambda: table.update(set="x")),
        (TypeError, "Values of dict in 'set'", lambda: table.update(set={"id": 1})),
        (TypeError, "Keys of dict in 'set'", lambda: table.update(set={1: "id"})),
        (ValueError, "'source' in merge cannot be None", lambda: table.merge(None, "id = 1")),
        (TypeError, "must be DataFrame", lambda: table.merge([1], "id = 1")),
        (ValueError, "'condition' in merge cannot be None", lambda: table.merge(source, None)),
        (ValueError, "cannot be None", lambda: merge.whenMatchedUpdate({"id": "1"})),
        (TypeError, "must be a dict", lambda: merge.whenNotMatchedInsert(values=1)),
        (ValueError, "readerVersion", lambda: table.upgradeTableProtocol("1", 2)),
        (ValueError, "needs to be a string", lambda: table.addFeatureSupport(1)),
        (ValueError, "needs to be a boolean", lambda: table.dropFeatureSupport("x", 1)),
        (ValueError, "needs to be an int", lambda: table.restoreToVersion("1")),
        (ValueError, "needs to be a dict", lambda: table.clone(path, True, False, 1)),
        (ValueError, "knows the mode", lambda: table.generate("x")),
        (ValueError, "not missing", lambda: DeltaTable.forPath(spark, path, {"missing": "x"})),
        (TypeError, "Identifier must be str", lambda: builder.tableName(1)),
        (TypeError, "data type must be str", lambda: builder.addColumn("a", 1)),
        (TypeError, "nullable must be bool", lambda: builder.addColumn("a", "int", 1)),
        (TypeError, "must be StructField", lambda: builder.addColumns(["a"])),
        (
            ValueError,
            "step to be non-zero",
            lambda: builder.addColumn("a", "long", True, IdentityGenerator(1, 0)),
        ),
        (
            ValueError,
            "cannot both be set",
            lambda: builder.addColumn("a", "long", True, "1", IdentityGenerator()),
        ),
        (TypeError, "Partitioning column must be str", lambda: builder.partitionedBy(1)),
        (TypeError, "takes a SparkSession builder", lambda: configure(spark)),
    ]
    for kind, told, call in wrong:
        with pytest.raises(kind, match=told):
            call()


def test_conflicts_have_the_names_of_delta_spark() -> None:
    assert all(getattr(exceptions, name) is ConflictError for name in exceptions.__all__)
