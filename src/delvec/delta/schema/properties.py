"""The names of table properties that delvec reads or sets, and the intervals in their values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from delvec.documents import LONG_MAX, whole_number
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "APPEND_ONLY",
    "CHECKPOINT_INTERVAL",
    "CHECKPOINT_POLICY",
    "CHECKPOINT_PROTECTION_BEFORE",
    "CHECKPOINT_STATS_AS_JSON",
    "CHECKPOINT_STATS_AS_STRUCT",
    "COMPRESSION_CODEC",
    "DELETED_FILE_RETENTION",
    "ENABLE_CHANGE_DATA_FEED",
    "ENABLE_DELETION_VECTORS",
    "ENABLE_ICEBERG_COMPAT_V1",
    "ENABLE_ICEBERG_COMPAT_V2",
    "ENABLE_ICEBERG_COMPAT_V3",
    "ENABLE_ICEBERG_WRITER_COMPAT_V1",
    "ENABLE_ICEBERG_WRITER_COMPAT_V3",
    "ENABLE_IN_COMMIT_TIMESTAMPS",
    "ENABLE_ROW_TRACKING",
    "ENABLE_TYPE_WIDENING",
    "ENABLE_VARIANT_SHREDDING",
    "INDEXED_COLUMN_COUNT",
    "IN_COMMIT_TIMESTAMPS_SINCE_TIME",
    "IN_COMMIT_TIMESTAMPS_SINCE_VERSION",
    "ISOLATION_LEVEL",
    "LOG_RETENTION",
    "MAPPING_MODE",
    "MAX_COLUMN_ID",
    "RANDOMIZE_FILE_PREFIXES",
    "RANDOM_PREFIX_LENGTH",
    "ROW_COMMIT_VERSION_COLUMN",
    "ROW_ID_COLUMN",
    "STATS_COLUMNS",
    "STRING_PREFIX_LENGTH",
    "SYMLINK_MANIFEST",
    "TARGET_FILE_SIZE",
    "TRUNCATED_HISTORY_RETENTION",
    "interval_ms",
    "property_number",
    "retention_ms",
    "retention_text",
]

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
TRUNCATED_HISTORY_RETENTION: Final = "delta.dropFeatureTruncateHistory.retentionDuration"

_DEFAULTS: Final = {
    DELETED_FILE_RETENTION: "interval 1 week",
    LOG_RETENTION: "interval 30 days",
    TRUNCATED_HISTORY_RETENTION: "interval 24 hours",
}
_UNITS: Final = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
    "microsecond": 0.001,
    "nanosecond": 0.000001,
}
_PART: Final = re.compile(
    rf"([+-]?[0-9]{{1,18}}(?:\.[0-9]{{1,18}})?)\s+({'|'.join(_UNITS)})s?(?:\s+|\Z)",
    re.ASCII,
)
_FOREVER: Final = 1000 * 366 * 86_400_000  # beyond, there is no date so long before today


def retention_ms(properties: Mapping[str, str], name: str) -> int | None:
    """Return how long a table keeps what is old, by a property of it or by Delta's default.

    Args:
        properties: The table properties.
        name: A property that names a retention, such as `DELETED_FILE_RETENTION`.

    Returns:
        Milliseconds; None if the property is no interval of fixed length.
    """
    return interval_ms(retention_text(properties, name))


def retention_text(properties: Mapping[str, str], name: str) -> str:
    """Return a retention as the table has it written, or Delta's default."""
    return properties.get(name, _DEFAULTS[name])


def property_number(
    properties: Mapping[str, str], name: str, default: int, at_most: int = LONG_MAX
) -> int:
    """Return a property that is a whole number.

    Raises:
        FormatError: It is none, or above what the property can mean.
    """
    text = properties.get(name, str(default)).strip()
    number = whole_number(text, at_most)
    if number is None:
        raise FormatError(
            f"the property {name} has a value that it cannot have",
            expected=f"a whole number of at most {at_most}",
            found=repr(text[:40]),
            hint="set the property anew, by set_properties()",
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
    return int(max(-_FOREVER, min(length, _FOREVER)))
