"""The files of a table, as its manifests have them: those of one snapshot, or of any.

Data files and delete files of a snapshot in columns, delete files as plain data, and which files
the table refers to at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.documents import parse_json
from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import SEPARATOR, key_scans
from delvec.spark import expressions, jvm

_MOST_IN_CONDITION: Final = 500  # paths in one IN condition; more are joined
_COLUMNS: Final = (
    "content",
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
_DATA: Final = 0  # the `content` of a data file
VECTOR_SUFFIX: Final = "-edv.puffin"
"""How the names of files with an equality delete vector end; no other writer's files do."""
# Metadata tables over all snapshots, and the column of paths of each.
_TABLES: Final = {"ALL_FILES": "file_path", "ALL_MANIFESTS": "path"}


@dataclass(frozen=True, eq=False)
class SnapshotFiles:
    """The live files of a snapshot, in columns.

    Attributes:
        data: Path, physical row count (`record_count`) and size of each data file.
        deletes: Each delete file: its data file, where its vector is, and how many rows it deletes
            (`record_count`).
    """

    data: pa.Table
    deletes: pa.Table


def snapshot_files(
    table: LoadedTable,
    snapshot_id: int,
    paths: pa.Array | None = None,
    compared_by: Callable[[Column], Column] | None = None,
) -> SnapshotFiles:
    """Return the data files and delete files of a snapshot, by one Spark query."""
    with translate_errors(str(table.name)):
        found = _as_of(table, f"{table.name}.files", snapshot_id).select(*_COLUMNS)
        if paths is not None:
            found = _restricted(found, paths, compared_by)
        files = found.toArrow()
    is_data = pc.equal(files.column("content"), _DATA)
    return SnapshotFiles(files.filter(is_data), files.filter(pc.invert(is_data)))


def snapshot_rows(table: LoadedTable, snapshot_id: int) -> DataFrame:
    """Return the rows of a snapshot of any branch, in the schema of that snapshot."""
    with translate_errors(str(table.name)):
        return _as_of(table, str(table.name), snapshot_id)


def snapshot_table(table: LoadedTable, kind: str, snapshot_id: int) -> DataFrame:
    """Return a metadata table of a snapshot, such as `files` or `entries`; lazy."""
    with translate_errors(str(table.name)):
        return _as_of(table, f"{table.name}.{kind}", snapshot_id)


@dataclass(frozen=True)
class EqualityDeleteFile:
    """A file of deleted keys, as its manifest describes it.

    Attributes:
        file_format: As the manifest says; equality delete vectors are labelled `parquet`.
        partition_json: The JSON array of its partition values.
        sequence_number: Its data sequence number; it applies to data files of lower ones.
        null_counts: By field id.
        lower: Lower bounds in Iceberg's binary form, by field id.
        upper: Upper bounds.
    """

    path: str
    file_format: str
    spec_id: int
    partition_json: str
    equality_ids: tuple[int, ...]
    record_count: int
    size: int
    sequence_number: int
    null_counts: Mapping[int, int] = field(default_factory=dict)
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def is_vector(self) -> bool:
        """Whether it holds an equality delete vector instead of rows of keys."""
        return self.path.endswith(VECTOR_SUFFIX)


def equality_deletes(table: LoadedTable, snapshot_id: int) -> tuple[EqualityDeleteFile, ...]:
    """Return the live equality-delete files of a snapshot.

    The driver reads its delete manifests, and holds about 1 kB for each file.
    """
    with translate_errors(str(table.name)):
        found = key_scans(table.spark).equalityDeletes(table.handle, snapshot_id)
    parts = found.split(SEPARATOR)
    return tuple(
        from_content_file(text, int(number))
        for number, text in zip(parts[0:-1:2], parts[1:-1:2], strict=True)
    )


def from_content_file(text: str, sequence_number: int) -> EqualityDeleteFile:
    """Parse the JSON object of Iceberg's `ContentFileParser`."""
    value = parse_json(text, "the entry of a delete file")
    return EqualityDeleteFile(
        value["file-path"],
        value["file-format"].lower(),
        value["spec-id"],
        json.dumps(value.get("partition", [])),
        tuple(value.get("equality-ids", ())),
        value["record-count"],
        value["file-size-in-bytes"],
        sequence_number,
        values_by_id(value, "null-value-counts"),
        {key: bytes.fromhex(each) for key, each in values_by_id(value, "lower-bounds").items()},
        {key: bytes.fromhex(each) for key, each in values_by_id(value, "upper-bounds").items()},
    )


@dataclass(frozen=True)
class PositionDeleteFile:
    """A deletion vector in a Puffin file, or a position-delete file.

    Attributes:
        record_count: Rows that it deletes, in all data files.
        span: Offset and length of a vector in its file; None for a position-delete file.
        is_file_scoped: Whether it is about a single data file.
    """

    path: str
    file_format: str
    record_count: int
    span: tuple[int, int] | None
    is_file_scoped: bool

    @property
    def key(self) -> str:
        """Its name in `RowChange.removed_deletes`."""
        return self.path if self.span is None else f"{self.path}@{self.span[0]}"


@dataclass(frozen=True)
class DataFileWithDeletes:
    """A data file and the position deletes that apply to it.

    Attributes:
        path: As the manifest has it.
        row_count: Physical rows, deleted ones included.
        partition_json: The JSON array of its partition values.
        deletes: One vector, or any number of position-delete files.
    """

    path: str
    row_count: int
    spec_id: int
    partition_json: str
    deletes: tuple[PositionDeleteFile, ...]


