"""Frames that delta-spark, Iceberg for Spark, deltalake and PyIceberg write and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import deltalake
import numpy as np
import pytest
from numpy.typing import NDArray
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.vector import (
    Bitmap,
    DeletionVector,
    Descriptor,
    EqualityDeleteVector,
    copy_frames,
    decode_frame,
    encode_frame,
    puffin,
)
from delvec.vector.puffin import read_footer, reader_of
from tests.delta import log_files

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

ROWS = 200_000
# Predicate, the positions that it hits in a file whose ids are its positions, and the container
# kinds that these make: few values, many scattered ones, one run, and all in one vector.
Hits = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
DELETES: dict[str, tuple[str, Hits]] = {
    "array": ("id % 9973 = 5", lambda ids: ids % 9973 == 5),
    "bitset": ("id % 7 < 3", lambda ids: ids % 7 < 3),
    "run": ("id BETWEEN 1000 AND 150000", lambda ids: (ids >= 1000) & (ids <= 150_000)),
    "mixed": (
        "id < 500 OR id % 65536 = 9 OR (id > 131072 AND id % 3 = 0)",
        lambda ids: (ids < 500) | (ids % 65_536 == 9) | ((ids > 131_072) & (ids % 3 == 0)),
    ),
}


class WrittenVector(NamedTuple):
    """A vector as an engine wrote it."""

    frame: bytes
    cardinality: int
    data_file: str


def positions_hit(name: str) -> Bitmap:
    return Bitmap(np.flatnonzero(DELETES[name][1](np.arange(ROWS))))


def live_adds(table: Path) -> dict[str, dict[str, Any]]:
    return {add["path"]: add for add in log_files.live_adds(table)}


def delta_vectors(table: Path) -> list[WrittenVector]:
    found = []
    for path, add in sorted(live_adds(table).items()):
        descriptor = Descriptor.from_json(add["deletionVector"])
        assert descriptor.file_path is not None
        start, length = descriptor.file_range
        frame = (table / descriptor.file_path).read_bytes()[start : start + length]
        assert descriptor.decode(frame).cardinality == descriptor.cardinality
        found.append(WrittenVector(frame, descriptor.cardinality, path))
    return found


def iceberg_vectors(spark: SparkSession, table: str) -> list[WrittenVector]:
    found = []
    for row in spark.table(f"{table}.delete_files").orderBy("referenced_data_file").collect():
        assert row.file_format == "PUFFIN"
        data = Path(local(row.file_path)).read_bytes()
        [entry] = [
            blob
            for blob in read_footer(reader_of(data), len(data)).blobs
            if blob.offset == row.content_offset
        ]
        frame = data[row.content_offset : row.content_offset + row.content_size_in_bytes]
        vector = DeletionVector.from_blob(entry, frame)
        assert vector.data_file == row.referenced_data_file
        assert vector.positions.cardinality == row.record_count
        found.append(WrittenVector(frame, row.record_count, vector.data_file))
    return found


def local(path: str) -> str:
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def make_delta(spark: SparkSession, table: Path, files: int = 1) -> None:
    rows = spark.range(ROWS * files).repartitionByRange(files, "id").sortWithinPartitions("id")
    spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
    rows.write.format("delta").save(str(table))
    spark.conf.unset("spark.databricks.delta.properties.defaults.enableDeletionVectors")
    assert len(live_adds(table)) == files


def make_iceberg(spark: SparkSession, table: str) -> None:
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.range(ROWS).coalesce(1).sortWithinPartitions("id").writeTo(table).append()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DELETES)
def test_vectors_of_both_engines_are_our_bytes(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    make_delta(spark, tmp_path / "t")
    spark.sql(f"DELETE FROM delta.`{tmp_path / 't'}` WHERE {DELETES[name][0]}")
    table = f"lake.interop.fresh_{name}"
    make_iceberg(spark, table)
    spark.sql(f"DELETE FROM {table} WHERE {DELETES[name][0]}")

    expected = positions_hit(name)
    [delta] = delta_vectors(tmp_path / "t")
    [iceberg] = iceberg_vectors(spark, table)
    for vector in (delta, iceberg):
        decoded = decode_frame(vector.frame, cardinality=vector.cardinality)
        assert decoded == expected
        assert encode_frame(decoded) == vector.frame
    assert delta.frame == iceberg.frame == encode_frame(expected)


def read_by_pyiceberg(data: bytes) -> dict[str, Bitmap]:
    vectors = deletion_vectors_from_puffin_file(PuffinFile(data))
    return {v.referenced_data_file: Bitmap(v.to_vector().to_numpy()) for v in vectors}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DELETES)
def test_delta_spark_and_deltalake_read_the_vectors_that_we_write(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    make_delta(spark, tmp_path / "t")
    expected = positions_hit(name)
    DeltaTable.for_path(spark, tmp_path / "t").delete(DELETES[name][0])
    [written] = delta_vectors(tmp_path / "t")
    assert written.frame == encode_frame(expected)
    alive = np.setdiff1d(np.arange(ROWS), expected.to_numpy())
    rows = spark.read.format("delta").load(str(tmp_path / "t")).select("id").toArrow()
    assert np.array_equal(np.sort(rows.column("id").to_numpy()), alive)
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path / "t")))
    found = query.execute("SELECT count(*) AS n, sum(id) AS s FROM t").read_all()
    row = {name: found.column(name)[0].as_py() for name in found.column_names}
    assert row == {"n": len(alive), "s": int(alive.sum())}
    # And delta-spark goes on from there: its next delete merges with our vector.
    spark.sql(f"DELETE FROM delta.`{tmp_path / 't'}` WHERE id < 2000")
    [merged] = delta_vectors(tmp_path / "t")
    assert decode_frame(merged.frame) == expected | Bitmap(range(2000))


def test_java_and_pyiceberg_read_our_puffin_files(spark: SparkSession, tmp_path: Path) -> None:
    vectors = {f"s3://lake/part-{name}.parquet": positions_hit(name) for name in DELETES}
    written = [DeletionVector(bitmap, path).to_blob() for path, bitmap in vectors.items()]
    keys = EqualityDeleteVector(Bitmap([100, 500, 2**62]), field_id=1).to_blob()
    file = puffin.encode([*written, keys], {"owner": "a test"})
    path = tmp_path / "ours.puffin"
    path.write_bytes(file.data)

    jvm: Any = spark._jvm
    io = jvm.org.apache.iceberg.Files.localInput(str(path))
    reader = jvm.org.apache.iceberg.puffin.Puffin.read(io).withFileSize(len(file.data)).build()
    try:
        metadata = reader.fileMetadata()
        assert metadata.properties()["owner"] == "a test"
        listed = [
            (
                blob.type(),
                list(blob.inputFields()),
                blob.offset(),
                blob.length(),
                dict(blob.properties()),
            )
            for blob in metadata.blobs()
        ]
    finally:
        reader.close()
    assert listed == [
        (blob.type, list(blob.fields), blob.offset, blob.length, dict(blob.properties))
        for blob in file.blobs
    ]
    assert read_by_pyiceberg(puffin.encode(written).data) == vectors


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", [*DELETES, "gap", "merged"])
def test_iceberg_for_java_decodes_our_vectors(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    if name == "gap":
        frame = encode_frame(Bitmap([1, 2**33, 2**33 + 7]))
    elif name == "merged":  # copied as delta-spark left it, not optimised for runs
        make_delta(spark, tmp_path / "t")
        for side in (0, 1):
            spark.sql(f"DELETE FROM delta.`{tmp_path / 't'}` WHERE id % 2 = {side} AND id < 60000")
        [vector] = delta_vectors(tmp_path / "t")
        frame = copy_frames(vector.frame, [0], [len(vector.frame)]).data
        assert len(frame) > len(encode_frame(decode_frame(frame)))
    else:
        frame = encode_frame(positions_hit(name))
    expected = decode_frame(frame)

    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    entry = (
        iceberg.FileMetadata.deleteFileBuilder(iceberg.PartitionSpec.unpartitioned())
        .ofPositionDeletes()
        .withFormat("puffin")
        .withPath("ours.puffin")
        .withFileSizeInBytes(4 + len(frame))
        .withReferencedDataFile("part-0.parquet")
        .withContentOffset(4)
        .withContentSizeInBytes(len(frame))
        .withRecordCount(expected.cardinality)
        .build()
    )
    index = iceberg.deletes.PositionDeleteIndex.deserialize(frame, entry)
    assert index.cardinality() == expected.cardinality
    for position in (*expected.to_numpy()[:50].tolist(), expected.max, 999_999_999):
        assert index.isDeleted(position) == (position in expected)
    assert decode_frame(bytes(index.serialize().array())) == expected
