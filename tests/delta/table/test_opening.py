"""`DeltaTable(path)`, and paths where there is no Delta table; without a JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec import DeltaTable
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import InvalidArgumentError, TableNotFoundError
from tests.delta.builder import TableBuilder, small_table

COLUMNS = StructType((Field("id", PrimitiveType("long")),))


def test_a_table_is_opened_by_its_path_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delvec.delta.table.handle.active_session", lambda: None)
    small_table(tmp_path)
    for table in (
        DeltaTable(str(tmp_path)),
        DeltaTable(tmp_path),
        DeltaTable(tmp_path, storage_options={}),
        DeltaTable(None, tmp_path),
    ):
        assert table == DeltaTable.for_path(None, tmp_path)
        assert repr(table) == f"DeltaTable({str(tmp_path)!r})"


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        ([], "there is no such folder, or it is empty", "create(spark, '{path}', schema)"),
        (
            ["day=1/part.parquet"],
            "holds Parquet files and no _delta_log",
            "DeltaTable.convert_to_delta(None, '{path}')",
        ),
        (
            ["metadata/v1.metadata.json", "data/part.parquet"],
            "is the folder of an Iceberg table",
            "IcebergTable.for_name(spark, ",
        ),
        (["notes.txt"], "it has no commits in _delta_log", ""),
    ],
)
def test_what_is_no_table_says_how_to_make_or_open_one(
    tmp_path: Path, files: list[str], message: str, hint: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / name)
    for path in (tmp_path, tmp_path / "none")[: 1 if files else 2]:
        assert not DeltaTable.is_delta_table(path)
        with pytest.raises(TableNotFoundError, match=message) as caught:
            DeltaTable(path)
        assert hint.format(path=path) in str(caught.value.hint)
    if "convert" in hint:
        DeltaTable.convert_to_delta(None, tmp_path)
        assert DeltaTable.is_delta_table(tmp_path)
        assert DeltaTable(tmp_path).count() == 1


@pytest.mark.parametrize("name", ["db.orders", "spark_catalog.db.orders"])
def test_a_name_in_the_place_of_a_path_says_how_to_open_it(name: str) -> None:
    with pytest.raises(TableNotFoundError, match="looks like the name of a table") as caught:
        DeltaTable(name)
    assert f"DeltaTable.for_name(spark, {name!r})" in str(caught.value.hint)


def test_a_version_belongs_to_the_read(tmp_path: Path) -> None:
    small_table(tmp_path)
    with pytest.raises(InvalidArgumentError, match="opened with all of its versions") as caught:
        DeltaTable(tmp_path, version=0)
    assert caught.value.hint == "name it where you read: to_arrow(version=0)"


def test_create_if_not_exists_keeps_a_table_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = DeltaTable.create_if_not_exists(None, path, COLUMNS, description="orders")
    assert (table.version, table.detail().description) == (0, "orders")
    again = DeltaTable.create_if_not_exists(None, path, StructType(()), description="others")
    assert (again.version, again.schema, again.detail().description) == (0, COLUMNS, "orders")


def test_a_table_is_created_by_a_schema_of_arrow(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.uint32(), nullable=False),
            pa.field("at", pa.timestamp("ns", "UTC")),
            pa.field("local", pa.timestamp("ms")),
            pa.field("tags", pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))),
        ]
    )
    table = DeltaTable.create(None, tmp_path / "t", schema)
    assert str(table.schema) == (
        "struct<id:long,at:timestamp,local:timestamp_ntz,tags:array<string>>"
    )
    assert [field.nullable for field in table.schema.fields] == [False, True, True, True]
    with pytest.raises(InvalidArgumentError, match=r"column at is time64\[us\] in Arrow"):
        table.add_columns(pa.schema([("at", pa.time64("us"))]))


def test_html_of_a_table_shows_facts_and_columns_and_escapes_them(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path / "<b>", fields={"<script>alert(1)</script>": "long"})
    table = DeltaTable(builder.root)
    for html in (table._repr_html_(), table.detail()._repr_html_(), table.schema._repr_html_()):
        assert "<script>" not in html
        assert "<b>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in table._repr_html_()
    assert "0 files, 0 B, 0 live rows" in table._repr_html_()
    assert repr(table.detail()) == f"TableDetail({builder.root}: version 0)"