def find_position_deletes(
    table: LoadedTable, snapshot_id: int, paths: Iterable[str], *, require: bool = True
) -> Mapping[str, DataFileWithDeletes]:
    """Return data files of a snapshot by path, with their position deletes.

    Iceberg's planner assigns these by partition, sequence number and bounds. It reads the manifests
    on the driver, which then holds about 1 kB for each wanted file.
    """
    wanted = list(paths)
    if not wanted:
        return {}
    with translate_errors(str(table.name)):
        java = jvm.load_java(table.spark, "delvec.iceberg.client", "PositionDeletes")
        text = java.find(_pinned(table), snapshot_id, SEPARATOR.join(wanted))
    found = {each.path: each for each in _parsed(iter(text.split(SEPARATOR)[:-1]))}
    missing = [path for path in wanted if path not in found]
    if missing and require:
        raise PlanError(
            f"{missing[0]} is not a data file of snapshot {snapshot_id} of {table.name}",
            hint="was the table changed since the plan was made? Make it again",
        )
    return found


def referenced_names(table: LoadedTable, names: pa.Array) -> pa.Array:
    """Return those of some file names that the table refers to in any snapshot, branch or tag.

    Names are compared without their folders: the same file may be spelt `s3://` or `s3a://`,
    `/lake` or `file:/lake`, and a live file must never seem unreferenced. Names of Iceberg's and
    delvec's files contain random ids, so hardly any other file has the same.

    Spark reads the manifest list of each snapshot and each manifest once, in its tasks; memory in
    Python grows with the names that are asked for.
    """
    if not len(names):
        return names
    spark = table.spark
    metadata = pa.array(table.metadata.file_names, pa.string())
    with translate_errors(str(table.name)):
        wanted = spark.createDataFrame(pa.table({"name": names}))
        files, manifests = (
            _metadata_table(table, kind).select(F.substring_index(path, "/", -1).alias("name"))
            for kind, path in _TABLES.items()
        )
        named = files.union(manifests)
        content = named.join(wanted, "name", "left_semi").distinct().toArrow()["name"]
    held = pa.concat_arrays([metadata, *(each.cast(pa.string()) for each in content.chunks)])
    return names.filter(pc.is_in(names, value_set=held))


def listed_paths(table: LoadedTable, kind: str) -> list[str]:
    """Return the paths of ALL_FILES or ALL_MANIFESTS that any snapshot names, each once."""
    named = _metadata_table(table, kind).select(F.col(_TABLES[kind]).alias("path")).distinct()
    return sorted(named.toArrow()["path"].to_pylist())


def _as_of(table: LoadedTable, relation: str, snapshot_id: int) -> DataFrame:
    table.spark.catalog.refreshTable(str(table.name))
    query = f"SELECT * FROM {relation} VERSION AS OF {snapshot_id:d}"  # noqa: S608
    return expressions.run(table.spark, query)


def _restricted(
    found: DataFrame, wanted: pa.Array, compared_by: Callable[[Column], Column] | None
) -> DataFrame:
    # The data file that an entry is about; null for a delete file of several data files.
    data_path = F.when(F.col("content") == _DATA, F.col("file_path")).otherwise(
        F.col("referenced_data_file")
    )
    if compared_by is not None:
        data_path = compared_by(data_path)
    if len(wanted) <= _MOST_IN_CONDITION:
        return found.where(data_path.isin(wanted.to_pylist()))
    names = found.sparkSession.createDataFrame(pa.table({"name": wanted.cast(pa.string())}))
    return found.join(F.broadcast(names), data_path == F.col("name"), "left_semi")


def values_by_id(value: Mapping[str, Any], name: str) -> dict[int, Any]:
    """Return a map of a file's entry; empty for one that is not there."""
    found = value.get(name)
    return {} if not found else dict(zip(found["keys"], found["values"], strict=True))


def _parsed(parts: Iterator[str]) -> Iterator[DataFileWithDeletes]:
    for part in parts:
        data = parse_json(part, "the entry of a data file")
        count = int(next(parts))
        deletes = tuple(_delete_file(next(parts), next(parts)) for _ in range(count))
        yield DataFileWithDeletes(
            data["file-path"],
            data["record-count"],
            data["spec-id"],
            json.dumps(data.get("partition", [])),
            deletes,
        )


def _delete_file(text: str, is_file_scoped: str) -> PositionDeleteFile:
    value = parse_json(text, "the entry of a delete file")
    offset = value.get("content-offset")
    span = None if offset is None else (offset, value["content-size-in-bytes"])
    return PositionDeleteFile(
        value["file-path"],
        value["file-format"].lower(),
        value["record-count"],
        span,
        is_file_scoped == "true",
    )


def _metadata_table(table: LoadedTable, kind: str) -> DataFrame:
    """Return a metadata table of the table as it was loaded, not of what came later."""
    spark, view = table.spark, iceberg_view(table.spark)
    session: Any = jvm.session_of(spark)
    which = getattr(view.MetadataTableType, kind)
    found = view.spark.SparkTableUtil.loadMetadataTable(session, _pinned(table), which)
    return DataFrame(found, spark)


def _pinned(table: LoadedTable) -> Any:  # noqa: ANN401
    """Return Iceberg's table with exactly the metadata that was loaded."""
    view = iceberg_view(table.spark)
    operations = view.StaticTableOperations(table.current, table.handle.io())
    return view.BaseTable(operations, str(table.name))
