"""Consolidation of equality deletes of all types and formats, and beside a compaction that runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.file_scan import write_data_files
from delvec.spark import jvm
from tests.iceberg.deletes.foreign import column, delete_by_java, table_of
from tests.iceberg.deletes.tables import open_new
from tests.iceberg.maintain.tables import deletes, insert, loaded, own, stock

pytestmark = pytest.mark.spark

TYPES = {
    "boolean": ("true", "false"),
    "int": ("-1", "2147483647"),
    "long": ("-1", "9223372036854775807"),
    "date": ("DATE'1969-12-31'", "DATE'2024-02-29'"),
    "timestamp": (
        "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'",
        "TIMESTAMP_NTZ'2024-02-29 12:00:00.000001'",
    ),
    "timestamptz": (
        "TIMESTAMP'1969-12-31 23:59:59.999999Z'",
        "TIMESTAMP'2024-02-29 12:00:00.000001+09:00'",
    ),
    "string": ("''", "'zoë'"),
    "uuid": (f"'{UUID(int=1)}'", f"'{UUID(int=1 << 127)}'"),
    "binary": ("X''", "X'FF00'"),
    "decimal(9, 2)": ("-0.01BD", "1234567.89BD"),
    "decimal(38, 10)": ("-1234567890123456789012345678.0000000001BD", "0.5BD"),
}


@pytest.mark.slow
def test_keys_of_all_types_stay_exact(spark: SparkSession) -> None:
    columns = [column(place + 1, f"c{place}", kind) for place, kind in enumerate(TYPES)]
    table = table_of(spark, columns)
    names = [each["name"] for each in columns]
    first, second = (", ".join(values) for values in zip(*TYPES.values(), strict=True))
    insert(table, f"({first}), ({second}), ({', '.join(['null'] * len(names))})")
    insert(table, f"({first})")
    keys = spark.table(table.name)
    one = keys.where("c1 = -1").select(*names)
    table.delete_keys(one, columns=names)
    table.delete_keys(keys.where("c1 IS NULL").select(*names), columns=names)
    table.delete_keys(one, columns=names)
    before = stock(table)
    assert len(before) == 1
    report = table.consolidate_deletes()
    assert (report.files_after, report.keys_after) == (1, 2)
    assert stock(table) == own(table) == before
    assert table.check().findings == ()


@pytest.mark.slow
def test_files_of_other_writers_and_formats_are_merged(spark: SparkSession) -> None:
    columns = [column(1, "id", "long"), column(2, "s", "string"), column(3, "f", "fixed[2]")]
    table = table_of(spark, columns)
    insert(table, ", ".join(f"({each}, 's{each}', X'0{each}0{each}')" for each in range(1, 8)))
    for key, kind in ((1, "PARQUET"), (2, "ORC"), (3, "AVRO")):
        delete_by_java(table, [{"id": key, "s": "not a key"}], ["id"], file_format=kind)
    delete_by_java(table, [{"id": None}], ["id"])
    for key in (4, 5):
        table.delete_keys([bytes([key, key])], "f")
    before = stock(table)
    assert [row[0] for row in before] == [6, 7]
    kinds = sorted(each.file_format for each in deletes(table) if each.equality_ids == (1,))
    assert kinds == ["avro", "orc", "parquet", "parquet"]
    report = table.consolidate_deletes()
    assert stock(table) == own(table) == before
    assert (report.files_before, report.files_after) == (6, 3)
    [apart] = report.unmerged
    assert (apart.columns, apart.deletes) == (("f",), 2)
    assert "fixed[2]" in apart.reason


def data_file(table: IcebergTable, text: str) -> Any:  # noqa: ANN401
    view = iceberg_view(table.spark)
    node = view.util.JsonUtil.mapper().readTree(text)
    return view.ContentFileParser.fromJson(node, loaded(table).handle.specs())


@pytest.mark.slow
def test_a_compaction_that_began_before_changes_no_row(spark: SparkSession) -> None:
    table = open_new(spark)
    insert(table, "(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    # Iceberg loses equality deletes that come meanwhile if it replaces all data (its issue 10312).
    insert(table, "(9, 'not compacted')")
    table.delete_keys([1], "id")
    table.delete_keys(["none"], "s")
    # The compaction begins: it reads what is live, and keeps this snapshot's sequence number, 4.
    start = loaded(table)
    head = start.metadata.head()
    assert head is not None
    [*_, first] = jvm.items(iceberg_view(spark).util.SnapshotUtil.currentAncestors(start.handle))
    [replaced] = jvm.items(first.addedDataFiles(start.handle.io()))
    live = [row for row in stock(table) if row[0] != 9]
    rows = spark.createDataFrame(live, "id long, s string").coalesce(1)
    [made] = write_data_files(start, rows).to_pylist()
    # Meanwhile: another delete, and a consolidation, which gives the first one a higher number.
    table.delete_keys([2], "id")
    assert table.consolidate_deletes().merged == 2
    handle = loaded(table).handle
    rewrite = handle.newRewrite().validateFromSnapshot(head.id).dataSequenceNumber(4)
    rewrite.deleteFile(replaced)
    rewrite.addFile(data_file(table, made))
    rewrite.commit()
    assert [row[0] for row in stock(table)] == [3, 4, 9]
    assert stock(table) == own(table)
    insert(table, "(1, 'new'), (2, 'new')")
    assert [row[0] for row in stock(table)] == [1, 2, 3, 4, 9]
