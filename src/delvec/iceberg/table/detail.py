"""What an Iceberg table is made of at one snapshot: its live files, and what they sum up to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructType

from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import VECTOR_SUFFIX
from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata
from delvec.iceberg.commit.marks import staging_branches
from delvec.iceberg.deletes.key_columns import key_paths
from delvec.report.format import format_count, format_counts, format_size
from delvec.report.rendering import Line, Rendered, doc, documented, required, summary
from delvec.spark import expressions

CONTENTS: Final = (
    "data",
    "deletion-vector",
    "position-deletes",
    "equality-deletes",
    "equality-delete-vector",
)
"""The values of the column `content`."""
_DATA: Final = 0
_POSITIONS: Final = 1
_FILE_PATH: Final = 2147483546  # the field id of this column of position delete files
_DELETED: Final = 2  # the status of an entry of a file that its snapshot removed
_PARTITION: Final = MapType(StringType(), StringType())


@documented()
class IcebergDetail(Rendered):
    """The facts of one snapshot of a table."""

    name: str = required("The full name of the table.")
    location: str = required("Where it is.")
    uuid: str = required("Its UUID.")
    format_version: int = required("The version of Iceberg's format.")
    snapshot_id: int | None = required("The snapshot described; None if the table has none.")
    committed_ms: int | None = required("When that was committed, in milliseconds since 1970.")
    partition_by: tuple[str, ...] = required("The default partition spec, such as `day(ts)`.")
    identifier_fields: tuple[str, ...] = required("The columns that identify a row, by the schema.")
    properties: Mapping[str, str] = required("The table properties.")
    branches: tuple[str, ...] = required("The branches, sorted.")
    staging_branches: tuple[str, ...] = required("Those of them that are staging branches.")
    tags: tuple[str, ...] = required("The tags, sorted.")
    snapshots: int = required("The number of snapshots that are retained.")
    data_files: int = doc("The number of data files.", 0)
    data_bytes: int = doc("Their size.", 0)
    rows: int | None = doc(
        "Live rows; None if there are equality deletes or position delete files.", 0
    )
    records: int = doc("The number of rows in data files, deleted ones included.", 0)
    deletion_vectors: int = doc("The number of deletion vectors.", 0)
    deleted_rows: int = doc("The rows that they delete.", 0)
    position_delete_files: int = doc("The number of position delete files.", 0)
    equality_delete_files: int = doc("The number of ordinary equality delete files.", 0)
    equality_delete_vectors: int = doc("Equality delete vectors that stand for themselves.", 0)
    equality_deletes: int = doc("The keys in both.", 0)
    delete_bytes: int = doc("The size of all deletes.", 0)

    def _lines(self) -> Iterator[Line]:
        snapshot = "no snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        live = "" if self.rows is None else f", {self.rows:,} live"
        deletes = {
            "deletion vector": self.deletion_vectors,
            "position delete file": self.position_delete_files,
            "equality delete file": self.equality_delete_files,
            "equality delete vector": self.equality_delete_vectors,
        }
        written = format_counts(deletes)
        data = f"{format_count(self.data_files, 'file')}, {format_size(self.data_bytes)}"
        return summary(
            f"{self.name}: {snapshot}, format version {self.format_version}",
            {
                "location": self.location,
                "partitions": ", ".join(self.partition_by),
                "key": ", ".join(self.identifier_fields),
                "data": f"{data}, {format_count(self.records, 'row')}{live}",
                "deletes": f"{written}, {format_size(self.delete_bytes)}" if written else "",
                "branches": format_branches(self.branches, self.staging_branches),
                "tags": ", ".join(self.tags),
                "history": format_count(self.snapshots, "snapshot"),
            },
        )


def format_branches(branches: Iterable[str], staging: Collection[str]) -> str:
    """Return the names of branches, those of staging branches with this word."""
    return ", ".join(f"{name} (staging)" if name in staging else name for name in branches)


def detail_of(table: LoadedTable, snapshot: IcebergSnapshot | None) -> IcebergDetail:
    """Return the facts of a snapshot; one Spark job reads its manifests."""
    metadata = table.metadata
    names = column_names(metadata)
    found = _counts(table, snapshot)
    data, vectors, positions, equality, equality_vectors = (found[each] for each in CONTENTS)
    exact = not (positions[0] or equality[0] or equality_vectors[0])
    return IcebergDetail(
        str(table.name),
        metadata.location,
        metadata.uuid,
        metadata.format_version,
        None if snapshot is None else snapshot.id,
        None if snapshot is None else snapshot.timestamp_ms,
        partition_fields(metadata),
        tuple(names[each] for each in metadata.schema.get("identifier-field-ids", ())),
        dict(metadata.properties),
        tuple(sorted(name for name, ref in metadata.refs.items() if ref.is_branch)),
        staging_branches(metadata),
        tuple(sorted(name for name, ref in metadata.refs.items() if not ref.is_branch)),
        len(metadata.snapshots),
        data_files=data[0],
        data_bytes=data[2],
        rows=data[1] - vectors[1] if exact else None,
        records=data[1],
        deletion_vectors=vectors[0],
        deleted_rows=vectors[1],
        position_delete_files=positions[0],
        equality_delete_files=equality[0],
        equality_delete_vectors=equality_vectors[0],
        equality_deletes=equality[1] + equality_vectors[1],
        delete_bytes=sum(found[each][2] for each in CONTENTS[1:]),
    )


def list_files(table: LoadedTable, snapshot_id: int | None) -> DataFrame:
    """Return the files of a snapshot; Spark reads its manifests when the DataFrame is evaluated."""
    spark, name = table.spark, table.name
    with translate_errors(str(name)):
        spark.catalog.refreshTable(str(name))
        at = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id:d}"
        entries = expressions.run(spark, f"SELECT * FROM {name}.entries{at}")  # noqa: S608
        if snapshot_id is None:
            entries = entries.where("false")
        file = F.col("data_file")
        return entries.where(F.col("status") != _DELETED).select(
            _content().alias("content"),
            file.file_path.alias("path"),
            F.lower(file.file_format).alias("format"),
            file.spec_id.alias("spec_id"),
            _partition(entries.schema, table.metadata).alias("partition"),
            file.record_count.alias("rows"),
            # A Puffin file may hold the vectors of many data files.
            F.coalesce(file.content_size_in_bytes, file.file_size_in_bytes).alias("bytes"),
            F.col("sequence_number"),
            _equality_columns(table.metadata).alias("equality_columns"),
            _referenced().alias("referenced_data_file"),
        )


def column_names(metadata: TableMetadata) -> Mapping[int, str]:
    """Return the names of columns by field id: the current ones, else the last of dropped ones."""
    schemas = [*(metadata.schemas[key] for key in sorted(metadata.schemas)), metadata.schema]
    return {
        field_id: ".".join(path)
        for schema in schemas
        for field_id, path in key_paths(schema).items()
    }


def partition_fields(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the fields of the default partition spec, such as `day(ts)`."""
    names = column_names(metadata)
    found = []
    for field in metadata.spec["fields"]:
        source, transform = names.get(field["source-id"], field["name"]), field["transform"]
        found.append(source if transform == "identity" else f"{transform}({source})")
    return tuple(found)


