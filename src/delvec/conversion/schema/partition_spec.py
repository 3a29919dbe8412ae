"""The partition spec of the target: every partition column as it is, and the times they say.

Values of partition columns are not in data files, so Iceberg reads them from the identity fields.
A transform field is there beside them for queries on the column that the partition is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delvec.conversion.schema.iceberg_types import walk
from delvec.conversion.schema.partition_values import partition_texts
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
    "partition_spec",
    "partition_texts",
    "require_same_spec",
]

_FIRST_ID: Final = 1000


@dataclass(frozen=True)
class PartitionField:
    """One value of a partition.

    Attributes:
        made_from: The partition column that it is, or those that say the time which it is.
    """

    name: str
    transform: str
    source_id: int
    field_id: int
    made_from: Field | TimeParts

    def to_json(self) -> dict[str, Any]:
        """Give Iceberg's JSON form."""
        return {
            "name": self.name,
            "transform": self.transform,
            "source-id": self.source_id,
            "field-id": self.field_id,
        }


@dataclass(frozen=True)
class PartitionSpec:
    """How the target is partitioned; without fields it is not."""

    fields: tuple[PartitionField, ...]

    def to_json(self) -> dict[str, Any]:
        """Give Iceberg's JSON form."""
        return {"spec-id": 0, "fields": [field.to_json() for field in self.fields]}


def partition_spec(
    metadata: Metadata, schema: TargetSchema, *, table: str, transforms: bool = True
) -> PartitionSpec:
    """Say how the target is to be partitioned.

    Args:
        metadata: Of the Delta table.
        schema: Of the target.
        table: The name of the Delta table, for errors.
        transforms: Whether to have fields for times that generated columns say. Without the
            feature of generated columns in its protocol a table's writers need not keep to them.

    Raises:
        UnsupportedFeatureError: The table is partitioned by something that Iceberg has not.
    """
    ids = {field.name: field.id for field in schema.fields}
    taken = {".".join(each.name for each in path).lower() for path in walk(schema.fields)}
    found: list[tuple[str, str, int, Field | TimeParts]] = []
    for column in metadata.partition_fields:
        if column.name not in ids:
            raise UnsupportedFeatureError(
                f"{table} is partitioned by {column.name!r}, which the target has not",
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
    """Refuse partitions that are not those which the target has.

    Args:
        current: The target's partition spec, in Iceberg's JSON. Names in it may be older than those
            of the columns: a column that was renamed is the same partition.
        spec: The one that the Delta table asks for.
        table: The name of the Delta table, for errors.
        schema: What the target's schema is to be.

    Raises:
        UnsupportedFeatureError: With both.
    """
    ours = [(field.source_id, field.transform) for field in spec.fields]
    theirs = [(field["source-id"], field["transform"]) for field in current["fields"]]
    if ours != theirs:
        names = {field.source_id: field.name for field in spec.fields}
        raise UnsupportedFeatureError(
            f"{table} is partitioned in another way than the target:"
            f" by {_listed([(names[number], how) for number, how in ours])} and not by "
            + _listed([(field["name"], field["transform"]) for field in current["fields"]]),
            feature="partition columns",
            needed_by=table,
            hint="convert the table to a new target",
        )
    for field in current["fields"]:
        twins = [
            path
            for path in walk(schema.fields)
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


def _listed(fields: list[tuple[str, str]]) -> str:
    texts = [name if how == "identity" else f"{how} ({name})" for name, how in fields]
    return ", ".join(texts) or "nothing"
