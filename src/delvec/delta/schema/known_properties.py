"""The properties that Delta defines, and the values that each may have.

Names that do not begin with `delta.` are the user's own and may have any value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delvec.delta.schema.expressions import CONSTRAINT
from delvec.delta.schema.metadata import Property, interval_ms
from delvec.delta.schema.protocol import feature_name
from delvec.documents import whole_number
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.report.format import did_you_mean

_FEATURE: Final = "delta.feature."
_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """A property: the values that it takes, and why users may not set it, if so."""

    name: str
    takes: str
    is_valid: Callable[[str], bool]
    managed: str = ""


def _flag(name: str, managed: str = "") -> KnownProperty:
    return KnownProperty(
        name, "true or false", lambda text: text.lower() in ("true", "false"), managed
    )


def _number(name: str, at_least: int, managed: str = "", at_most: int = 2**31 - 1) -> KnownProperty:
    def is_valid(text: str) -> bool:
        number = whole_number(text, signed=True)
        return number is not None and at_least <= number <= at_most

    takes = f"a whole number of {at_least} and more, up to {at_most}"
    return KnownProperty(name, takes, is_valid, managed)


def _interval(name: str) -> KnownProperty:
    def is_valid(text: str) -> bool:
        length = interval_ms(text)
        return length is not None and length >= 0

    return KnownProperty(name, "an interval such as 'interval 7 days', without months", is_valid)


def _choice(name: str, *choices: str) -> KnownProperty:
    return KnownProperty(name, " or ".join(choices), lambda text: text in choices)


def _string(name: str, managed: str = "") -> KnownProperty:
    return KnownProperty(name, "a string", lambda _: True, managed)


_OURS: Final = "it is kept by the engines that write the table"
_ICEBERG: Final = "delvec does not keep Iceberg metadata beside a Delta table"
_CATALOG: Final = "delvec does not commit through a catalog"
_NOT_WRITTEN: Final = "delvec does not write partition columns into data files"

PROPERTIES: Final = {
    each.name.lower(): each
    for each in (
        _flag(Property.APPEND_ONLY),
        _flag("delta.autoOptimize"),
        _choice("delta.autoOptimize.autoCompact", "true", "false", "auto", "legacy"),
        _flag("delta.autoOptimize.optimizeWrite"),
        _flag(Property.CHECKPOINT_STATS_AS_JSON),
        _flag(Property.CHECKPOINT_STATS_AS_STRUCT),
        _number(Property.CHECKPOINT_INTERVAL, 1),
        _choice(Property.CHECKPOINT_POLICY, "classic", "v2"),
        _interval("delta.checkpointRetentionDuration"),
        _number(Property.MAX_COLUMN_ID, 0, _OURS, _LONG),
        _choice(Property.MAPPING_MODE, "none", "name", "id"),
        _flag(Property.SYMLINK_MANIFEST),
        _number(Property.INDEXED_COLUMN_COUNT, -1),
        _string(Property.STATS_COLUMNS),
        _number(Property.STRING_PREFIX_LENGTH, 0),
        _interval(Property.DELETED_FILE_RETENTION),
        _interval(Property.TRUNCATED_HISTORY_RETENTION),
        _flag(Property.ENABLE_CHANGE_DATA_FEED),
        _flag(Property.ENABLE_DELETION_VECTORS),
        _flag("delta.enableExpiredLogCleanup"),
        _flag("delta.enableFullRetentionRollback"),
        _flag(Property.ENABLE_ICEBERG_COMPAT_V1, _ICEBERG),
        _flag(Property.ENABLE_ICEBERG_COMPAT_V2, _ICEBERG),
        _flag(Property.ENABLE_ICEBERG_COMPAT_V3, _ICEBERG),
        _flag(Property.ENABLE_ICEBERG_WRITER_COMPAT_V1, _ICEBERG),
        _flag(Property.ENABLE_ICEBERG_WRITER_COMPAT_V3, _ICEBERG),
        _flag(Property.ENABLE_IN_COMMIT_TIMESTAMPS),
        _flag("delta.enableMaterializePartitionColumnsFeature", _NOT_WRITTEN),
        _flag(Property.ENABLE_ROW_TRACKING),
        _flag(Property.ENABLE_TYPE_WIDENING),
        _flag(Property.ENABLE_VARIANT_SHREDDING),
        _number(Property.IN_COMMIT_TIMESTAMPS_SINCE_TIME, 0, _OURS, _LONG),
        _number(Property.IN_COMMIT_TIMESTAMPS_SINCE_VERSION, 0, _OURS, _LONG),
        _choice(Property.ISOLATION_LEVEL, "Serializable", "WriteSerializable"),
        _interval(Property.LOG_RETENTION),
        _choice(Property.COMPRESSION_CODEC, "snappy", "zstd", "gzip", "lz4", "uncompressed"),
        _choice("delta.parquet.format.version", "1.0.0", "2.12.0"),
        _flag(Property.RANDOMIZE_FILE_PREFIXES),
        _number(Property.RANDOM_PREFIX_LENGTH, 1),
        _string("delta.redirectReaderWriter-preview", _CATALOG),
        _string("delta.redirectWriterOnly-preview", _CATALOG),
        _number(Property.CHECKPOINT_PROTECTION_BEFORE, 0, _OURS, _LONG),
        _string(Property.ROW_ID_COLUMN, _OURS),
        _string(Property.ROW_COMMIT_VERSION_COLUMN, _OURS),
        _flag("delta.rowTrackingSuspended"),
        _interval("delta.sampleRetentionDuration"),
        _interval(Property.TRANSACTION_RETENTION),
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
    """Check properties and spell them as Delta does; `delta.feature.*` become features."""
    features, stored, constraints = set(), {}, {}
    for name, value in properties.items():
        text, lower = _as_string(name, value), name.lower()
        if lower in _NOT_STORED or lower == _IGNORED:
            continue
        if lower.startswith(_FEATURE):
            if text.lower() not in ("supported", "enabled"):
                hint = "features are set to 'supported'"
                raise InvalidArgumentError(f"{name} is {text!r}", hint=hint)
            features.add(feature_name(name[len(_FEATURE) :]))
        elif lower.startswith(CONSTRAINT):
            constraints[name[len(CONSTRAINT) :]] = text
        elif lower.startswith("delta."):
            stored[_known(name, text).name] = text
        else:
            stored[name] = text
    return CheckedProperties(frozenset(features), stored, constraints)


def _as_string(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value).strip() if name.lower().startswith("delta.") else str(value)
    raise InvalidArgumentError(f"property {name} is {value!r}", hint="properties are strings")


def _known(name: str, text: str) -> KnownProperty:
    known = PROPERTIES.get(name.lower())
    if known is None:
        raise InvalidArgumentError(
            f"Delta has no property {name}",
            hint=did_you_mean(name, (each.name for each in PROPERTIES.values()))
            or "give properties of your own a name that does not begin with delta.",
        )
    if not known.is_valid(text):
        raise InvalidArgumentError(f"{known.name} takes {known.takes}, not {text[:80]!r}")
    if known.managed and text.lower() != "false":
        raise UnsupportedFeatureError(
            f"{known.name} cannot be set to {text}: {known.managed}",
            feature=known.name,
            hint="leave it out",
        )
    return known
