"""The metadata of a table: schema, partition columns, and the properties that delvec knows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from delvec.delta.schema.types import Field, MappingMode, StructType, parse_schema
from delvec.documents import LONG_MAX, whole_number
from delvec.errors import FormatError, UnsupportedFeatureError


class Property:
    """The names of table properties that delvec reads or sets."""

    APPEND_ONLY: Final = "delta.appendOnly"
    CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
    CHECKPOINT_POLICY: Final = "delta.checkpointPolicy"
    CHECKPOINT_PROTECTION_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"
    CHECKPOINT_STATS_AS_JSON: Final = "delta.checkpoint.writeStatsAsJson"
    CHECKPOINT_STATS_AS_STRUCT: Final = "delta.checkpoint.writeStatsAsStruct"
    COMPRESSION_CODEC: Final = "delta.parquet.compression.codec"
    DELETED_FILE_RETENTION: Final = "delta.deletedFileRetentionDuration"
    ENABLE_CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
    ENABLE_DELETION_VECTORS: Final = "delta.enableDeletionVectors"
    ENABLE_ICEBERG_COMPAT_V1: Final = "delta.enableIcebergCompatV1"
    ENABLE_ICEBERG_COMPAT_V2: Final = "delta.enableIcebergCompatV2"
    ENABLE_ICEBERG_COMPAT_V3: Final = "delta.enableIcebergCompatV3"
    ENABLE_ICEBERG_WRITER_COMPAT_V1: Final = "delta.enableIcebergWriterCompatV1"
    ENABLE_ICEBERG_WRITER_COMPAT_V3: Final = "delta.enableIcebergWriterCompatV3"
    ENABLE_IN_COMMIT_TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
    ENABLE_ROW_TRACKING: Final = "delta.enableRowTracking"
    ENABLE_TYPE_WIDENING: Final = "delta.enableTypeWidening"
    ENABLE_VARIANT_SHREDDING: Final = "delta.enableVariantShredding"
    INDEXED_COLUMN_COUNT: Final = "delta.dataSkippingNumIndexedCols"
    IN_COMMIT_TIMESTAMPS_SINCE_TIME: Final = "delta.inCommitTimestampEnablementTimestamp"
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
    ISOLATION_LEVEL: Final = "delta.isolationLevel"
    LOG_RETENTION: Final = "delta.logRetentionDuration"
    MAPPING_MODE: Final = "delta.columnMapping.mode"
    MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
    RANDOMIZE_FILE_PREFIXES: Final = "delta.randomizeFilePrefixes"
    RANDOM_PREFIX_LENGTH: Final = "delta.randomPrefixLength"
    ROW_COMMIT_VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
    ROW_ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
    STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"
    STRING_PREFIX_LENGTH: Final = "delta.dataSkippingStringPrefixLength"
    SYMLINK_MANIFEST: Final = "delta.compatibility.symlinkFormatManifest.enabled"
    TARGET_FILE_SIZE: Final = "delta.targetFileSize"
    TRANSACTION_RETENTION: Final = "delta.setTransactionRetentionDuration"
    TRUNCATED_HISTORY_RETENTION: Final = "delta.dropFeatureTruncateHistory.retentionDuration"


_DEFAULTS: Final = {
    Property.DELETED_FILE_RETENTION: "interval 1 week",
    Property.LOG_RETENTION: "interval 30 days",
    Property.TRUNCATED_HISTORY_RETENTION: "interval 24 hours",
}
_WEEK_MS: Final = 604_800_000
_UNITS: Final = {
    "week": _WEEK_MS,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
    "microsecond": 0.001,
    "nanosecond": 0.000001,
}
_PART: Final = re.compile(
    rf"([+-]?[0-9]{{1,18}}(?:\.[0-9]{{1,18}})?)\s+({'|'.join(_UNITS)})s?(?:\s+|\Z)", re.ASCII
)
FOREVER_MS: Final = 1000 * 366 * 86_400_000
"""The longest retention: beyond, there is no date so long before today."""


def retention_ms(properties: Mapping[str, str], name: str) -> int | None:
    """Return for how many milliseconds a table keeps what is old, by a property or by default.

    None if the property is not an interval of fixed length, or negative.
    """
    found = interval_ms(retention_text(properties, name))
    return None if found is None or found < 0 else found


def removed_files_kept_ms(properties: Mapping[str, str]) -> int:
    """Return how long removed files are kept; a week if the property is not an interval."""
    found = retention_ms(properties, Property.DELETED_FILE_RETENTION)
    return _WEEK_MS if found is None else found


def retention_text(properties: Mapping[str, str], name: str) -> str:
    """Return a retention as the table has it written, or Delta's default."""
    return properties.get(name, _DEFAULTS[name])


def property_number(
    properties: Mapping[str, str], name: str, default: int, at_most: int = LONG_MAX
) -> int:
    text = properties.get(name, str(default)).strip()
    number = whole_number(text, at_most)
    if number is None:
        raise FormatError(
            f"the property {name} has a value that it cannot have",
            expected=f"a whole number of at most {at_most}",
            found=repr(text[:40]),
            hint="set the property again, by set_properties()",
        )
    return number


def interval_ms(text: str) -> int | None:
    """Return an interval in milliseconds, 1000 years at most; None if it is none of fixed length.

    >>> interval_ms("interval 1 week"), interval_ms("2 days 12 hours"), interval_ms("a month")
    (604800000, 216000000, None)
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(rest)
    if not parts or _PART.sub("", rest):
        return None
    length = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return int(max(-FOREVER_MS, min(length, FOREVER_MS)))


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
        text, columns = value.get("schemaString"), value.get("partitionColumns")
        if not isinstance(text, str):
            raise FormatError("the metadata of the table has no schema", found=repr(text)[:40])
        if columns is not None and not (
            isinstance(columns, list) and all(isinstance(name, str) for name in columns)
        ):
            raise FormatError("partitionColumns is not a list of names", found=repr(columns)[:40])
        form, properties = value.get("format") or {}, value.get("configuration") or {}
        if not isinstance(form, Mapping) or not isinstance(properties, Mapping):
            raise FormatError(
                "format and configuration of the table are no objects",
                found=repr([form, properties])[:60],
            )
        known = {key: item for key, item in properties.items() if item is not None}
        return cls(
            value.get("id"),
            value.get("name"),
            value.get("description"),
            form.get("provider") or "parquet",
            text,
            tuple(columns or ()),
            {k: item if isinstance(item, str) else json.dumps(item) for k, item in known.items()},
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
        mode = self.configuration.get(Property.MAPPING_MODE, "none")
        if mode not in ("none", "name", "id"):
            raise FormatError(
                f"{Property.MAPPING_MODE} is unknown", expected="none, name or id", found=mode
            )
        return cast("MappingMode", mode)

    @cached_property
    def schema(self) -> StructType:
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
