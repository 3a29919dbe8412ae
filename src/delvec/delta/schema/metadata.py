"""The metadata of a table: schema, partition columns, properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from delvec.delta.schema.parse import parse_schema
from delvec.delta.schema.properties import MAPPING_MODE
from delvec.errors import FormatError, UnsupportedFeatureError

if TYPE_CHECKING:
    from delvec.delta.schema.types import Field, MappingMode, StructType

__all__ = ["Metadata"]


@dataclass(frozen=True)
class Metadata:
    """The metaData action of a table."""

    id: str | None
    name: str | None
    description: str | None
    provider: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    created_ms: int | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Metadata:
        """Read the `metaData` action."""
        text, columns = value.get("schemaString"), value.get("partitionColumns")
        if not isinstance(text, str):
            raise FormatError("the metadata of the table has no schema", found=repr(text)[:40])
        if columns is not None and not (
            isinstance(columns, list) and all(isinstance(name, str) for name in columns)
        ):
            raise FormatError("partitionColumns is no list of names", found=repr(columns)[:40])
        form, properties = value.get("format") or {}, value.get("configuration") or {}
        if not isinstance(form, Mapping) or not isinstance(properties, Mapping):
            raise FormatError(
                "format and configuration of the table are no objects",
                found=repr([form, properties])[:60],
            )
        return cls(
            value.get("id"),
            value.get("name"),
            value.get("description"),
            form.get("provider") or "parquet",
            text,
            tuple(columns or ()),
            _strings(properties),
            value.get("createdTime"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the `metaData` action, without fields that are not set."""
        value = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "format": {"provider": self.provider, "options": {}},
            "schemaString": self.schema_string,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
            "createdTime": self.created_ms,
        }
        return {key: item for key, item in value.items() if item is not None}

    def is_on(self, name: str) -> bool:
        """Tell whether a property that is true or false is set to true."""
        return self.configuration.get(name, "false").strip().lower() == "true"

    def require_readable(self, table: str) -> None:
        """Refuse data files that are not Parquet."""
        if self.provider != "parquet":
            raise UnsupportedFeatureError(
                f"the files of {table} are {self.provider}; Delta tables hold Parquet",
                feature=f"provider {self.provider}",
                needed_by=table,
                hint="rewrite the table with Parquet files",
            )

    @property
    def mapping_mode(self) -> MappingMode:
        """How columns are found in files: by logical name, by physical name, or by id."""
        mode = self.configuration.get(MAPPING_MODE, "none")
        if mode not in ("none", "name", "id"):
            raise FormatError(f"{MAPPING_MODE} is unknown", expected="none, name or id", found=mode)
        return cast("MappingMode", mode)

    @cached_property
    def schema(self) -> StructType:
        """The columns of the table, those of the partitions included."""
        return parse_schema(self.schema_string, self.mapping_mode)

    @cached_property
    def partition_fields(self) -> tuple[Field, ...]:
        """The columns whose values are in the log, in their order."""
        by_name = {field.name.lower(): field for field in self.schema.fields}
        missing = [name for name in self.partition_columns if name.lower() not in by_name]
        if missing:
            raise FormatError(
                "a partition column is not in the schema",
                expected=", ".join(by_name),
                found=", ".join(missing),
            )
        if len({name.lower() for name in self.partition_columns}) < len(self.partition_columns):
            raise FormatError(
                "a partition column is named more than once",
                found=", ".join(map(str, self.partition_columns[:20])),
            )
        return tuple(by_name[name.lower()] for name in self.partition_columns)


def _strings(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return properties as strings; one that is null is not set."""
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in configuration.items()
        if value is not None
    }
