"""Tables that Delta's own projects keep for their tests, read by every way there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import delvec.delta.table as delta
from delvec.errors import DelvecError, UnsupportedFeatureError
from tests.delta.readers import READERS, ZONE, read, read_frame, same_rows, settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Rows that the folder's README tells where there are none in `expected`.
TOLD = {
    "basic-dv-no-checkpoint": pa.table({"id": pa.array(range(2, 10), pa.int64())}),
    "table-with-dv-small": pa.table({"value": pa.array(range(1, 9), pa.int32())}),
    "with-short-dv": pa.table({"id": pa.array([], pa.int64())}),
    "canonicalized-paths-special-a": pa.table({}),
}
# Rows, files with a live vector, rows that these delete.
TABLES = {
    "basic-dv-no-checkpoint": (8, 1, 2),
    "table-with-dv-small": (8, 1, 2),
    "with-short-dv": (7, 1, 3),
    "dv-partitioned-with-checkpoint": (35, 2, 2),
    "dv-with-columnmapping": (35, 2, 2),
    "multi-part-checkpoint": (31, 0, 0),
    "v2-checkpoint-json": (10, 0, 0),
    "corrupted-last-checkpoint-kernel": (100, 0, 0),
    "table-with-columnmapping-mode-id": (6, 0, 0),
    "data-reader-partition-values": (3, 0, 0),
    "data-reader-primitives": (11, 0, 0),
    "time-travel-start-start20-start40": (30, 0, 0),
    "canonicalized-paths-special-a": (0, 0, 0),
}
FUTURE = "deltalog-invalid-protocol-version"
# Where the timestamps in the partition values of one table were written.
LOS_ANGELES = {ZONE: "America/Los_Angeles"}


def expected_rows(golden: Path, name: str) -> pa.Table | None:
    folder = golden / name / "expected"
    if folder.is_dir():
        return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])
    return TOLD.get(name)


def check(found: pa.Table, golden: Path, name: str) -> None:
    assert found.num_rows == TABLES[name][0]
    expected = expected_rows(golden, name)
    if expected is not None and found.num_rows and expected.num_rows:
        assert same_rows(found, expected)


def test_every_table_of_the_folder_is_judged(golden: Path) -> None:
    assert {path.name for path in golden.iterdir() if path.is_dir()} == {*TABLES, FUTURE}


@pytest.mark.parametrize(
    "name", [name for name in TABLES if name != "data-reader-partition-values"]
)
def test_arrow_alone_reads_the_rows(golden: Path, name: str) -> None:
    table = delta.DeltaTable.for_path(None, golden / name / "delta")
    check(table.to_arrow(), golden, name)
    rows, vectors, deleted = TABLES[name]
    assert table.count() == rows
    detail = table.detail()
    assert (detail.files_with_vectors, detail.deleted_rows) == (vectors, deleted)


# Each read by the data source starts processes of Python: the rest runs with the slow tests.
BY_SOURCE = {
    "dv-with-columnmapping",
    "table-with-columnmapping-mode-id",
    "data-reader-partition-values",
}
ON_SPARK = [
    pytest.param(
        name,
        reader,
        marks=[pytest.mark.slow] * (reader == "source" and name not in BY_SOURCE),
    )
    for name in TABLES
    for reader in READERS
]


@pytest.mark.spark
@pytest.mark.parametrize(("name", "reader"), ON_SPARK)
def test_every_reader_gives_the_expected_rows(
    spark: SparkSession, golden: Path, name: str, reader: str
) -> None:
    with settings_of(spark, LOS_ANGELES):
        check(read(reader, spark, golden / name / "delta"), golden, name)
        assert delta.DeltaTable.for_path(spark, golden / name / "delta").count() == TABLES[name][0]


@pytest.mark.parametrize("name", ["dv-partitioned-with-checkpoint", "dv-with-columnmapping"])
def test_the_sum_that_the_corpus_tells(golden: Path, name: str) -> None:
    table = delta.DeltaTable.for_path(None, golden / name / "delta")
    assert pc.sum(table.to_arrow().column("col1")).as_py() == 1015
    assert table.version == 15


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_are_read(golden: Path, version: int) -> None:
    path = golden / "time-travel-start-start20-start40" / "delta"
    found = delta.DeltaTable.for_path(None, path).to_arrow(version=version)
    assert sorted(found.column("id").to_pylist()) == list(range(10 * (version + 1)))


@pytest.mark.spark
@pytest.mark.parametrize("version", [9, 12])
def test_versions_of_a_table_with_vectors_are_what_delta_spark_reads(
    spark: SparkSession, golden: Path, version: int
) -> None:
    path = golden / "dv-partitioned-with-checkpoint" / "delta"
    expected = spark.read.format("delta").option("versionAsOf", version).load(str(path)).toArrow()
    for reader in ("to_df", "to_arrow"):
        assert same_rows(read(reader, spark, path, version), expected)


def test_a_protocol_from_the_future_is_refused_by_its_number(golden: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="99"):
        delta.DeltaTable.for_path(None, golden / FUTURE / "delta")


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["to_df", "source"])
def test_spark_refuses_a_protocol_from_the_future(
    spark: SparkSession, golden: Path, reader: str
) -> None:
    kind = DelvecError if reader == "to_df" else Exception
    with pytest.raises(kind, match="99"):
        read_frame(reader, spark, golden / FUTURE / "delta").collect()
