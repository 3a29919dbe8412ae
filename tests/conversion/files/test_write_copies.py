"""Copies with field ids on the real engines: what delta-spark wrote, as Iceberg reads it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.table import StaticTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.conversion.files.copies import files_to_copy, write_copies
from delvec.errors import (
    EngineError,
    FormatError,
    ObjectExistsError,
    StorageError,
    UnsupportedFeatureError,
)
from delvec.parquet.field_ids import read_footer, read_schema
from delvec.storage import Storage
from delvec.storage.listed_files import spark_path
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


class Target:
    """The schema of an Iceberg table: ids of column mapping, new ones for elements and values."""

    def __init__(self, schema: str, last: int) -> None:
        self.ids: dict[tuple[str, ...], int] = {}
        self._free = count(last + 1)
        self.json = {**self._converted(json.loads(schema), ()), "schema-id": 0}
        self.last = next(self._free)

    def _converted(self, kind: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401
        if isinstance(kind, str):
            return {"integer": "int", "timestamp": "timestamptz"}.get(kind, kind)
        if kind["type"] == "struct":
            return {
                "type": "struct",
                "fields": [self._field(each, path) for each in kind["fields"]],
            }
        found: dict[str, Any] = {"type": {"array": "list"}.get(kind["type"], kind["type"])}
        for step in ["element"] if kind["type"] == "array" else ["key", "value"]:
            name = (*path, step)
            self.ids[name] = found[f"{step}-id"] = next(self._free)
            found[step] = self._converted(kind[f"{step}Type"], name)
            if step != "key":
                found[f"{step}-required"] = False
        return found

    def _field(self, each: Any, path: tuple[str, ...]) -> dict[str, Any]:  # noqa: ANN401
        name = (*path, each["metadata"]["delta.columnMapping.physicalName"])
        self.ids[name] = number = each["metadata"]["delta.columnMapping.id"]
        kind = self._converted(each["type"], name)
        return {"id": number, "name": each["name"], "required": False, "type": kind}


class Source:
    """A table of delta-spark and the files that its copies shall be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        snapshot = DeltaTable.for_path(None, path).snapshot()
        self.files = snapshot.files
        last = int(snapshot.metadata.configuration["delta.columnMapping.maxColumnId"])
        self.target = Target(snapshot.metadata.schema_string, last)
        self.names = [str(name) for name in self.files.paths.to_pylist()]

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
    return Source(path)


def as_iceberg_table(
    spark: SparkSession, name: str, target: Target, files: Sequence[tuple[str, int, int]]
) -> Any:  # noqa: ANN401
    """Make an Iceberg table of files that are there already, with given field ids."""
    iceberg = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "lake")
    table = catalog.createTable(
        iceberg.catalog.TableIdentifier.parse(f"copies.{name}"),
        iceberg.Schema(spark._jvm.java.util.ArrayList()),  # type: ignore[union-attr]
    )
    operations = table.operations()
    base = operations.current()
    schema = iceberg.SchemaParser.fromJson(json.dumps(target.json))
    changed = iceberg.TableMetadata.buildFrom(base).setCurrentSchema(schema, target.last)
    operations.commit(base, changed.build())
    table.refresh()
    append = table.newAppend()
    for path, size, rows in files:
        file = iceberg.DataFiles.builder(table.spec()).withPath(path).withFormat("parquet")
        append.appendFile(file.withFileSizeInBytes(size).withRecordCount(rows).build())
    append.commit()
    return table


