"""What the metadata of a target tell: its layout, what others changed of it, and how far it is.

The schema of the last publication is a conversion's own, whatever earlier ones had; the partition
spec never changes, so the first one is. Everything is read from the table's metadata: there is no
other state.

The summaries of snapshots say which version of the source they hold, so a rollback of the target
also resets its progress. It is counted in versions, not in timestamps: two commits in one
millisecond or a clock that went back make no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from delvec.conversion.schema.iceberg_schema import (
    NestedType,
    TargetField,
    TargetSchema,
    full_name,
    name_mapping,
    parse_fields,
    target_schema,
    walk_iceberg,
)
from delvec.conversion.schema.partition_spec import listed_fields
from delvec.documents import parse_json
from delvec.errors import FormatError

if TYPE_CHECKING:
    from delvec.conversion.planning.source_changes import CommitFacts
    from delvec.conversion.planning.target import Target
    from delvec.delta.schema.metadata import Metadata
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

NAME_MAPPING: Final = "schema.name-mapping.default"
SOURCE: Final = "delvec.source"
SOURCE_ID: Final = "delvec.source-table-id"
SOURCE_VERSION: Final = "delvec.source-version"
TIME_ZONE: Final = "delvec.time-zone"
"""The zone in which timestamps without one were read: partition values must stay what they were."""
_TRANSACTION: Final = "delvec.source-transaction-id"
_LONGEST: Final = 1000  # characters of a summary value, which all later metadata files repeat
_FACTS: Final = {
    "delvec.source-timestamp": "timestamp_ms",
    "delvec.source-operation": "operation",
    "delvec.source-operation-parameters": "operation_parameters",
    "delvec.source-user-metadata": "user_metadata",
    "delvec.source-engine": "engine_info",
    _TRANSACTION: "transaction_id",
}
_STAGING: Final = "delvec-convert-"
_STAGED: Final = re.compile(_STAGING + "[0-9a-f]{32}")
_TAG: Final = "delta-version-"
_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True)
class Progress:
    """The newest snapshot of a target that a conversion made."""

    version: int  # of the source
    source: str | None  # where it was then, which determines the paths of data files
    snapshot: IcebergSnapshot
    transaction_id: str | None  # the `txnId` of the source's commit, if it had one
    is_head: bool  # whether it is the current snapshot


def source_id(metadata: Metadata, root: str) -> str:
    """Return what identifies a Delta table: its id, which it keeps when it is moved."""
    return metadata.id or root


def find_progress(target: TableMetadata) -> Progress | None:
    """Return how far the target's main branch is; None if no snapshot records it."""
    owner = target.properties.get(SOURCE_ID)
    for depth, snapshot in enumerate(target.ancestors()):
        version = snapshot.count(SOURCE_VERSION)
        if version is not None and snapshot.summary.get(SOURCE_ID) == owner:
            source, transaction = map(snapshot.summary.get, (SOURCE, _TRANSACTION))
            return Progress(version, source, snapshot, transaction, depth == 0)
    return None


def snapshot_summary(
    facts: CommitFacts, metadata: Metadata, root: str, mode: str
) -> dict[str, str]:
    """Return the summary entries of a snapshot: the version that it holds, and its commit."""
    summary = {
        SOURCE: root,
        SOURCE_ID: source_id(metadata, root),
        SOURCE_VERSION: str(facts.version),
        "delvec.mode": mode,
    }
    for key, name in _FACTS.items():
        value = getattr(facts, name)
        if value is not None:
            summary[key] = str(value)[:_LONGEST]
    return summary


def new_staging_branch() -> str:
    return _STAGING + uuid4().hex


def version_tag(version: int) -> str:
    return f"{_TAG}{version}"


def is_version_tag(metadata: TableMetadata, name: str) -> bool:
    """Tell whether a conversion made a ref: a tag with the version of its snapshot in its name."""
    ref = metadata.refs[name]
    version = metadata.snapshots[ref.snapshot_id].summary.get(SOURCE_VERSION)
    return not ref.is_branch and version is not None and name == f"{_TAG}{version}"


