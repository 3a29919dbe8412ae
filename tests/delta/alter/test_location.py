"""New tables: where they may be, and what their definitions may not say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as spark

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource
from delvec.delta.alter import operations
from delvec.delta.alter.definition import new_table
from delvec.delta.alter.operations import require_empty_location
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import ConflictError, InvalidArgumentError, UnsupportedFeatureError
from delvec.storage import Storage
from tests.datasource.in_process import pickled
from tests.delta.vacuum.aging import age
from tests.s3.server import S3Server

ROWS = pa.schema({"id": pa.int64()})
LONG = PrimitiveType("long")
COLUMNS = StructType((Field("id", LONG), Field("_day", LONG)))
WANTED = operations.TableDescription(COLUMNS, ("_day",), {}, None, None)
METADATA = new_table(COLUMNS, ("_day",)).metadata

VISIBLE = (
    "notes.txt",
    "part-0.parquet",
    "deep/below/it.csv",
    "_day=1/part-0.parquet",
    "_change_data/cdc-0.parquet",
    "inner/part-0.parquet",
    "metadata/v1.metadata.json",
)
HIDDEN = (
    "_SUCCESS",
    ".DS_Store",
    "_tmp/part-0.parquet",
    "_delta_log/_last_checkpoint",
    "deep/_temporary/part-0.parquet",
    "deep/.part-0.parquet.crc",
    "_month=1/part-0.parquet",  # no partition column of this table
)


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"somebody's")


@pytest.mark.parametrize("name", VISIBLE)
def test_a_folder_with_files_that_vacuum_would_delete_is_refused(tmp_path: Path, name: str) -> None:
    put(tmp_path, *HIDDEN, name)
    with pytest.raises(InvalidArgumentError) as caught:
        operations.create_defined(Storage.open(tmp_path), WANTED.state())
    message = str(caught.value)
    assert str(tmp_path) in message
    assert f"would delete: {name}\nHint" in message
    assert ("convert_to_delta" in message) == name.endswith(".parquet")
    assert not list((tmp_path / "_delta_log").glob("*.json"))


def test_what_is_refused_is_what_vacuum_deletes(tmp_path: Path) -> None:
    put(tmp_path, *HIDDEN)
    operations.create_defined(Storage.open(tmp_path), WANTED.state())
    put(tmp_path, *VISIBLE)
    age(tmp_path, days=400)
    DeltaTable.for_path(None, tmp_path).vacuum()
    left = {name for name in (*VISIBLE, *HIDDEN) if (tmp_path / name).exists()}
    # Files of other tables, which delta-spark deletes as well, are refused.
    assert left == {*HIDDEN, "metadata/v1.metadata.json"}
    assert all((tmp_path / name).read_bytes() == b"somebody's" for name in HIDDEN)


def test_some_of_many_files_are_named(tmp_path: Path) -> None:
    put(tmp_path, *(f"{number}.csv" for number in range(5)))
    with pytest.raises(InvalidArgumentError, match=r"delete: 0\.csv, 1\.csv, 2\.csv and more\n"):
        require_empty_location(Storage.open(tmp_path), METADATA)


MAKERS: dict[str, Callable[[Path], object]] = {
    "create": lambda path: DeltaTable.create(None, path, ROWS),
    "create if not exists": lambda path: DeltaTable.create_if_not_exists(None, path, ROWS),
    "replace": lambda path: DeltaTable.create(None, path, ROWS, mode="replace"),
    "clone": lambda path: DeltaTable.create(None, path.with_name("source"), ROWS).clone(path),
}


@pytest.mark.parametrize("name", MAKERS)
def test_no_call_makes_a_table_over_files_of_others(tmp_path: Path, name: str) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t" / "rows.parquet")
    with pytest.raises(InvalidArgumentError, match=r"rows\.parquet"):
        MAKERS[name](tmp_path / "t")
    DeltaTable.convert_to_delta(None, tmp_path / "t")  # as the hint says
    assert DeltaTable.for_path(None, tmp_path / "t").count() == 1


def test_a_table_that_exists_may_have_other_files(tmp_path: Path) -> None:
    table = DeltaTable.create(None, tmp_path, ROWS)
    put(tmp_path, "notes.txt")
    assert DeltaTable.create_if_not_exists(None, tmp_path, ROWS).version == 0
    DeltaTable.create(None, tmp_path, ROWS.append(pa.field("n", pa.int64())), mode="replace")
    assert table.version == 1


def test_a_table_made_meanwhile_conflicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no complaint of its files: both writers may have meant the same table."""
    visible = operations._visible_files

    def late(*args: Any) -> list[str]:  # noqa: ANN401
        monkeypatch.undo()
        operations.create_defined(Storage.open(tmp_path), WANTED.state())
        put(tmp_path, "part-0.parquet")
        return visible(*args)

    monkeypatch.setattr(operations, "_visible_files", late)
    with pytest.raises(ConflictError):
        operations.create_defined(Storage.open(tmp_path), WANTED.state())


