"""Iceberg's table metadata, parsed once from its JSON, so that a lookup costs no call to Java."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delvec.documents import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MAIN", "NO_SNAPSHOT", "IcebergSnapshot", "Ref", "StatisticsFile", "TableMetadata"]

MAIN: Final = "main"
NO_SNAPSHOT: Final = -1
"""Iceberg's id for a snapshot that is not there."""


@dataclass(frozen=True)
class IcebergSnapshot:
    """A snapshot, without its files."""

    id: int
    parent_id: int | None
    timestamp_ms: int
    summary: Mapping[str, str]
    schema_id: int | None
    sequence_number: int = 0

    @property
    def operation(self) -> str | None:
        """The kind of commit: append, delete, overwrite or replace."""
        return self.summary.get("operation")

    @property
    def deleted_rows(self) -> int:
        """Rows that position deletes and vectors delete, by the summary."""
        return int(self.summary.get("total-position-deletes", 0))

    @property
    def live_rows(self) -> int:
        """Rows that are left, by the summary; equality deletes are not counted."""
        return int(self.summary.get("total-records", 0)) - self.deleted_rows

    @property
    def data_file_count(self) -> int | None:
        """Data files, by the summary; None if it has no total."""
        found = self.summary.get("total-data-files")
        return None if found is None else int(found)


@dataclass(frozen=True)
class Ref:
    """A branch or a tag.

    Attributes:
        min_snapshots: How many snapshots of the branch are to be kept, if that is set for it.
        max_age_ms: The age up to which they are to be kept, if that is set for it.
    """

    snapshot_id: int
    is_branch: bool
    min_snapshots: int | None = None
    max_age_ms: int | None = None


@dataclass(frozen=True)
class StatisticsFile:
    """A statistics file of a snapshot; the properties of its blobs."""

    path: str
    size: int
    blobs: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class TableMetadata:
    """The metadata of a table; takes about 1 kB of memory for each snapshot.

    Attributes:
        schema: The current schema, in Iceberg's JSON form.
        schemas: All schemas by id, those of older snapshots included.
        spec: The default partition spec, in Iceberg's JSON form.
        specs: All partition specs by id.
        files: The files of metadata that it refers to, itself included: earlier metadata files,
            manifest lists and statistics. Manifests are named by the manifest lists.
        logged_since_ms: When the oldest of these metadata files was written: the metadata files of
            all later commits are among `files`.
        statistics: The statistics files of all snapshots.
    """

    uuid: str
    location: str
    format_version: int
    properties: Mapping[str, str]
    schema: Mapping[str, Any]
    schemas: Mapping[int, Mapping[str, Any]]
    last_column_id: int
    spec: Mapping[str, Any]
    specs: Mapping[int, Mapping[str, Any]]
    snapshots: Mapping[int, IcebergSnapshot]
    refs: Mapping[str, Ref]
    files: frozenset[str] = frozenset()
    logged_since_ms: int = 0
    statistics: tuple[StatisticsFile, ...] = ()

    @classmethod
    def from_json(cls, metadata: str, location: str | None = None) -> TableMetadata:
        """Parse the result of `TableMetadataParser.toJson`.

        Args:
            metadata: The JSON document.
            location: The file that holds it; None if it was not committed.
        """
        value = parse_json(metadata, "the metadata of the table", path=location)
        schemas = {schema["schema-id"]: schema for schema in value["schemas"]}
        specs = {spec["spec-id"]: spec for spec in value["partition-specs"]}
        log = value.get("metadata-log", [])
        refs = {
            name: Ref(
                ref["snapshot-id"],
                ref["type"] == "branch",
                ref.get("min-snapshots-to-keep"),
                ref.get("max-snapshot-age-ms"),
            )
            for name, ref in value.get("refs", {}).items()
        }
        return cls(
            value["table-uuid"],
            value["location"],
            value["format-version"],
            value.get("properties", {}),
            schemas[value["current-schema-id"]],
            schemas,
            value["last-column-id"],
            specs[value["default-spec-id"]],
            specs,
            {each["snapshot-id"]: _snapshot(each) for each in value.get("snapshots", [])},
            refs,
            frozenset(_files(value)) | ({location} if location else set()),
            min((each["timestamp-ms"] for each in log), default=value.get("last-updated-ms", 0)),
            tuple(_statistics(each) for each in value.get("statistics", [])),
        )

    def statistics_of_files(self, name: str) -> dict[str, tuple[str, int]]:
        """Return path and size of the statistics file that has a blob about a file, by that file.

        Args:
            name: The property of the blob that names the file.
        """
        return {
            blob[name]: (each.path, each.size)
            for each in self.statistics
            for blob in each.blobs
            if name in blob
        }

    @property
    def file_names(self) -> set[str]:
        """The names of `files`, without folders."""
        return {path.rpartition("/")[2] for path in self.files}

    def head(self, ref: str = MAIN) -> IcebergSnapshot | None:
        """Return the snapshot that a ref points to; None if there is no such ref."""
        found = self.refs.get(ref)
        return None if found is None else self.snapshots[found.snapshot_id]

    def ancestors(self, ref: str = MAIN) -> Iterator[IcebergSnapshot]:
        """Yield the snapshots of a branch, newest first, as far back as they are retained."""
        snapshot = self.head(ref)
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_id
            snapshot = None if parent is None else self.snapshots.get(parent)

    def is_ancestor(self, ref: str, sequence_number: int, snapshot_id: int) -> bool | None:
        """Tell whether a branch comes from a snapshot; None if that cannot be told any more.

        Snapshots between the two may have expired, while others, of tags and of other branches, are
        retained. A snapshot that is not met before an older one is none of its ancestors.

        Args:
            ref: The branch.
            sequence_number: That of the snapshot.
            snapshot_id: The snapshot, which need not be retained.
        """
        last: IcebergSnapshot | None = None
        for last in self.ancestors(ref):
            if last.id == snapshot_id:
                return True
            if last.sequence_number <= sequence_number:
                return False
        return False if last is None or last.parent_id is None else None


def _files(value: Mapping[str, Any]) -> Iterator[str]:
    for key, name in (
        ("metadata-log", "metadata-file"),
        ("snapshots", "manifest-list"),
        ("statistics", "statistics-path"),
        ("partition-statistics", "statistics-path"),
    ):
        # Snapshots of format 1 may name their manifests instead of a list.
        yield from (each[name] for each in value.get(key, []) if name in each)


def _statistics(value: Mapping[str, Any]) -> StatisticsFile:
    blobs = tuple(each.get("properties", {}) for each in value.get("blob-metadata", []))
    return StatisticsFile(value["statistics-path"], value.get("file-size-in-bytes", 0), blobs)


def _snapshot(value: Mapping[str, Any]) -> IcebergSnapshot:
    parent = value.get("parent-snapshot-id", NO_SNAPSHOT)
    return IcebergSnapshot(
        value["snapshot-id"],
        None if parent == NO_SNAPSHOT else parent,
        value["timestamp-ms"],
        value.get("summary", {}),
        value.get("schema-id"),
        value.get("sequence-number", 0),
    )