def is_staging_branch(metadata: TableMetadata, name: str) -> bool:
    """Tell whether a conversion made a ref to stage snapshots on, by its name and its head."""
    ref = metadata.refs[name]
    is_ours = SOURCE_ID in metadata.snapshots[ref.snapshot_id].summary
    return ref.is_branch and is_ours and _STAGED.fullmatch(name) is not None


def stale_branches(metadata: TableMetadata, now_ms: int) -> list[str]:
    """Return the staging branches of conversions that died: more than a day old, unpublished."""
    return [
        name
        for name, ref in metadata.refs.items()
        if is_staging_branch(metadata, name)
        and metadata.snapshots[ref.snapshot_id].timestamp_ms < now_ms - _DAY_MS
    ]


@dataclass(frozen=True)
class TargetLayout:
    """Schema, partition spec and name mapping of a target; empty for a new one."""

    schema: Mapping[str, Any] | None = None  # in Iceberg's JSON form, as the spec
    last_column_id: int = 0  # the highest that was ever used
    spec: Mapping[str, Any] | None = None
    mapping: Sequence[Mapping[str, Any]] = ()

    def schema_for(self, source: Metadata, table: str, format_version: int) -> TargetSchema:
        return target_schema(
            source,
            table=table,
            format_version=format_version,
            current=self.schema,
            last_column_id=self.last_column_id,
            mapping=self.mapping,
        )


@dataclass(frozen=True)
class LayoutChanges:
    """What others have changed of a target's layout, in words.

    Lasting are changed types that cannot be taken back: manifests of their partitions have values
    of that type, and are read in the type of the column.
    """

    columns: tuple[str, ...] = ()  # a clause for each that changed
    added: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()  # how it is partitioned, if they changed it
    is_documented: bool = False  # comments or order of columns changed, which no row depends on
    lasting: tuple[str, ...] = ()


def own_layout(target: Target, source: Metadata) -> TargetLayout:
    """Return the layout that the last conversion gave a target, whatever others made of it."""
    if target.table is None:
        return TargetLayout()
    metadata = target.table.metadata
    schema = _own_schema(metadata)
    mapping = current_mapping(metadata.properties)
    if schema is not metadata.schema:
        mapping = list(_only(mapping, _own_ids(metadata)))
    if source.mapping_mode == "none":
        mapping = name_mapping(tuple(map(_by_its_name, parse_fields(schema))), mapping)
    return TargetLayout(schema, metadata.last_column_id, _own_spec(metadata), mapping)


def layout_changes(metadata: TableMetadata) -> LayoutChanges:
    own, spec = _own_schema(metadata), _own_spec(metadata)
    columns: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()
    if own is not metadata.schema:
        before, after = _by_id(own), _by_id(metadata.schema)
        columns = tuple(_column_changes(before, after))
        added = tuple(full_name(path) for path in after.values() if _is_added(path, before))
        lasting = tuple(_lasting_types(metadata, before, after))
    partitions: tuple[str, ...] = ()
    if spec["spec-id"] != metadata.spec["spec-id"]:
        now, then = (
            listed_fields([(field["name"], field["transform"]) for field in each["fields"]])
            for each in (metadata.spec, spec)
        )
        partitions = (f"it is partitioned by {now} and not by {then}",)
    is_documented = own is not metadata.schema and not columns
    return LayoutChanges(columns, added, partitions, is_documented, lasting)


