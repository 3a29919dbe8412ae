"""The partition spec of the target: identity fields, and time transforms of generated columns.

Data files have no values of partition columns, so Iceberg reads them from the identity fields. A
transform field serves queries on the column that the partition columns are generated from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delvec.conversion.schema.iceberg_types import walk_iceberg
from delvec.conversion.schema.time_transforms import time_parts
from delvec.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.conversion.schema.time_transforms import TimeParts
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import Field

__all__ = [
    "PartitionField",
    "PartitionSpec",
    "listed_fields",
    "partition_spec",
    "require_same_spec",
]

_FIRST_ID: Final = 1000


@dataclass(frozen=True)
class PartitionField:
    """A field of the partition spec.

    Attributes:
        made_from: Its partition column, or the partition columns that its time is made from.
    """

    name: str
    transform: str
    source_id: int
    field_id: int
    made_from: Field | TimeParts

    def to_json(self) -> dict[str, Any]:
        """Return Iceberg's JSON form."""
        return {
            "name": self.name,
            "transform": self.transform,
            "source-id": self.source_id,
            "field-id": self.field_id,
        }


@dataclass(frozen=True)
class PartitionSpec:
    """The partition spec of the target; it has no fields if the target is not partitioned."""

    fields: tuple[PartitionField, ...]

    def to_json(self) -> dict[str, Any]:
        """Return Iceberg's JSON form."""
        return {"spec-id": 0, "fields": [field.to_json() for field in self.fields]}


def partition_spec(
    metadata: Metadata, schema: TargetSchema, *, table: str, transforms: bool = True
) -> PartitionSpec:
    """Return the partition spec of a target.

    Args:
        metadata: Of the Delta table.
        schema: Of the target.
        table: The name of the Delta table, for errors.
        transforms: Whether to add time transforms for generated columns. Writers of a table need
            not respect these unless its protocol has the feature of generated columns.

    Raises:
        UnsupportedFeatureError: Iceberg cannot represent a partition column.
    """
    ids = {field.name: field.id for field in schema.fields}
    taken = {".".join(each.name for each in path).lower() for path in walk_iceberg(schema.fields)}
    found: list[tuple[str, str, int, Field | TimeParts]] = []
    for column in metadata.partition_fields:
        if column.name not in ids:
            raise UnsupportedFeatureError(
                f"{table} is partitioned by {column.name!r}, which is not a column of the target",
                feature="partition columns",
                needed_by=table,
                hint="make the partition spec from the schema of the same version",
            )
        found.append((column.name, "identity", ids[column.name], column))
    for parts in time_parts(metadata) if transforms else ():
        name = f"{parts.source.name}_{parts.unit}"
        while name.lower() in taken:
            name += "_part"
        taken.add(name.lower())
        found.append((name, parts.unit, ids[parts.source.name], parts))
    return PartitionSpec(
        tuple(
            PartitionField(name, transform, source, _FIRST_ID + at, made_from)
            for at, (name, transform, source, made_from) in enumerate(found)
        )
    )


def require_same_spec(
    current: Mapping[str, Any], spec: PartitionSpec, table: str, *, schema: TargetSchema
) -> None:
    """Refuse a partition spec that differs from that of the target.

    Args:
        current: The target's partition spec, in Iceberg's JSON form. Its names may be older than
            those of the columns: a renamed column is the same partition field.
        spec: The one of the Delta table.
        table: The name of the Delta table, for errors.
        schema: The target's new schema.

    Raises:
        UnsupportedFeatureError: They differ; the error names both.
    """
    ours = [(field.source_id, field.transform) for field in spec.fields]
    theirs = [(field["source-id"], field["transform"]) for field in current["fields"]]
    if ours != theirs:
        names = {field.source_id: field.name for field in spec.fields}
        raise UnsupportedFeatureError(
            f"{table} is partitioned in another way than the target:"
            f" by {listed_fields([(names[number], how) for number, how in ours])} and not by "
            + listed_fields([(field["name"], field["transform"]) for field in current["fields"]]),
            feature="partition columns",
            needed_by=table,
            hint="convert the table to a new target",
        )
    for field in current["fields"]:
        twins = [
            path
            for path in walk_iceberg(schema.fields)
            if ".".join(each.name for each in path) == field["name"]
            and path[-1].id != field["source-id"]
        ]
        if twins:
            raise UnsupportedFeatureError(
                f"{table} has a column {field['name']!r} now, and the target a partition field of"
                " that name which is made from another column",
                feature="partition columns",
                needed_by=table,
                hint="rename the column, or convert the table to a new target",
            )


def listed_fields(fields: list[tuple[str, str]]) -> str:
    """Return partition fields, given by name and transform, as they are named in messages."""
    names = [name if how == "identity" else f"{how} ({name})" for name, how in fields]
    return ", ".join(names) or "nothing"
