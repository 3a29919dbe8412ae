"""What Iceberg's table metadata says, parsed once from its JSON: no call to Java per question."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MAIN", "IcebergSnapshot", "Ref", "TableMetadata"]

MAIN: Final = "main"
_NONE: Final = -1


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot, without its files."""

    id: int
    parent_id: int | None
    timestamp_ms: int
    summary: Mapping[str, str]
    schema_id: int | None

    @property
    def operation(self) -> str | None:
        """What kind of commit made it: append, delete, overwrite or replace."""
        return self.summary.get("operation")


@dataclass(frozen=True)
class Ref:
    """A branch or a tag."""

    snapshot_id: int
    is_branch: bool


@dataclass(frozen=True)
class TableMetadata:
    """The state of a table. Grows with its snapshots: about 1 kB for each.

    Attributes:
        schema: The current schema, as Iceberg writes it in JSON.
        spec: The default partition spec, as Iceberg writes it in JSON.
    """

    uuid: str
    location: str
    format_version: int
    properties: Mapping[str, str]
    schema: Mapping[str, Any]
    last_column_id: int
    spec: Mapping[str, Any]
    snapshots: Mapping[int, IcebergSnapshot]
    refs: Mapping[str, Ref]

    @classmethod
    def from_json(cls, text: str) -> TableMetadata:
        """Read what `TableMetadataParser.toJson` gives."""
        value = json.loads(text)
        schemas = {schema["schema-id"]: schema for schema in value["schemas"]}
        specs = {spec["spec-id"]: spec for spec in value["partition-specs"]}
        refs = {
            name: Ref(ref["snapshot-id"], ref["type"] == "branch")
            for name, ref in value.get("refs", {}).items()
        }
        return cls(
            value["table-uuid"],
            value["location"],
            value["format-version"],
            value.get("properties", {}),
            schemas[value["current-schema-id"]],
            value["last-column-id"],
            specs[value["default-spec-id"]],
            {each["snapshot-id"]: _snapshot(each) for each in value.get("snapshots", [])},
            refs,
        )

    def head(self, ref: str = MAIN) -> IcebergSnapshot | None:
        """Give the snapshot that a branch or a tag stands at; None if there is none."""
        found = self.refs.get(ref)
        return None if found is None else self.snapshots[found.snapshot_id]

    def ancestors(self, ref: str = MAIN) -> Iterator[IcebergSnapshot]:
        """Give the snapshots of a branch, newest first, as far back as they are kept."""
        snapshot = self.head(ref)
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_id
            snapshot = None if parent is None else self.snapshots.get(parent)


def _snapshot(value: Mapping[str, Any]) -> IcebergSnapshot:
    parent = value.get("parent-snapshot-id", _NONE)
    return IcebergSnapshot(
        value["snapshot-id"],
        None if parent == _NONE else parent,
        value["timestamp-ms"],
        value.get("summary", {}),
        value.get("schema-id"),
    )
