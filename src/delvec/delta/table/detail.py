"""The facts of one version of a Delta table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, percent, size, visible
from delvec.report.rendered import Rendered, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.delta.log.snapshot import Snapshot
    from delvec.report.rendered import Line

__all__ = ["TableDetail", "detail_of"]


@dataclass(frozen=True)
class TableDetail(Rendered):
    """The facts of one version of a table.

    Attributes:
        location: The path or URI of the table.
        id: The id in its metadata.
        name: Its name, if it has one.
        description: Its description, if it has one.
        version: The version that is described.
        created_ms: When the table was created, in milliseconds since 1970.
        partition_columns: The partition columns, in order.
        properties: The table properties.
        min_reader_version: The reader version of the protocol.
        min_writer_version: The writer version of the protocol.
        features: The table features that the protocol lists, sorted.
        files: The number of data files.
        bytes: The size of the data files.
        rows: The number of live rows; None if a file has no row count in the log.
        deleted_rows: The number of rows that deletion vectors delete.
        files_with_vectors: The number of data files that have a deletion vector.
    """

    location: str
    id: str | None
    name: str | None
    description: str | None
    version: int
    created_ms: int | None
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    features: tuple[str, ...]
    files: int
    bytes: int
    rows: int | None
    deleted_rows: int
    files_with_vectors: int

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a dictionary that `json.dumps` accepts."""
        return asdict(self)

    def _lines(self) -> Iterator[Line]:
        known = "rows unknown: the log has no statistics of some files"
        rows = known if self.rows is None else counted(self.rows, "live row")
        deleted = ""
        if self.files_with_vectors:
            total = None if self.rows is None else self.rows + self.deleted_rows
            share = "" if total is None else f" ({percent(self.deleted_rows, total)})"
            vectors = counted(self.files_with_vectors, "deletion vector")
            deleted = f"{counted(self.deleted_rows, 'row')}{share} by {vectors}"
        protocol = f"reader {self.min_reader_version}, writer {self.min_writer_version}"
        features = f", features {', '.join(self.features)}" if self.features else ""
        properties = (f"{name}={value}" for name, value in self.properties.items())
        return Summary(
            f"{visible(self.location)}: version {self.version:,}",
            {
                "name": visible(self.name or ""),
                "about": visible(self.description or ""),
                "id": self.id or "",
                "partitions": visible(", ".join(self.partition_columns)),
                "data": f"{counted(self.files, 'file')}, {size(self.bytes)}, {rows}",
                "deleted": deleted,
                "protocol": f"{protocol}{features}",
                "properties": visible(", ".join(properties)),
            },
        ).lines()


def detail_of(snapshot: Snapshot) -> TableDetail:
    """Return the facts of a version; reads the log only."""
    files, metadata, protocol = snapshot.files, snapshot.metadata, snapshot.protocol
    known = not files.row_counts.null_count
    return TableDetail(
        location=snapshot.table,
        id=metadata.id,
        name=metadata.name,
        description=metadata.description,
        version=snapshot.version,
        created_ms=metadata.created_ms,
        partition_columns=metadata.partition_columns,
        properties=dict(metadata.configuration),
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        features=tuple(sorted(protocol.features)),
        files=len(files),
        bytes=int(files.sizes.sum()),
        rows=int(files.live_rows.to_numpy().sum()) if known else None,
        deleted_rows=int(files.deleted_rows.sum()),
        files_with_vectors=int(files.has_vector.sum()),
    )
