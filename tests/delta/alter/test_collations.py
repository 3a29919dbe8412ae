"""Columns with a collation are refused, as by delta-spark; rows of such go into plain strings."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource
from delvec.errors import UnsupportedFeatureError
from tests.datasource.in_process import pickled

LOWER = StringType("UTF8_LCASE")
KINDS: dict[str, DataType] = {
    "string": LOWER,
    "array": ArrayType(LOWER),
    "struct": StructType([StructField("c", LOWER)]),
}


def columns(kind: DataType) -> StructType:
    return StructType([StructField("id", LongType()), StructField("c", kind)])


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
        table.add_columns(StructType([schema["c"]]))
    assert table.version == 0


def test_rows_with_a_collation_go_into_a_column_of_plain_strings(tmp_path: Path) -> None:
    """The strings are the same; how they compare is not a matter of the rows."""
    table = DeltaTable.create(None, tmp_path / "t", columns(StringType()))
    writer = DelvecDataSource({"path": str(tmp_path / "t")}).writer(columns(LOWER), False)
    rows = pa.table({"id": [1], "c": ["Aa"]})
    writer.commit([pickled(writer).write(iter(rows.to_batches()))])
    assert table.to_arrow().to_pylist() == [{"id": 1, "c": "Aa"}]
    assert "__COLLATIONS" not in (tmp_path / "t/_delta_log" / f"{0:020}.json").read_text()


def test_a_table_that_has_one_may_be_changed_otherwise(tmp_path: Path) -> None:
    DeltaTable.create(None, tmp_path, columns(StringType()))
    first = tmp_path / "_delta_log" / f"{0:020}.json"
    plain, marked = r"\"name\":\"c\",", r"\"metadata\":{\"__COLLATIONS\":{\"c\":\"icu.DE\"}}"
    head, name, tail = first.read_text().partition(plain)
    first.write_text(head + name + tail.replace(r"\"metadata\":{}", marked, 1))
    table = DeltaTable.for_path(None, tmp_path)
    assert table.schema.field("c").metadata
    table.set_properties({"delta.logRetentionDuration": "interval 1 day"})
    table.add_columns(pa.schema({"n": pa.int64()}))
    assert table.version == 2
