"""Copies with field ids on the real engines: what delta-spark wrote, as Iceberg reads it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import DeltaTable
from delvec.conversion.files.copies import write_copies
from delvec.conversion.schema.iceberg_schema import ids_by_path, target_schema
from delvec.errors import (
    EngineError,
    FormatError,
    ObjectExistsError,
    StorageError,
    UnsupportedFeatureError,
)
from delvec.parquet.field_ids import read_footer, read_schema
from delvec.storage.listed_files import spark_path
from tests.interop.conversion_targets import static_table
from tests.spark.delta.readers import settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads, create, sql

pytestmark = pytest.mark.spark

COLUMNS = """
    id BIGINT, numbers ARRAY<INT>, pairs MAP<STRING, BIGINT>, deep ARRAY<ARRAY<STRING>>,
    s STRUCT<inner: ARRAY<DOUBLE>, plain: INT>, mixed MAP<STRING, ARRAY<STRUCT<x: INT, y: STRING>>>,
    structs ARRAY<STRUCT<at: TIMESTAMP, name: STRING>>, amount DECIMAL(20, 3), small DECIMAL(5, 2),
    at TIMESTAMP, day DATE, raw BINARY, keyed MAP<INT, MAP<STRING, DECIMAL(9, 1)>>
"""
ROWS = """
    SELECT id,
      CASE WHEN id % 5 = 0 THEN NULL WHEN id % 5 = 1 THEN array() ELSE array(int(id), NULL, 7) END,
      CASE WHEN id % 7 = 0 THEN NULL WHEN id % 7 = 1 THEN map() ELSE map('k', id, 'n', NULL) END,
      CASE WHEN id % 3 = 0 THEN array(array(), NULL, array('a', NULL))
        ELSE array(array(string(id % 9))) END,
      CASE WHEN id % 11 = 0 THEN NULL ELSE
        named_struct('inner', IF(id % 4 = 0, NULL, array(id / 2)), 'plain', int(id)) END,
      map('k', array(named_struct('x', int(id), 'y', string(id % 5)), NULL), 'none', NULL),
      IF(id % 6 = 0, array(),
        array(named_struct('at', timestamp_micros(id * 1000003), 'name', string(id)))),
      CAST(id AS DECIMAL(20, 3)) / 8, CAST(id % 900 AS DECIMAL(5, 2)),
      timestamp_micros(1700000000123456 + id), date_add(DATE'1969-12-01', int(id % 90)),
      IF(id % 2 = 0, NULL, CAST(string(id) AS BINARY)),
      map(int(id), map('v', CAST(id AS DECIMAL(9, 1))))
    FROM range({rows})