def _counts(
    table: LoadedTable, snapshot: IcebergSnapshot | None
) -> dict[str, tuple[int, int, int]]:
    """Return the number of files, rows and bytes by content."""
    counts = dict.fromkeys(CONTENTS, (0, 0, 0))
    if snapshot is None:
        return counts
    files = list_files(table, snapshot.id)
    with translate_errors(str(table.name)):
        sums = (F.count("*"), F.sum("rows"), F.sum("bytes"))
        rows = files.groupBy("content").agg(*sums).collect()
    return counts | {row[0]: (row[1], row[2], row[3]) for row in rows}


def _content() -> Column:
    file = F.col("data_file")
    is_puffin = F.upper(file.file_format) == "PUFFIN"
    data, vector, positions, equality, equality_vector = CONTENTS
    return (
        F.when(file.content == _DATA, data)
        .when((file.content == _POSITIONS) & is_puffin, vector)
        .when(file.content == _POSITIONS, positions)
        .when(file.file_path.endswith(VECTOR_SUFFIX), equality_vector)
        .otherwise(equality)
    )


def _referenced() -> Column:
    """Return the data file that a delete is of alone, if there is one.

    Position delete files of format 2 need not name it: as Iceberg's readers do, it is taken from
    the bounds of their column `file_path` where both are the same.
    """
    file = F.col("data_file")
    lowest, highest = (bounds[_FILE_PATH] for bounds in (file.lower_bounds, file.upper_bounds))
    is_one = (file.content == _POSITIONS) & (lowest == highest)
    return F.coalesce(file.referenced_data_file, F.when(is_one, lowest.cast("string")))


def _partition(entries: StructType, metadata: TableMetadata) -> Column:
    """Return the partition values by name, as strings; only those that a file's own spec has."""
    known = _children(_children(entries, "data_file"), "partition").names
    found = F.create_map().cast(_PARTITION)
    for spec_id, spec in metadata.specs.items():
        names = [each["name"] for each in spec["fields"] if each["name"] in known]
        pairs = [
            each
            for name in names
            for each in (F.lit(name), F.col("data_file.partition")[name].cast("string"))
        ]
        if pairs:
            found = F.when(F.col("data_file.spec_id") == spec_id, F.create_map(*pairs)).otherwise(
                found
            )
    return found


def _children(schema: StructType, name: str) -> StructType:
    """Return the fields of a struct; none if there is no such column: no spec has fields then."""
    kind = schema[name].dataType if name in schema.names else None
    return kind if isinstance(kind, StructType) else StructType()


def _equality_columns(metadata: TableMetadata) -> Column:
    """Return the names of the columns of equality deletes; null for other files."""
    names = column_names(metadata)
    if not names:
        return F.lit(None).cast("array<string>")
    by_id = F.create_map(*(F.lit(each) for pair in names.items() for each in pair))
    ids = F.col("data_file.equality_ids")
    return F.transform(ids, lambda each: F.coalesce(by_id[each], each.cast("string")))
