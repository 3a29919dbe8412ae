"""Every kind of damage, made by hand, is found; sound tables have no errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.files import DataFileWithDeletes, find_position_deletes
from delvec.iceberg.commit.branch_commit import commit_change, commit_rewrite
from delvec.iceberg.commit.commit import RowChange
from delvec.iceberg.deletes.equality_files import Scope
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.deletes.key_vectors import DELETE_FILE, encode_key_vectors
from delvec.iceberg.deletes.positions import write_position_vectors
from delvec.iceberg.deletes.write_keys import write_deletes
from delvec.iceberg.maintain.check import CheckReport
from delvec.iceberg.maintain.check_keys import stores
from delvec.spark.engine import open_storage
from delvec.spark.input.keys import Keys
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap
from tests.iceberg.deletes.tables import content_file, open_new
from tests.iceberg.maintain.tables import ENABLED, deletes, insert, loaded, staging_table

spark_test = pytest.mark.spark

ROWS = "(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')"


def kinds(report: CheckReport) -> list[tuple[str, str]]:
    return [(each.severity, each.kind) for each in report.findings]


def written(table: IcebergTable, keys: list[Any], column: str = "id", **changes: object) -> str:
    """Commit an equality-delete file whose manifest entry is changed; return its path."""
    now = loaded(table)
    columns = key_columns(now.metadata.schema, [column], table.name)
    storage = open_storage(table.spark, local_path(table.location))
    files = UncommittedFiles(storage)
    scope = Scope(0, "[]")
    made = write_deletes(keys, columns, now, scope, staging=False, uncommitted=files)
    [entry] = map(json.loads, made.delete_files.to_pylist())
    entry |= {name.replace("_", "-"): value for name, value in changes.items()}
    commit_change(now, "main", RowChange(delete_files=pa.array([json.dumps(entry)])))
    return str(entry["file-path"])


def local(path: str) -> Path:
    return Path(local_path(path))


@pytest.mark.slow
@spark_test
def test_a_sound_table_has_no_errors(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, p string", "PARTITIONED BY (p)", properties=ENABLED)
    assert table.check() == CheckReport(table.name, "main")
    insert(table, "(1, 'a'), (2, 'a'), (3, 'null'), (4, null)")
    table.delete_keys([1, -1], "id")
    table.delete_keys([("x",), (None,)], columns=["p"])
    table.delete_keys([3], "id", partition={"p": "null"})
    spark.sql(f"DELETE FROM {table.name} WHERE id = 2")
    table.create_branch("stage", staging=True)
    table.delete_keys([9], "id", branch="stage")
    report = table.check()
    assert (report.ok, report.findings) == (True, ())
    assert (report.data_files, report.delete_files, report.equality_deletes) == (3, 5, 4)
    assert (report.deletion_vectors, report.vectors, report.companions) == (1, 0, 2)
    assert "nothing is wrong" in str(report)
    staged = table.check("stage")
    assert (staged.findings, staged.vectors) == ((), 1)
    by_id = table.check(snapshot_id=staged.snapshot_id)
    assert (by_id.findings, by_id.branch) == ((), None)
    document = json.loads(json.dumps(report.to_json()))
    assert (document["ok"], document["findings"]) == (True, [])
    with pytest.raises(InvalidArgumentError):
        table.check("none")


@spark_test
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_files_that_are_gone_or_changed(spark: SparkSession, version: int) -> None:
    table = open_new(spark, version=version)
    insert(table, ROWS)
    insert(table, "(5, 'e')")
    spark.sql(f"DELETE FROM {table.name} WHERE id = 2")
    table.delete_keys([3], "id")
    away = content_file("s3://elsewhere/x.parquet", 9, 1)
    commit_change(loaded(table), "main", RowChange(data_files=pa.array([json.dumps(away)])))
    assert kinds(table.check()) == [("warning", "other-store")]
    listed = spark.sql(f"SELECT content, file_path FROM {table.name}.files").collect()
    paths = {row[0]: local(row[1]) for row in listed if row[1].startswith(("/", "file:"))}
    paths[0].unlink()
    for content in (1, 2):
        with paths[content].open("ab") as file:
            file.write(b"x")
    report = table.check()
    expected = [("error", "missing-file"), ("error", "wrong-size"), ("error", "wrong-size")]
    assert sorted(kinds(report))[:3] == expected
    assert (report.ok, report.errors, report.warnings) == (False, 3, 1)
    [gone] = [each for each in report.findings if each.kind == "missing-file"]
    assert local(gone.path) == paths[0]
    assert "3 errors, 1 warning" in str(report)


@pytest.mark.slow
@spark_test
def test_equality_delete_files_that_are_not_what_the_manifest_says(spark: SparkSession) -> None:
    table = open_new(spark)
    insert(table, ROWS)
    one = (1).to_bytes(8, "little").hex()
    expected = {
        written(table, [1, 2], record_count=3): "the number of keys differs: expected 3, found 2",
        written(table, [1, None], null_value_counts={"keys": [1], "values": [0]}): "null keys",
        written(table, [1, 7], upper_bounds={"keys": [1], "values": [one]}): "upper bound",
        written(table, [0, 1], lower_bounds={"keys": [1], "values": [one]}): "lower bound",
        written(
            table, ["a", "b"], "s", upper_bounds={"keys": [2], "values": ["61"]}
        ): "upper bound",
        written(table, [1], equality_ids=[2]): "no column with field id 2",
    }
    bare = written(table, [1])
    pq.write_table(pa.table({"id": [1]}), local(bare))
    text = written(table, [2])
    field = pa.field("id", pa.string(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table({"id": ["2"]}, schema=pa.schema([field])), local(text))
    torn = written(table, [3])
    local(torn).write_bytes(b"PAR1 is not enough")
    report = table.check()
    assert {each.kind for each in report.findings} == {"wrong-size", "equality-delete-file"}
    # Sizes tell as well; here the same damage with the sizes that the manifest has.
    found = {each.path: each.message for each in report.findings}
    assert {path for path in found if path not in expected} == {bare, text, torn}
    for path, message in expected.items():
        assert message in found[path]


@pytest.mark.more
@spark_test
def test_foreign_equality_delete_files(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, s struct<x: int>")
    insert(table, "(1, struct(1))")
    now = loaded(table)

    def committed(rows: pa.Table, **changes: object) -> str:
        path = local(table.location) / "data" / f"{changes['equality_ids']}-{len(rows)}.parquet"
        pq.write_table(rows, path)
        entry = content_file(str(path), path.stat().st_size, len(rows), "equality-deletes")
        entry["sort-order-id"] = 0
        entry |= {name.replace("_", "-"): value for name, value in changes.items()}
        commit_change(loaded(table), "main", RowChange(delete_files=pa.array([json.dumps(entry)])))
        return str(path)

    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    bare = committed(pa.table({"id": [1, 2]}), equality_ids=[1])
    schema = pa.schema([field("id", pa.string(), 1)])
    text = committed(pa.table({"id": ["1"]}, schema=schema), equality_ids=[1])
    schema = pa.schema([field("id", pa.int32(), 1), field("other", pa.string(), 77)])
    both = pa.table({"id": [1, 2, 3], "other": ["x", "y", "z"]}, schema=schema)
    fine = committed(both, equality_ids=[1])
    unknown = committed(both, equality_ids=[77])
    struct = pa.struct([field("x", pa.int32(), 3)])
    inner = pa.table({"s": [{"x": 9}]}, schema=pa.schema([field("s", struct, 2)]))
    nested = committed(inner, equality_ids=[3])
    found = {each.path: (each.severity, each.message) for each in table.check().findings}
    assert fine not in found
    assert found[bare][0] == "error"
    assert found[bare][1].startswith("it has no column with field id 1: readers take other")
    assert found[text] == ("error", "its key column, field id 1, is string: expected long")
    assert found[unknown][1] == "no schema of the table has its key column, field id 77"
    assert (found[nested][0], now.name) == ("warning", table.identifier)


@pytest.mark.slow
@spark_test
def test_vectors_of_keys(spark: SparkSession) -> None:
    table = staging_table(spark, ROWS)
    for key in (1, 2):
        table.delete_keys([key], "id", branch="stage")
    assert table.check("stage").findings == ()
    catalog, name = table.name.split(".", 1)
    path = local(deletes(table, "stage")[0].path)
    data = bytearray(path.read_bytes())
    data[12] ^= 0xFF
    path.write_bytes(data)
    report = table.check("stage")
    assert kinds(report) == [("error", "equality-delete-vector")]
    assert str(path) in report.findings[0].path
    spark.sql(f"CALL {catalog}.system.fast_forward('{name}', 'main', 'stage')")
    report = table.check()
    assert kinds(report) == [("error", "equality-delete-vector")] * 3
    assert "consolidate_deletes()" in str(report)
    assert table.check(snapshot_id=report.snapshot_id).errors == 3


@spark_test
def test_vectors_beside_delete_files(spark: SparkSession) -> None:
    table = open_new(spark, properties=ENABLED)
    insert(table, ROWS)
    for keys in ([1, 5, 9], [2, 6, 9]):
        table.delete_keys(keys, "id")
    assert (table.check().companions, table.check().findings) == (2, ())
    now = loaded(table)
    statistics = [each for each in now.metadata.files if each.endswith("-edv.puffin")]
    columns = key_columns(now.metadata.schema, ["id"], table.name)
    for path in statistics:
        footer = local(path).read_bytes()
        [file] = [each for each in deletes(table) if each.path.encode() in footer]
        other = [2, 7, 9] if b'"value-min":"2"' in footer.replace(b" ", b"") else None
        if other is None:
            local(path).unlink()
            continue
        vector = encode_key_vectors([Keys.of(other, columns)], 0, [{DELETE_FILE: file.path}])
        assert len(vector.data) == len(footer)
        local(path).write_bytes(vector.data)
    report = table.check()
    expected = [("error", "vector-beside-delete-file"), ("warning", "vector-beside-delete-file")]
    assert kinds(report) == expected
    assert "does not have the keys" in report.findings[0].message


@spark_test
@pytest.mark.slow
def test_deletion_vectors(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, p int", "PARTITIONED BY (p)")
    insert(table, "(1, 1), (2, 1), (3, 1)")
    insert(table, "(4, 2), (5, 2), (6, 2)")
    now = loaded(table)
    head = now.metadata.head()
    assert head is not None
    listed = spark.sql(f"SELECT file_path FROM {table.name}.files ORDER BY partition.p").collect()
    first, second = (find_position_deletes(now, head.id, [row[0]])[row[0]] for row in listed)
    storage = open_storage(spark, local_path(table.location))

    def vector(positions: list[int], *data: DataFileWithDeletes, **changes: object) -> None:
        files = UncommittedFiles(storage)
        made = write_position_vectors(now, data, [Bitmap(positions)] * len(data), storage, files)
        entries = [json.loads(each) | changes for each in made.delete_files.to_pylist()]
        change = RowChange(delete_files=pa.array(map(json.dumps, entries)))
        newest = loaded(table)
        commit_change(newest, "main", change, computed_on=newest.metadata.refs["main"].snapshot_id)

    vector([1], second)
    assert table.check().findings == ()
    vector([1], second)
    report = table.check()
    assert kinds(report) == [("error", "deletion-vector")] * 2
    assert "has 2 vectors, expected 1" in report.findings[0].message
    table.rollback(head.id)

    vector([3], first)
    vector([0], second, partition=[1])
    report = table.check()
    messages = sorted(each.message for each in report.findings)
    assert len(messages) == 2
    assert "deletes position 3, and the data file has 3 rows" in messages[0]
    assert "in another partition or spec" in messages[1]
    table.rollback(head.id)

    vector([0, 2], first, **{"record-count": 3})
    report = table.check()
    assert kinds(report) == [("error", "deletion-vector")]
    table.rollback(head.id)

    vector([0, 2], first, **{"referenced-data-file": "/nowhere/x.parquet"})
    assert kinds(table.check()) == [("warning", "dangling-vector")]
    table.rollback(head.id)

    table.delete_keys([9], "id")
    newest = loaded(table)
    files = UncommittedFiles(storage)
    made = write_position_vectors(newest, [second], [Bitmap([0])], storage, files)
    removed = [each.path for each in deletes(table)]
    commit_rewrite(newest, "main", [(made.delete_files[0].as_py(), 1)], removed, {})
    [finding] = table.check().findings
    assert "sequence number 1, expected 2 or more" in finding.message


@pytest.mark.slow
@spark_test
def test_deletes_without_data(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, p int", "PARTITIONED BY (p)")
    insert(table, "(1, 1)")
    table.delete_keys([1], "id", partition={"p": None})
    table.delete_keys([1], "id", partition={"p": 7})
    table.delete_keys([1], "id", partition={"p": 8})
    report = table.check()
    assert report.ok
    assert kinds(report) == [("warning", "odd-partition"), ("info", "dangling-deletes")]
    assert report.findings[1].message.startswith("2 equality deletes")
    table.consolidate_deletes()
    assert table.check().findings == ()


def test_types_that_files_store() -> None:
    assert stores(pa.int32(), "long")
    assert not stores(pa.int64(), "int")
    assert stores(pa.decimal128(9, 2), "decimal(12, 2)")
    assert not stores(pa.decimal128(12, 2), "decimal(9, 2)")
    assert stores(pa.timestamp("us", "UTC"), "timestamptz")
    assert not stores(pa.timestamp("us"), "timestamptz")
    assert not stores(pa.timestamp("ns", "UTC"), "timestamptz")
    assert stores(pa.binary(16), "uuid")
    assert stores(pa.uuid(), "uuid")
    assert stores(pa.string(), "string")
    assert stores(pa.float32(), "double")
    assert not stores(pa.int32(), "variant")