"""
SIZES = {
    "parquet.block.size": 16_384,
    "parquet.page.size": 2_048,
    "parquet.bloom.filter.enabled": "true",
    "parquet.bloom.filter.max.bytes": 512,
    "spark.sql.parquet.outputTimestampType": "INT96",
}


def copy_with_ids(
    spark: SparkSession, source: str, target: str, ids: Mapping[tuple[str, ...], int]
) -> int:
    [size] = write_copies(spark, [(source, target)], ids)
    return int(size)


class Source:
    """A table of delta-spark and the files that its copies shall be."""

    def __init__(self, path: Path, mode: str) -> None:
        self.path, self.mode = path, mode
        snapshot = DeltaTable.for_path(None, path).snapshot()
        options: dict[str, Any] = {"table": "t", "current": None, "last_column_id": 0}
        schema = target_schema(snapshot.metadata, format_version=3, **options)
        self.ids = dict(ids_by_path(schema.name_mapping()))
        self.names = [str(name) for name in snapshot.files.paths.to_pylist()]

    def pairs(self, folder: Path) -> list[tuple[str, str]]:
        return [
            (spark_path(str(self.path), name), spark_path(str(folder), Path(name).name))
            for name in self.names
        ]


@pytest.fixture(scope="module", params=["name", "id"])
def source(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Source:
    path = tmp_path_factory.mktemp("copies") / f"a b%20{request.param}"
    create(spark, path, COLUMNS, properties={"delta.columnMapping.mode": request.param})
    for codec in ("snappy", "zstd", "uncompressed"):
        with settings_of(spark, {**SIZES, "spark.sql.parquet.compression.codec": codec}):
            sql(spark, path, "INSERT INTO {T} " + ROWS.format(rows=1000))
    return Source(path, request.param)


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


@pytest.mark.slow
def test_iceberg_reads_the_copies(spark: SparkSession, source: Source) -> None:
    target = f"lake.copies.copied_{source.mode}"
    with pytest.raises(UnsupportedFeatureError, match=r"the first is .*parquet"):
        delvec.convert(spark, source.path, target)
    choices: dict[str, Any] = {"copy_files": True, "format_version": 2}  # for PyIceberg: INT96
    report = delvec.convert(spark, source.path, target, verify="rows", **choices)
    assert (report.files_copied, report.rows) == (len(source.names), 3000)
    expected, found = as_delta_spark_reads(spark, source.path), spark.table(target)
    assert rows(found) == rows(expected)
    # Through the dictionaries, indexes and bloom filters that the copy brings along.
    for condition in ("id = 777", "amount = 100.125", "day < DATE'1969-12-03'"):
        assert rows(found.where(condition)) == rows(expected.where(condition)) != []
    # PyIceberg 0.12 goes by names, not by ids, for structs of a list in a list or in a map.
    chosen = [name for name in expected.columns if name != "mixed"]
    scan = static_table(spark, target).scan(selected_fields=tuple(chosen))
    by_pyiceberg, by_spark = scan.to_arrow().select(chosen), expected.select(chosen).toArrow()
    assert sorted(map(repr, by_pyiceberg.to_pylist())) == sorted(map(repr, by_spark.to_pylist()))


@pytest.mark.slow
def test_columns_that_were_dropped_need_no_copy(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id INT, l ARRAY<INT>, s STRUCT<a: INT, l: ARRAY<INT>>, m MAP<STRING, STRUCT<x: INT>>"
    create(spark, tmp_path, columns, properties={"delta.columnMapping.mode": "name"})
    row = "1, array(2), named_struct('a', 3, 'l', array(4)), map('k', named_struct('x', 5))"
    sql(
        spark,
        tmp_path,
        f"INSERT INTO {{T}} SELECT {row}",
        "ALTER TABLE {T} DROP COLUMNS (l, s.l, m)",
        "ALTER TABLE {T} RENAME COLUMN id TO number",
        "ALTER TABLE {T} ADD COLUMN l ARRAY<STRING>",
        "INSERT INTO {T} SELECT 6, named_struct('a', 7), array('x', NULL)",
    )
    target = "lake.copies.dropped"
    report = delvec.convert(spark, tmp_path, target, copy_files=True, verify="rows")
    assert (report.files_added, report.files_copied) == (2, 1)
    [copy] = [
        path
        for (path,) in spark.table(f"{target}.files").select("file_path").collect()
        if "/data/copies/" in path
    ]
    assert pq.read_metadata(copy.removeprefix("file:")).num_columns == 3
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, tmp_path))


@pytest.mark.slow
def test_lists_in_the_old_form_of_spark_are_read(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id INT, l ARRAY<INT>, ls ARRAY<STRUCT<x: INT>>, m MAP<STRING, ARRAY<STRING>>"
    create(spark, tmp_path, columns, properties={"delta.columnMapping.mode": "name"})
    row = "1, array(2, NULL), array(named_struct('x', 3)), map('k', array('v', NULL))"
    with settings_of(spark, {"spark.sql.parquet.writeLegacyFormat": "true"}):
        sql(spark, tmp_path, f"INSERT INTO {{T}} SELECT {row}")
    [written] = tmp_path.glob("**/part-*.parquet")
    assert "bag" in str(pq.read_metadata(written).schema)
    delvec.convert(spark, tmp_path, "lake.copies.old_form", copy_files=True, verify="rows")
    assert rows(spark.table("lake.copies.old_form")) == rows(as_delta_spark_reads(spark, tmp_path))


def footer_of(file: bytes) -> bytes:
    return read_footer(lambda start, length: file[start : start + length], len(file), "f")


def test_the_copy_has_the_same_bytes_and_another_schema(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    write_copies(spark, source.pairs(tmp_path), source.ids)
    codecs = set()
    for name in source.names:
        old, new = (source.path / name).read_bytes(), (tmp_path / Path(name).name).read_bytes()
        footers = [footer_of(file) for file in (old, new)]
        data = [file[: -8 - len(footer)] for file, footer in zip((old, new), footers, strict=True)]
        assert len({hashlib.md5(each).hexdigest() for each in data}) == 1  # noqa: S324
        assert not read_schema(footers[1], name).lacks_child_ids
        before, after = (pq.read_metadata(io.BytesIO(file)) for file in (old, new))
        assert after.num_row_groups > 1
        assert after.metadata == before.metadata
        assert b"org.apache.spark.version" in after.metadata
        groups = range(after.num_row_groups)
        assert [after.row_group(each).to_dict() for each in groups] == [
            before.row_group(each).to_dict() for each in groups
        ]
        columns = [after.row_group(0).column(each) for each in range(after.num_columns)]
        codecs |= {column.compression for column in columns}
        assert any(column.dictionary_page_offset for column in columns)
        assert all(column.has_offset_index for column in columns)
        assert "INT96" in {column.physical_type for column in columns}
    assert codecs == {"SNAPPY", "ZSTD", "UNCOMPRESSED"}


def test_a_copy_that_is_there_is_kept_and_another_file_is_not_overwritten(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    pair = source.pairs(tmp_path)[0]
    copy = Path(pair[1].removeprefix("file:"))
    size = copy_with_ids(spark, *pair, source.ids)
    before = copy.stat()
    assert copy_with_ids(spark, *pair, source.ids) == size == before.st_size
    assert (copy.stat().st_mtime_ns, copy.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert {each.name for each in tmp_path.iterdir()} == {copy.name, f".{copy.name}.crc"}

    others = {name: number + 1000 * (name[-1] == "element") for name, number in source.ids.items()}
    with pytest.raises(ObjectExistsError, match="another file has the name of a copy"):
        copy_with_ids(spark, *pair, others)
    assert copy.stat().st_ino == before.st_ino


@pytest.mark.slow
def test_failures_name_files_and_leave_none(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    folder = tmp_path / "copies"
    ids = source.ids
    with pytest.raises(StorageError, match=r"gone\.parquet"):
        copy_with_ids(spark, f"file:{tmp_path}/gone.parquet", f"file:{folder}/x", ids)
    (tmp_path / "text.parquet").write_bytes(b"no Parquet file at all")
    with pytest.raises(FormatError, match=r"not a Parquet file in .*text\.parquet"):
        copy_with_ids(spark, f"file:{tmp_path}/text.parquet", f"file:{folder}/x", ids)
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.raises(EngineError, match="taken"):
        copy_with_ids(spark, source.pairs(tmp_path)[0][0], f"file:{tmp_path}/taken/x", ids)
    assert not folder.exists()
    assert not [each for each in tmp_path.iterdir() if each.name.endswith(".tmp")]


def test_a_copy_that_cannot_be_finished_is_not_there(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = source.pairs(tmp_path)[0]
    monkeypatch.setattr("delvec.conversion.files.copies._Hadoop.copy", lambda *_: None)
    with pytest.raises(StorageError, match="a copy is incomplete"):
        copy_with_ids(spark, *pair, source.ids)
    assert list(tmp_path.iterdir()) == []


class Keys(pe.KmsClient):  # type: ignore[misc]
    """Keys that are wrapped by themselves, for files that nobody else reads."""

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return key_bytes.hex().encode()

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return bytes.fromhex(wrapped_key.decode())


@pytest.mark.parametrize("plain_footer", [False, True])
def test_encrypted_files_are_refused(
    spark: SparkSession, source: Source, tmp_path: Path, *, plain_footer: bool
) -> None:
    rows = pq.read_table(source.path / source.names[0]).select([0])
    factory = pe.CryptoFactory(lambda _: Keys())
    settings = pe.EncryptionConfiguration(
        footer_key="footer",
        column_keys={"column": rows.column_names},
        plaintext_footer=plain_footer,
    )
    secret = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(
        tmp_path / "s.parquet", rows.schema, encryption_properties=secret
    ) as file:
        file.write_table(rows)
    with pytest.raises(UnsupportedFeatureError, match=r"s\.parquet is an encrypted"):
        copy_with_ids(spark, f"file:{tmp_path}/s.parquet", f"file:{tmp_path}/x", source.ids)
    assert not (tmp_path / "x").exists()


MAPPED_COLUMNS = (
    "id LONG, l ARRAY<INT>, m MAP<STRING, LONG>, s STRUCT<a: INT, inner: ARRAY<STRING>>,"
    " ls ARRAY<STRUCT<x: INT, y: STRING>>"
)
MAPPED_ROWS = """
SELECT id, array(int(id), 7) AS l, map('k', id) AS m,
  named_struct('a', int(id), 'inner', array(string(id))) AS s,
  array(named_struct('x', int(id), 'y', 'q')) AS ls
