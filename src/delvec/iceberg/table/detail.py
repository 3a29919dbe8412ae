"""The facts of an Iceberg table at one snapshot."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.failures import explained
from delvec.iceberg.commits.marks import staging_branches
from delvec.iceberg.table.files_listing import CONTENTS, column_names, list_files
from delvec.report.figures import counted, size
from delvec.report.rendered import Rendered, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata
    from delvec.report.rendered import Line

__all__ = ["IcebergDetail", "detail_of", "partition_fields"]


@dataclass(frozen=True)
class IcebergDetail(Rendered):
    """The facts of one snapshot of a table.

    Attributes:
        name: The full name of the table.
        location: Where it is.
        uuid: Its UUID.
        format_version: The version of Iceberg's format.
        snapshot_id: The snapshot that is described; None if the table has none.
        committed_ms: When that was committed, in milliseconds since 1970.
        partition_by: The default partition spec, such as `day(ts)`.
        identifier_fields: The columns that identify a row, by the schema.
        properties: The table properties.
        branches: The branches, sorted.
        staging_branches: Those of them that are staging branches of delvec's.
        tags: The tags, sorted.
        snapshots: The number of snapshots that are retained.
        data_files: The number of data files.
        data_bytes: Their size.
        rows: The number of live rows; None if only reading tells, since there are equality deletes
            or position delete files.
        records: The number of rows in data files, deleted ones included.
        deletion_vectors: The number of deletion vectors.
        deleted_rows: The rows that they delete.
        position_delete_files: The number of position delete files.
        equality_delete_files: The number of ordinary equality delete files.
        equality_delete_vectors: The number of equality delete vectors that stand for themselves.
        equality_deletes: The keys in both.
        delete_bytes: The size of all deletes.
    """

    name: str
    location: str
    uuid: str
    format_version: int
    snapshot_id: int | None
    committed_ms: int | None
    partition_by: tuple[str, ...]
    identifier_fields: tuple[str, ...]
    properties: Mapping[str, str]
    branches: tuple[str, ...]
    staging_branches: tuple[str, ...]
    tags: tuple[str, ...]
    snapshots: int
    data_files: int = 0
    data_bytes: int = 0
    rows: int | None = 0
    records: int = 0
    deletion_vectors: int = 0
    deleted_rows: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    equality_delete_vectors: int = 0
    equality_deletes: int = 0
    delete_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a dictionary that `json.dumps` accepts."""
        return asdict(self)

    def _lines(self) -> Iterator[Line]:
        snapshot = "no snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        live = "" if self.rows is None else f", {self.rows:,} live"
        deletes = {
            "deletion vector": self.deletion_vectors,
            "position delete file": self.position_delete_files,
            "equality delete file": self.equality_delete_files,
            "equality delete vector": self.equality_delete_vectors,
        }
        written = [counted(count, noun) for noun, count in deletes.items() if count]
        return Summary(
            f"{self.name}: {snapshot}, format version {self.format_version}",
            {
                "location": self.location,
                "partitions": ", ".join(self.partition_by),
                "key": ", ".join(self.identifier_fields),
                "data": f"{counted(self.data_files, 'file')}, {size(self.data_bytes)},"
                f" {counted(self.records, 'row')}{live}",
                "deletes": f"{', '.join(written)}, {size(self.delete_bytes)}" if written else "",
                "branches": ", ".join(
                    f"{name} (staging)" if name in self.staging_branches else name
                    for name in self.branches
                ),
                "tags": ", ".join(self.tags),
                "history": counted(self.snapshots, "snapshot"),
            },
        ).lines()


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


def _counts(
    table: LoadedTable, snapshot: IcebergSnapshot | None
) -> dict[str, tuple[int, int, int]]:
    """Return the number of files, rows and bytes by content."""
    counts = dict.fromkeys(CONTENTS, (0, 0, 0))
    if snapshot is None:
        return counts
    files = list_files(table, snapshot.id)
    with explained(str(table.name)):
        sums = (F.count("*"), F.sum("rows"), F.sum("bytes"))
        rows = files.groupBy("content").agg(*sums).collect()
    return counts | {row[0]: (row[1], row[2], row[3]) for row in rows}


def partition_fields(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the fields of the default partition spec, such as `day(ts)`."""
    names = column_names(metadata)
    return tuple(_partition_field(each, names) for each in metadata.spec["fields"])


def _partition_field(field: Mapping[str, Any], names: Mapping[int, str]) -> str:
    source = names.get(field["source-id"], field["name"])
    transform = field["transform"]
    return source if transform == "identity" else f"{transform}({source})"
