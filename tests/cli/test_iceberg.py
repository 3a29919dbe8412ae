"""The commands on Iceberg tables: what they call, what they tell, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.cli.exits import ExitCode
from delvec.cli.values import partition_values, typed_keys
from delvec.errors import InvalidArgumentError
from delvec.storage.listed_files import local_path
from tests.cli.runner import run, run_json
from tests.iceberg.deletes.tables import new_table


@pytest.fixture
def name(spark: SparkSession) -> str:
    """A table of the ids 0 to 9."""
    columns = "id BIGINT, part STRING, day DATE"
    name = new_table(spark, columns, "PARTITIONED BY (part, bucket(4, id))")
    spark.sql(
        f"INSERT INTO {name} SELECT id, CAST(id % 2 AS STRING), DATE'2026-01-31' FROM range(10)"
    )
    return name


def ids(spark: SparkSession, name: str, ref: str = "main") -> list[int]:
    spark.catalog.refreshTable(name)
    rows = spark.sql(f"SELECT id FROM {name} VERSION AS OF '{ref}'").toArrow()
    return sorted(rows["id"].to_pylist())


def test_lines_of_standard_input_have_all_columns_of_the_key() -> None:
    arguments = ("delete-keys", "lake.db.t", "--key", "a", "--key", "b", "--source", "-")
    result = run(*arguments, input="1,x\n2\n", code=ExitCode.USAGE)
    assert "a key has 2 values (a, b), got 2" in result.output


@pytest.mark.more
@pytest.mark.spark
def test_values_get_the_types_of_their_columns_and_a_table_is_described(
    spark: SparkSession, name: str
) -> None:
    table = delvec.IcebergTable.for_name(spark, name)
    keys = typed_keys(table, ["id", "day", "part"], [["-7", "2026-01-31", "x,y"]])
    assert [str(field.type) for field in keys.schema] == ["int64", "date32[day]", "string"]
    wrong = {"id": ("1.5", "x", "99999999999999999999"), "day": ("yesterday",)}
    for column, value in ((key, each) for key, found in wrong.items() for each in found):
        with pytest.raises(InvalidArgumentError, match=f"values of {column} are"):
            typed_keys(table, [column], [[value]])
    with pytest.raises(InvalidArgumentError, match="ix"):
        typed_keys(table, ["ix"], [["1"]])
    given = {"part": "1", "id_bucket": "3", "other": "x"}
    assert partition_values(table, given) == {"part": "1", "id_bucket": 3, "other": "x"}
    table.create_branch("own", staging=True)
    shown = run("detail", name, code=0).output
    for told in ("part, bucket[4](id)", "10 rows, 10 live", "main, own (staging)"):
        assert told in shown
    described = run_json("detail", name, "--branch", "own")
    assert (described["rows"], described["staging_branches"]) == (10, ["own"])
    missing = run("detail", f"{name}x", "--json", code=ExitCode.NOT_FOUND)
    assert json.loads(missing.output)["error"]["hint"] == f"did you mean {name.split('.')[2]}?"


@pytest.mark.spark
def test_keys_of_every_source_are_deleted(spark: SparkSession, name: str, tmp_path: Path) -> None:
    done = run("delete-keys", name, "--key", "id", "--values", "1, 2", code=0)
    assert f"DELETE KEYS on {name}" in done.output
    assert "2 keys deleted" in done.output
    assert ids(spark, name) == [0, 3, 4, 5, 6, 7, 8, 9]
    pq.write_table(pa.table({"note": ["x"], "id": [3]}), tmp_path / "gone.parquet")
    (tmp_path / "gone.csv").write_text("id,part\n4,0\n5,0\n")
    run("delete-keys", name, "--key", "id", "--source", tmp_path / "gone.parquet", code=0)
    pair = ("--key", "id", "--key", "part")
    run("delete-keys", name, *pair, "--source", tmp_path / "gone.csv", code=0)
    assert ids(spark, name) == [0, 5, 6, 7, 8, 9]
    done = run("delete-keys", name, "--key", "id", "--source", "-", "--json", input="6\n7\n")
    assert json.loads(done.output)["keys"] == 2
    assert ids(spark, name) == [0, 5, 8, 9]
    [[bucket]] = spark.sql(f"SELECT _partition.id_bucket FROM {name} WHERE id = 9").collect()
    scope = ("--partition", "part=1", "--partition", f"id_bucket={bucket}")
    done = run("delete-keys", name, "--key", "day", "--values", "2026-01-31", *scope, code=0)
    left = ids(spark, name)
    assert 9 not in left
    assert {0, 8} <= set(left)
    wrong = run("delete-keys", name, "--key", "id", "--values", "x", code=ExitCode.USAGE)
    assert "not all values of id are long" in wrong.output


@pytest.mark.spark
def test_keys_are_deleted_in_a_partition_of_a_float(spark: SparkSession, name: str) -> None:
    other = f"{name}_by_float"
    spark.sql(
        f"CREATE TABLE {other} (id BIGINT, d DOUBLE, f FLOAT) USING iceberg"
        " PARTITIONED BY (d, f) TBLPROPERTIES ('format-version'='3')"
    )
    spark.sql(f"INSERT INTO {other} VALUES (1, 0.5, 0.1), (2, 0.5, 0.1), (1, 0.25, 0.1)")
    scope = ("--partition", "d=0.5", "--partition", "f=0.1")
    run("delete-keys", other, "--key", "id", "--values", "1", *scope, code=0)
    assert ids(spark, other) == [1, 2]
    one = ("delete-keys", other, "--key", "id", "--values", "1", *scope[:2])
    wrong = run(*one, "--partition", "f=x", code=ExitCode.USAGE)
    assert "not all values of f are float" in wrong.output


@pytest.mark.slow
@pytest.mark.spark
def test_rows_are_written_in_place_of_older_ones(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "changes.csv"
    file.write_text("id,part,day,op\n1,b,2026-02-01,U\n2,,2026-02-01,D\n17,b,2026-02-01,I\n")
    arguments = ("upsert", name, "--source", str(file), "--key", "id", "--delete-where", "op = 'D'")
    txn = ("--txn-app-id", "cli", "--txn-version", "1")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD id_bucket")
    delvec.IcebergTable.for_name(spark, name).create_branch("audit")
    branch = ("--branch", "audit", *txn)
    assert run_json(*arguments, *branch)["rows_added"] == 2
    assert ids(spark, name, "audit") == [0, 1, 3, 4, 5, 6, 7, 8, 9, 17]
    assert ids(spark, name) == list(range(10))
    assert run_json(*arguments, *branch)["replayed"]
    file.write_text("id,part,day,op\n1,b,2026-02-01,U\n1,c,2026-02-01,U\n")
    run(*arguments, code=ExitCode.USAGE)
    run(*arguments, "--duplicates", "last", "--order-by", "part", code=0)
    spark.catalog.refreshTable(name)
    assert spark.sql(f"SELECT part FROM {name} WHERE id = 1").collect()[0][0] == "c"


@pytest.mark.slow
@pytest.mark.spark
def test_deletes_are_merged_and_checked(spark: SparkSession, name: str) -> None:
    table = delvec.IcebergTable.for_name(spark, name)
    for key in (1, 2):
        table.delete_keys([key], "id")
    planned = run_json("consolidate", name, "--dry-run")
    assert (planned["files_before"], planned["files_after"]) == (2, 1)
    assert "equality-delete files  2 -> 1" in run("consolidate", name, code=0).output
    assert ids(spark, name) == [0, 3, 4, 5, 6, 7, 8, 9]
    assert "nothing is wrong" in run("check", name, "--branch", "main", code=0).output
    [[path]] = spark.sql(f"SELECT file_path FROM {name}.files WHERE content = 2").collect()
    Path(local_path(path)).unlink()
    damaged = run("check", name, "--json", code=ExitCode.DAMAGED)
    assert [each["kind"] for each in json.loads(damaged.output)["findings"]] == ["missing-file"]