def placed(rows: Sequence[Any]) -> dict[tuple[str, int], str]:
    """Give rows as texts by file and position, which are their first two columns."""
    found = {(row[0].rpartition("/")[2], row[1]): repr(row[2:]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.slow
def test_iceberg_reads_the_copies_and_not_the_files_of_delta_spark(
    spark: SparkSession, source: Source, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    storage = Storage.open(source.path)
    counts = source.files.row_counts.to_pylist()
    assert files_to_copy(storage, source.files, source.target.ids).all()
    assert files_to_copy(storage, source.files).all()
    mode = request.node.callspec.params["source"]

    plain = [
        (spark_path(str(source.path), name), size, rows)
        for name, size, rows in zip(source.names, source.files.sizes.tolist(), counts, strict=True)
    ]
    as_iceberg_table(spark, f"plain_{mode}", source.target, plain)
    with pytest.raises((PySparkException, Py4JJavaError), match="is not in the store"):
        spark.table(f"lake.copies.plain_{mode}").select("numbers").collect()

    pairs = source.pairs(tmp_path / "copies")
    sizes = write_copies(spark, pairs, source.target.ids)
    copies = [Path(target.removeprefix("file:")) for _, target in pairs]
    assert sizes.tolist() == [copy.stat().st_size for copy in copies]
    files = [
        (target, size, rows)
        for (_, target), size, rows in zip(pairs, sizes.tolist(), counts, strict=True)
    ]
    table = as_iceberg_table(spark, f"copied_{mode}", source.target, files)

    expected = as_delta_spark_reads(spark, source.path)
    wanted = expected.select("_metadata.file_name", "_metadata.row_index", "*").collect()
    found = spark.table(f"lake.copies.copied_{mode}").select("_file", "_pos", "*").collect()
    assert len(found) == 3000
    assert placed(found) == placed(wanted)
    # Through the dictionaries, indexes and bloom filters that the copy brings along.
    for condition in ("id = 777", "amount = 100.125", "day < DATE'1969-12-03'"):
        rows = spark.table(f"lake.copies.copied_{mode}").where(condition)
        assert rows.count() == expected.where(condition).count() > 0

    read = StaticTable.from_metadata(table.operations().current().metadataFileLocation())
    # PyIceberg 0.12 goes by names, not by ids, for structs of a list in a list or in a map.
    chosen = [name for name in expected.columns if name != "mixed"]
    by_pyiceberg = read.scan(selected_fields=tuple(chosen)).to_arrow().select(chosen)
    by_spark = expected.select(chosen).toArrow()
    assert texts(by_pyiceberg) == texts(by_spark)


@pytest.mark.slow
def test_columns_that_were_dropped_need_no_copy(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id INT, l ARRAY<INT>, s STRUCT<a: INT, l: ARRAY<INT>>, m MAP<STRING, STRUCT<x: INT>>"
    path = tmp_path / "t"
    create(spark, path, columns, properties={"delta.columnMapping.mode": "name"})
    row = "1, array(2), named_struct('a', 3, 'l', array(4)), map('k', named_struct('x', 5))"
    sql(
        spark,
        path,
        f"INSERT INTO {{T}} SELECT {row}",
        "ALTER TABLE {T} DROP COLUMNS (l, s.l, m)",
        "ALTER TABLE {T} RENAME COLUMN id TO number",
        "ALTER TABLE {T} ADD COLUMN l ARRAY<STRING>",
        "INSERT INTO {T} SELECT 6, named_struct('a', 7), array('x', NULL)",
    )
    source = Source(path)
    chosen = files_to_copy(Storage.open(path), source.files, source.target.ids)
    added = [pq.read_metadata(path / name).num_columns == 3 for name in source.names]
    assert chosen.tolist() == added
    assert sorted(added) == [False, True]
    pairs = source.pairs(tmp_path / "copies")
    files = [
        (target, copy_with_ids(spark, place, target, source.target.ids), 1)
        if copied
        else (place, (path / name).stat().st_size, 1)
        for name, copied, (place, target) in zip(source.names, added, pairs, strict=True)
    ]
    as_iceberg_table(spark, "dropped", source.target, files)
    found = spark.table("lake.copies.dropped").collect()
    assert sorted(found) == sorted(as_delta_spark_reads(spark, path).collect())


@pytest.mark.slow
def test_lists_in_the_old_form_of_spark_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = "id INT, l ARRAY<INT>, ls ARRAY<STRUCT<x: INT>>, m MAP<STRING, ARRAY<STRING>>"
    create(spark, path, columns, properties={"delta.columnMapping.mode": "name"})
    row = "1, array(2, NULL), array(named_struct('x', 3)), map('k', array('v', NULL))"
    with settings_of(spark, {"spark.sql.parquet.writeLegacyFormat": "true"}):
        sql(spark, path, f"INSERT INTO {{T}} SELECT {row}")
    source = Source(path)
    assert "bag" in str(pq.read_metadata(path / source.names[0]).schema)
    pairs = source.pairs(tmp_path / "copies")
    sizes = write_copies(spark, pairs, source.target.ids)
    as_iceberg_table(spark, "old_form", source.target, [(pairs[0][1], int(sizes[0]), 1)])
    expected = as_delta_spark_reads(spark, path).collect()
    assert spark.table("lake.copies.old_form").collect() == expected


def texts(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def footer_of(file: bytes) -> bytes:
    return read_footer(lambda start, length: file[start : start + length], len(file), "f")


def test_the_copy_has_the_same_bytes_and_another_schema(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    write_copies(spark, source.pairs(tmp_path), source.target.ids)
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
    size = copy_with_ids(spark, *pair, source.target.ids)
    before = copy.stat()
    assert copy_with_ids(spark, *pair, source.target.ids) == size == before.st_size
    assert (copy.stat().st_mtime_ns, copy.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert {each.name for each in tmp_path.iterdir()} == {copy.name, f".{copy.name}.crc"}

    others = {
        name: number + 1000 * (name[-1] == "element") for name, number in source.target.ids.items()
    }
    with pytest.raises(ObjectExistsError, match="another file has the name of a copy"):
        copy_with_ids(spark, *pair, others)
    assert copy.stat().st_ino == before.st_ino


@pytest.mark.slow
def test_a_failure_names_the_file_and_leaves_nothing(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    folder = tmp_path / "copies"
    ids = source.target.ids
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
        copy_with_ids(spark, *pair, source.target.ids)
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
        copy_with_ids(spark, f"file:{tmp_path}/s.parquet", f"file:{tmp_path}/x", source.target.ids)
    assert not (tmp_path / "x").exists()
