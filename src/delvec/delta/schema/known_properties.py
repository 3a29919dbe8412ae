"""The properties that Delta defines, and the values that each may have.

Names that do not begin with `delta.` are the user's own and may have any value.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.schema.expressions import CONSTRAINT
from delvec.delta.schema.features import feature_name
from delvec.delta.schema.properties import (
    APPEND_ONLY,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_POLICY,
    CHECKPOINT_PROTECTION_BEFORE,
    CHECKPOINT_STATS_AS_JSON,
    CHECKPOINT_STATS_AS_STRUCT,
    COMPRESSION_CODEC,
    DELETED_FILE_RETENTION,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    ENABLE_ICEBERG_COMPAT_V1,
    ENABLE_ICEBERG_COMPAT_V2,
    ENABLE_ICEBERG_COMPAT_V3,
    ENABLE_ICEBERG_WRITER_COMPAT_V1,
    ENABLE_ICEBERG_WRITER_COMPAT_V3,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_ROW_TRACKING,
    ENABLE_TYPE_WIDENING,
    ENABLE_VARIANT_SHREDDING,
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    INDEXED_COLUMN_COUNT,
    ISOLATION_LEVEL,
    LOG_RETENTION,
    MAPPING_MODE,
    MAX_COLUMN_ID,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    SYMLINK_MANIFEST,
    TRUNCATED_HISTORY_RETENTION,
    interval_ms,
)
from delvec.documents import whole_number
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["PROPERTIES", "CheckedProperties", "Property", "check_properties"]

_FEATURE: Final = "delta.feature."
_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Property:
    """A property: the values that it takes, and why users may not set it, if so."""

    name: str
    takes: str
    is_valid: Callable[[str], bool]
    managed: str = ""


def _flag(name: str, managed: str = "") -> Property:
    return Property(name, "true or false", lambda text: text.lower() in ("true", "false"), managed)


def _number(name: str, at_least: int, managed: str = "", at_most: int = 2**31 - 1) -> Property:
    def is_valid(text: str) -> bool:
        number = whole_number(text.removeprefix("-"))
        if number is None:
            return False
        return at_least <= (-number if text.startswith("-") else number) <= at_most

    takes = f"a whole number of {at_least} and more, up to {at_most}"
    return Property(name, takes, is_valid, managed)


def _interval(name: str) -> Property:
    def is_valid(text: str) -> bool:
        length = interval_ms(text)
        return length is not None and length >= 0

    return Property(name, "an interval such as 'interval 7 days', without months", is_valid)


def _choice(name: str, *choices: str) -> Property:
    return Property(name, " or ".join(choices), lambda text: text in choices)


def _string(name: str, managed: str = "") -> Property:
    return Property(name, "a string", lambda _: True, managed)


_OURS: Final = "it is kept by the engines that write the table"
_ICEBERG: Final = "delvec does not keep Iceberg metadata beside a Delta table"
_CATALOG: Final = "delvec does not commit through a catalog"
_NOT_WRITTEN: Final = "delvec does not write partition columns into data files"

PROPERTIES: Final = {
    each.name.lower(): each
    for each in (
        _flag(APPEND_ONLY),
        _flag("delta.autoOptimize"),
        _choice("delta.autoOptimize.autoCompact", "true", "false", "auto", "legacy"),
        _flag("delta.autoOptimize.optimizeWrite"),
        _flag(CHECKPOINT_STATS_AS_JSON),
        _flag(CHECKPOINT_STATS_AS_STRUCT),
        _number(CHECKPOINT_INTERVAL, 1),
        _choice(CHECKPOINT_POLICY, "classic", "v2"),
        _interval("delta.checkpointRetentionDuration"),
        _number(MAX_COLUMN_ID, 0, _OURS, _LONG),
        _choice(MAPPING_MODE, "none", "name", "id"),
        _flag(SYMLINK_MANIFEST),
        _number(INDEXED_COLUMN_COUNT, -1),
        _string(STATS_COLUMNS),
        _number(STRING_PREFIX_LENGTH, 0),
        _interval(DELETED_FILE_RETENTION),
        _interval(TRUNCATED_HISTORY_RETENTION),
        _flag(ENABLE_CHANGE_DATA_FEED),
        _flag(ENABLE_DELETION_VECTORS),
        _flag("delta.enableExpiredLogCleanup"),
        _flag("delta.enableFullRetentionRollback"),
        _flag(ENABLE_ICEBERG_COMPAT_V1, _ICEBERG),
        _flag(ENABLE_ICEBERG_COMPAT_V2, _ICEBERG),
        _flag(ENABLE_ICEBERG_COMPAT_V3, _ICEBERG),
        _flag(ENABLE_ICEBERG_WRITER_COMPAT_V1, _ICEBERG),
        _flag(ENABLE_ICEBERG_WRITER_COMPAT_V3, _ICEBERG),
        _flag(ENABLE_IN_COMMIT_TIMESTAMPS),
        _flag("delta.enableMaterializePartitionColumnsFeature", _NOT_WRITTEN),
        _flag(ENABLE_ROW_TRACKING),
        _flag(ENABLE_TYPE_WIDENING),
        _flag(ENABLE_VARIANT_SHREDDING),
        _number(IN_COMMIT_TIMESTAMPS_SINCE_TIME, 0, _OURS, _LONG),
        _number(IN_COMMIT_TIMESTAMPS_SINCE_VERSION, 0, _OURS, _LONG),
        _choice(ISOLATION_LEVEL, "Serializable", "WriteSerializable"),
        _interval(LOG_RETENTION),
        _choice(COMPRESSION_CODEC, "snappy", "zstd", "gzip", "lz4", "uncompressed"),
        _choice("delta.parquet.format.version", "1.0.0", "2.12.0"),
        _flag(RANDOMIZE_FILE_PREFIXES),
        _number(RANDOM_PREFIX_LENGTH, 1),
        _string("delta.redirectReaderWriter-preview", _CATALOG),
        _string("delta.redirectWriterOnly-preview", _CATALOG),
        _number(CHECKPOINT_PROTECTION_BEFORE, 0, _OURS, _LONG),
        _string(ROW_ID_COLUMN, _OURS),
        _string(ROW_COMMIT_VERSION_COLUMN, _OURS),
        _flag("delta.rowTrackingSuspended"),
        _interval("delta.sampleRetentionDuration"),
        _interval("delta.setTransactionRetentionDuration"),
        _string("delta.universalFormat.enabledFormats", _ICEBERG),
        _flag("delta.universalFormat.iceberg.atomicConversion.supported", _ICEBERG),
        _flag("delta.writePartitionColumnsToParquet", _NOT_WRITTEN),
        _string("delta.coordinatedCommits.commitCoordinator-preview", _CATALOG),
        _string("delta.coordinatedCommits.commitCoordinatorConf-preview", _CATALOG),
        _string("delta.coordinatedCommits.tableConf-preview", _CATALOG),
    )
}
# Instructions to engines, which tables do not store.
_NOT_STORED: Final = ("delta.minreaderversion", "delta.minwriterversion")
_IGNORED: Final = "delta.ignoreprotocoldefaults"


@dataclass(frozen=True, slots=True)
class CheckedProperties:
    """What a caller asked for: features by name, properties to store, constraints by name."""

    features: frozenset[str]
    properties: Mapping[str, str]
    constraints: Mapping[str, str]


def check_properties(properties: Mapping[str, Any]) -> CheckedProperties:
    """Check properties and spell them as Delta does; `delta.feature.*` become features.

    Raises:
        InvalidArgumentError: A `delta.*` property that is unknown, or a value it cannot have.
        UnsupportedFeatureError: A property that delvec cannot honour.
    """
    features, stored, constraints = set(), {}, {}
    for name, value in properties.items():
        text, lower = _as_string(name, value), name.lower()
        if lower in _NOT_STORED or lower == _IGNORED:
            continue
        if lower.startswith(_FEATURE):
            features.add(_wanted_feature(name, text))
        elif lower.startswith(CONSTRAINT):
            constraints[name[len(CONSTRAINT) :]] = text
        elif lower.startswith("delta."):
            known = _known(name)
            _require_valid(known, text)
            stored[known.name] = text
        else:
            stored[name] = text
    return CheckedProperties(frozenset(features), stored, constraints)


def _as_string(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value).strip() if name.lower().startswith("delta.") else str(value)
    raise InvalidArgumentError(f"property {name} is {value!r}", hint="properties are strings")


def _wanted_feature(name: str, text: str) -> str:
    if text.lower() not in ("supported", "enabled"):
        raise InvalidArgumentError(f"{name} is {text!r}", hint="features are set to 'supported'")
    return feature_name(name[len(_FEATURE) :])


def _known(name: str) -> Property:
    if known := PROPERTIES.get(name.lower()):
        return known
    near = [PROPERTIES[each].name for each in get_close_matches(name.lower(), PROPERTIES, 3)]
    raise InvalidArgumentError(
        f"Delta has no property {name}",
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else "give properties of your own a name that does not begin with delta.",
    )


def _require_valid(known: Property, text: str) -> None:
    if not known.is_valid(text):
        raise InvalidArgumentError(f"{known.name} takes {known.takes}, not {text[:80]!r}")
    if known.managed and text.lower() != "false":
        raise UnsupportedFeatureError(
            f"{known.name} cannot be set to {text}: {known.managed}",
            feature=known.name,
            hint="leave it out",
        )