def current_mapping(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the name mapping of a target; none if what others wrote there is no name mapping."""
    try:
        found = parse_json(properties.get(NAME_MAPPING, "[]"), NAME_MAPPING)
    except FormatError:
        return []
    return found if _is_mapping(found) else []


def _is_mapping(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("names"), list)
        and _is_mapping(entry.get("fields", []))
        for entry in value
    )


def _made_by_conversions(metadata: TableMetadata) -> list[IcebergSnapshot]:
    return [
        snapshot
        for snapshot in metadata.snapshots.values()
        if SOURCE_ID in snapshot.summary and snapshot.schema_id in metadata.schemas
    ]


def _own_schema(metadata: TableMetadata) -> Mapping[str, Any]:
    made = _made_by_conversions(metadata)
    progress = find_progress(metadata)
    version = metadata.properties.get(SOURCE_VERSION)
    if progress is not None and str(progress.version) == version:
        last = progress.snapshot
    elif published := [each for each in made if each.summary.get(SOURCE_VERSION) == version]:
        # The target was rolled back, which leaves the schema as it was.
        last = max(published, key=lambda each: each.timestamp_ms)
    elif not made or metadata.schema["schema-id"] in {each.schema_id for each in made}:
        return metadata.schema
    else:
        newest = max(made, key=lambda each: each.timestamp_ms)
        last = newest if progress is None else progress.snapshot
    return metadata.schemas.get(last.schema_id or 0, metadata.schema)


def _own_spec(metadata: TableMetadata) -> Mapping[str, Any]:
    return metadata.specs[min(metadata.specs)]


def _own_ids(metadata: TableMetadata) -> set[int]:
    schemas = {snapshot.schema_id for snapshot in _made_by_conversions(metadata)}
    return {
        number
        for schema_id in schemas
        if schema_id is not None
        for number in _by_id(metadata.schemas[schema_id])
    }


def _only(mapping: Sequence[Mapping[str, Any]], ids: set[int]) -> Iterator[dict[str, Any]]:
    for entry in mapping:
        if entry.get("field-id") in ids:
            inner = list(_only(entry.get("fields", ()), ids))
            yield {**entry, "fields": inner} if inner else {**entry}


def _by_its_name(field: TargetField) -> TargetField:
    kind = field.type
    if isinstance(kind, NestedType):
        kind = NestedType(kind.kind, tuple(map(_by_its_name, kind.fields)))
    return replace(field, type=kind, physical_name=field.name)


def _by_id(schema: Mapping[str, Any]) -> dict[int, tuple[TargetField, ...]]:
    return {path[-1].id: path for path in walk_iceberg(parse_fields(schema))}


def _column_changes(
    before: Mapping[int, tuple[TargetField, ...]], after: Mapping[int, tuple[TargetField, ...]]
) -> Iterator[str]:
    """Yield a clause for each column that differs; of a struct, not of each field in it."""
    for number, path in after.items():
        if number not in before:
            if _is_added(path, before):
                yield f"column {full_name(path)!r} was added"
            continue
        old, new = before[number][-1], path[-1]
        if old.name != new.name:
            yield f"column {full_name(before[number])!r} was renamed to {new.name!r}"
        if not isinstance(new.type, NestedType) and old.type != new.type:
            yield f"column {full_name(path)!r} is {new.type} and was {old.type}"
        if old.required != new.required:
            yield f"column {full_name(path)!r} is {'required' if new.required else 'nullable'} now"
    for path in before.values():
        if _is_added(path, after):
            yield f"column {full_name(path)!r} was dropped"


def _lasting_types(
    metadata: TableMetadata,
    before: Mapping[int, tuple[TargetField, ...]],
    after: Mapping[int, tuple[TargetField, ...]],
) -> Iterator[str]:
    own = _own_spec(metadata)["spec-id"]
    theirs = {
        field.get("source-id")
        for spec in metadata.specs.values()
        if spec["spec-id"] != own
        for field in spec["fields"]
    }
    for number in theirs & before.keys() & after.keys():
        now, then = after[number][-1].type, before[number][-1].type
        if now != then:
            yield f"partitions by {full_name(after[number])!r} have values of {now}, not {then}"


def _is_added(path: tuple[TargetField, ...], before: Mapping[int, tuple[TargetField, ...]]) -> bool:
    """Tell whether a column is not among others, but what contains it is."""
    return path[-1].id not in before and (len(path) == 1 or path[-2].id in before)
