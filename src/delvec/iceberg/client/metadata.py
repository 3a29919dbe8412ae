"""Iceberg's table metadata, parsed once from its JSON; snapshots by branch, tag, id or time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from delvec.documents import parse_json, shown_time, time_ms, whole_number
from delvec.errors import FormatError, InvalidArgumentError
from delvec.report.format import did_you_mean
from delvec.report.hints import Wording

MAIN: Final = "main"
NO_SNAPSHOT: Final = -1
"""Iceberg's id for a snapshot that is not there."""
_DAMAGED: Final = (
    "the metadata file is damaged or forged: register the table again, from an earlier"
    " metadata file"
)


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

    def count(self, key: str) -> int | None:
        """Return a count of the summary; None if it has none that is one."""
        return whole_number(self.summary.get(key))

    @property
    def deleted_rows(self) -> int:
        """Rows that position deletes and vectors delete, by the summary."""
        return self.count("total-position-deletes") or 0

    @property
    def live_rows(self) -> int:
        """Rows that are left, by the summary; equality deletes are not counted."""
        return (self.count("total-records") or 0) - self.deleted_rows

    @property
    def data_file_count(self) -> int | None:
        """Data files, by the summary; None if it has no total."""
        return self.count("total-data-files")


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
        files: The files of metadata that it refers to, itself included: earlier metadata files,
            manifest lists and statistics. Manifests are named by the manifest lists.
        logged_since_ms: When the oldest of these metadata files was written: the metadata files of
            all later commits are among `files`.
        file: The metadata file; None if the catalog does not tell.
        earlier: The metadata files before it, as far as they are logged.
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
    updated_ms: int = 0
    file: str | None = None
    earlier: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, metadata: str, location: str | None = None) -> TableMetadata:
        """Parse the result of `TableMetadataParser.toJson`.

        Iceberg's parser has seen to the types, and that refs point to snapshots.
        """
        value = parse_json(metadata, "the metadata of the table", path=location)
        schemas = {schema["schema-id"]: schema for schema in value["schemas"]}
        specs = {spec["spec-id"]: spec for spec in value["partition-specs"]}
        snapshots = {each["snapshot-id"]: _snapshot(each) for each in value.get("snapshots", [])}
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
        _require_ends(snapshots, location)
        if value["default-spec-id"] not in specs:
            raise FormatError(
                f"there is no partition spec {value['default-spec-id']}, which is the default",
                path=location,
                hint=_DAMAGED,
            )
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
            snapshots,
            refs,
            frozenset(_files(value)) | ({location} if location else set()),
            min((each["timestamp-ms"] for each in log), default=value.get("last-updated-ms", 0)),
            tuple(_statistics(each) for each in value.get("statistics", [])),
            value.get("last-updated-ms", 0),
            location,
            tuple(each["metadata-file"] for each in log),
        )

    def statistics_of_files(self, name: str) -> dict[str, tuple[str, int]]:
        """Return path and size of the statistics file with a blob about a file, by that file."""
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
        """
        last: IcebergSnapshot | None = None
        for last in self.ancestors(ref):
            if last.id == snapshot_id:
                return True
            if last.sequence_number <= sequence_number:
                return False
        return False if last is None or last.parent_id is None else None


def _require_ends(snapshots: Mapping[int, IcebergSnapshot], location: str | None) -> None:
    """Refuse snapshots that come from themselves: no walk over them would end."""
    ended: set[int] = set()
    for start in snapshots:
        walked: set[int] = set()
        at: int | None = start
        while at is not None and at in snapshots and at not in ended:
            if at in walked:
                raise FormatError(
                    f"snapshot {at} is among its own ancestors", path=location, hint=_DAMAGED
                )
            walked.add(at)
            at = snapshots[at].parent_id
        ended |= walked


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


_LISTED: Final = 8


def find_snapshot(
    metadata: TableMetadata,
    table: str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: int | None = None,
    timestamp: datetime | str | None = None,
    time_zone: str = "UTC",
) -> IcebergSnapshot | None:
    """Return the snapshot that the arguments of a read name; None for an empty `main`."""
    given = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id, "timestamp": timestamp}
    named = [key for key, value in given.items() if value is not None]
    if len(named) > 1 and set(named) != {"branch", "timestamp"}:
        raise InvalidArgumentError(
            f"{' and '.join(named)} name a snapshot of {table} twice",
            hint="give one of them; timestamp may go with branch",
        )
    if snapshot_id is not None:
        if snapshot_id not in metadata.snapshots:
            raise InvalidArgumentError(
                f"{table} has no snapshot {snapshot_id}",
                hint=Wording(
                    "it may have expired; snapshots() lists those that there are",
                    "it may have expired; `delvec history` lists those of a branch",
                ),
            )
        return metadata.snapshots[snapshot_id]
    if tag is not None:
        require_ref(metadata, table, tag, is_branch=False)
        return metadata.head(tag)
    if timestamp is not None:
        return version_at(metadata, table, branch or MAIN, time_ms(timestamp, time_zone))
    return branch_head(metadata, table, branch or MAIN)


def branch_head(metadata: TableMetadata, table: str, branch: str) -> IcebergSnapshot | None:
    """Return the newest snapshot of a branch; None for `main` of a table without any."""
    if branch == MAIN and MAIN not in metadata.refs:
        return None
    require_ref(metadata, table, branch, is_branch=True)
    return metadata.head(branch)


def version_at(metadata: TableMetadata, table: str, branch: str, moment_ms: int) -> IcebergSnapshot:
    """Return the newest snapshot of a branch that was committed at a time or before.

    Only snapshots that the branch still consists of count, not those that were rolled back.
    """
    branch_head(metadata, table, branch)
    oldest: IcebergSnapshot | None = None
    for snapshot in metadata.ancestors(branch):
        if snapshot.timestamp_ms <= moment_ms:
            return snapshot
        oldest = snapshot
    since = f"goes back to {shown_time(oldest.timestamp_ms)}" if oldest else "has no snapshots"
    raise InvalidArgumentError(
        f"branch {branch} of {table} has no snapshot as old as {shown_time(moment_ms)}: it {since}"
    )


def require_ref(metadata: TableMetadata, table: str, name: str, *, is_branch: bool) -> None:
    kind, other = ("branch", "tag") if is_branch else ("tag", "branch")
    found = metadata.refs.get(name)
    if found is None:
        names = [each for each, ref in metadata.refs.items() if ref.is_branch == is_branch]
        raise InvalidArgumentError(
            f"{table} has no {kind} {name!r}", hint=suggest_name(name, names, kind)
        )
    if found.is_branch != is_branch:
        raise InvalidArgumentError(f"{name!r} of {table} is a {other}, not a {kind}")


def suggest_name(name: str, names: Iterable[str], kind: str) -> str:
    """Return a hint: the name that was meant, or those that there are.

    >>> suggest_name("mian", ["main", "audit"], "branch"), suggest_name("x", [], "tag")
    ('did you mean main?', 'there is no tag')
    """
    known = sorted(names)
    if meant := did_you_mean(name, known, 1):
        return meant
    if not known:
        return f"there is no {kind}"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"there is {', '.join(known[:_LISTED])}{more}"