@pytest.mark.s3
class TestInABucket:
    """Where there are no folders, and listings come in pages."""

    @pytest.fixture
    def storage(self, s3: S3Server) -> Storage:
        return Storage.open(f"s3://lake/{uuid4().hex}/t", s3.storage_options)

    def test_files_are_found_and_no_markers_of_folders(
        self, storage: Storage, s3: S3Server
    ) -> None:
        (s3.folder / storage.root.removeprefix("s3://") / "empty").mkdir(parents=True)
        storage.write("_tmp/1", b"x")
        storage.write("a/b/c.parquet", b"x")
        with pytest.raises(InvalidArgumentError, match=r"delete: a/b/c\.parquet"):
            operations.create_defined(storage, WANTED.state())
        storage.delete(["a/b/c.parquet"])
        assert operations.create_defined(storage, WANTED.state()).version == 0

    def test_a_hidden_folder_is_not_listed_to_its_end(self, storage: Storage, s3: S3Server) -> None:
        folder = s3.folder / storage.root.removeprefix("s3://") / "_tmp"
        folder.mkdir(parents=True)
        for number in range(2500):
            (folder / f"{number}").touch()
        before = storage.requests.lists
        require_empty_location(storage, METADATA)
        assert storage.requests.lists - before == 2


LOWER = spark.StringType("UTF8_LCASE")
KINDS: dict[str, spark.DataType] = {
    "string": LOWER,
    "array": spark.ArrayType(LOWER),
    "struct": spark.StructType([spark.StructField("c", LOWER)]),
}


def columns(kind: spark.DataType) -> spark.StructType:
    return spark.StructType(
        [spark.StructField("id", spark.LongType()), spark.StructField("c", kind)]
    )


@pytest.mark.parametrize("name", KINDS)
def test_no_table_gets_a_column_with_a_collation(tmp_path: Path, name: str) -> None:
    schema = columns(KINDS[name])
    match = r"(?s)column c has a collation.*UTF8_LCASE.*CAST\(c AS STRING COLLATE UTF8_BINARY\)"
    with pytest.raises(UnsupportedFeatureError, match=match):
        DeltaTable.create(None, tmp_path / "t", schema)
    with pytest.raises(UnsupportedFeatureError, match=match):
        DelvecDataSource({"path": str(tmp_path / "t")}).writer(schema, False)
    assert not (tmp_path / "t").exists()
    table = DeltaTable.create(None, tmp_path / "t", pa.schema({"id": pa.int64()}))
    with pytest.raises(UnsupportedFeatureError, match=match):
        table.add_columns(spark.StructType([schema["c"]]))
    assert table.version == 0


def test_rows_with_a_collation_go_into_a_column_of_plain_strings(tmp_path: Path) -> None:
    """The strings are the same; how they compare is not a matter of the rows."""
    table = DeltaTable.create(None, tmp_path / "t", columns(spark.StringType()))
    writer = DelvecDataSource({"path": str(tmp_path / "t")}).writer(columns(LOWER), False)
    rows = pa.table({"id": [1], "c": ["Aa"]})
    writer.commit([pickled(writer).write(iter(rows.to_batches()))])
    assert table.to_arrow().to_pylist() == [{"id": 1, "c": "Aa"}]
    assert "__COLLATIONS" not in (tmp_path / "t/_delta_log" / f"{0:020}.json").read_text()


def test_a_table_that_has_one_may_be_changed_otherwise(tmp_path: Path) -> None:
    DeltaTable.create(None, tmp_path, columns(spark.StringType()))
    first = tmp_path / "_delta_log" / f"{0:020}.json"
    plain, marked = r"\"name\":\"c\",", r"\"metadata\":{\"__COLLATIONS\":{\"c\":\"icu.DE\"}}"
    head, name, tail = first.read_text().partition(plain)
    first.write_text(head + name + tail.replace(r"\"metadata\":{}", marked, 1))
    table = DeltaTable.for_path(None, tmp_path)
    assert table.schema.field("c").metadata
    table.set_properties({"delta.logRetentionDuration": "interval 1 day"})
    table.add_columns(pa.schema({"n": pa.int64()}))
    assert table.version == 2


def create(path: Path, check: str, default: str = "1") -> DeltaTable:
    fields = (
        Field("id", PrimitiveType("long")),
        Field("n", PrimitiveType("long"), metadata={"CURRENT_DEFAULT": default}),
    )
    return DeltaTable.create(
        None, path, StructType(fields), properties={"delta.constraints.c": check}
    )


@pytest.mark.parametrize(
    "check",
    [
        "reflect('java.lang.System', 'exit', '1') > 0",
        "`reflect` ('a', 'b')",
        "id > (select max(id) from t)",
        "main.rules.f(id)",
        "concat('it''s (', uuid())",
    ],
)
def test_calls_of_other_functions_are_refused(tmp_path: Path, check: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"constraint c of .* calls "):
        create(tmp_path, check)
    assert not any(tmp_path.iterdir())


def test_what_only_looks_like_a_call_is_not(tmp_path: Path) -> None:
    check = (
        "id in (1, 2) AND (n is null OR (cast(n AS decimal(10, 2)) > 0)) AND 'reflect(' <> 'x'"
        " AND CASE WHEN (id > 0) THEN (length('a') > 0) ELSE (n between (1) and (2)) END"
    )
    create(tmp_path / "t", check, default="year(current_date())")
    with pytest.raises(UnsupportedFeatureError, match=r"the default of column n of .* calls uuid"):
        create(tmp_path / "u", check, default="uuid()")