FROM range({start}, {stop}, 1, 2)
"""


def make(spark: SparkSession, path: Path, mode: str) -> None:
    create(spark, path, MAPPED_COLUMNS, properties={"delta.columnMapping.mode": mode})
    sql(spark, path, f"INSERT INTO {{T}} {MAPPED_ROWS.format(start=0, stop=40)}")
    sql(spark, path, "DELETE FROM {T} WHERE id % 5 = 0")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["name", "id"])
def test_children_of_arrays_and_maps_are_readable_with_column_mapping(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    path, target = tmp_path / "t", f"lake.copies.mapped_{mode}"
    make(spark, path, mode)
    with pytest.raises(UnsupportedFeatureError, match=r"arrays and maps, the first is .*parquet"):
        delvec.convert(spark, path, target)
    first = delvec.convert(spark, path, target, copy_files=True, verify="rows")
    assert (first.files_added, first.files_copied, first.vectors_added) == (2, 2, 2)
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))

    # Vectors of copies are replaced, new files are copied, and known ones are not copied again.
    sql(spark, path, "DELETE FROM {T} WHERE id % 7 = 0")
    sql(spark, path, f"INSERT INTO {{T}} {MAPPED_ROWS.format(start=100, stop=104)}")
    sql(spark, path, "ALTER TABLE {T} RENAME COLUMN l TO list")
    plan = delvec.plan_conversion(spark, path, target, copy_files=True)
    assert plan.mode == "incremental"
    assert plan.counts()["add"] == plan.apply("rows").files_copied > 0
    assert plan.counts()["vector-replace"] == 2
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))

    sql(spark, path, "OPTIMIZE {T}")
    assert delvec.convert(spark, path, target, copy_files=True, verify="rows").files_copied == 1
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))


@pytest.mark.slow
def test_files_without_any_ids_are_shared_after_column_mapping_was_switched_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, target = tmp_path / "t", "lake.copies.upgraded"
    sql(spark, path, f"CREATE TABLE {{T}} ({MAPPED_COLUMNS}) USING delta")
    sql(spark, path, f"INSERT INTO {{T}} {MAPPED_ROWS.format(start=0, stop=40)}")
    properties = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
    sql(spark, path, f"ALTER TABLE {{T}} SET TBLPROPERTIES ({properties})")
    sql(spark, path, "DELETE FROM {T} WHERE id % 5 = 0")
    report = delvec.convert(spark, path, target, verify="rows")
    assert (report.files_added, report.files_copied) == (2, 0)
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))
