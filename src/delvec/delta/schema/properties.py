"""The properties that Delta knows: what each may be set to.

Those of other names than `delta.*` are the user's own and may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.schema.expressions import CONSTRAINT
from delvec.delta.schema.features import FEATURES
from delvec.delta.schema.intervals import interval_ms
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "FEATURE",
    "MAPPING_MODE",
    "MAX_COLUMN_ID",
    "PROPERTIES",
    "ROW_COMMIT_VERSIONS",
    "ROW_IDS",
    "SYMLINKS",
    "VECTORS",
    "Property",
    "Wanted",
    "feature_of",
    "wanted",
]

VECTORS: Final = "delta.enableDeletionVectors"
MAPPING_MODE: Final = "delta.columnMapping.mode"
MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
ROW_IDS: Final = "delta.rowTracking.materializedRowIdColumnName"
ROW_COMMIT_VERSIONS: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
SYMLINKS: Final = "delta.compatibility.symlinkFormatManifest.enabled"
FEATURE: Final = "delta.feature."


@dataclass(frozen=True, slots=True)
class Property:
    """A property: what it takes, as a test and in words; and why it is not set by hand, if so."""

    name: str
    takes: str
    is_valid: Callable[[str], bool]
    managed: str = ""


def _flag(name: str, managed: str = "") -> Property:
    return Property(name, "true or false", lambda text: text.lower() in ("true", "false"), managed)


def _number(name: str, at_least: int, managed: str = "") -> Property:
    def is_valid(text: str) -> bool:
        sign, digits = text[:1] == "-", text.removeprefix("-")
        return digits.isdecimal() and (-int(digits) if sign else int(digits)) >= at_least

    return Property(name, f"a whole number of {at_least} and more", is_valid, managed)


def _interval(name: str) -> Property:
    def is_valid(text: str) -> bool:
        length = interval_ms(text)
        return length is not None and length >= 0

    return Property(name, "an interval such as 'interval 7 days', without months", is_valid)


def _choice(name: str, *choices: str) -> Property:
    return Property(name, " or ".join(choices), lambda text: text in choices)


def _text(name: str, managed: str = "") -> Property:
    return Property(name, "a text", lambda _: True, managed)


_OURS: Final = "it is kept by who writes the table"
_ICEBERG: Final = "delvec does not keep Iceberg metadata beside a Delta table"
_CATALOG: Final = "delvec does not commit through a catalog"
_NOT_WRITTEN: Final = "delvec does not write partition columns into data files"

PROPERTIES: Final = {
    each.name.lower(): each
    for each in (
        _flag("delta.appendOnly"),
        _flag("delta.autoOptimize"),
        _choice("delta.autoOptimize.autoCompact", "true", "false", "auto", "legacy"),
        _flag("delta.autoOptimize.optimizeWrite"),
        _flag("delta.checkpoint.writeStatsAsJson"),
        _flag("delta.checkpoint.writeStatsAsStruct"),
        _number("delta.checkpointInterval", 1),
        _choice("delta.checkpointPolicy", "classic", "v2"),
        _interval("delta.checkpointRetentionDuration"),
        _number(MAX_COLUMN_ID, 0, _OURS),
        _choice(MAPPING_MODE, "none", "name", "id"),
        _flag(SYMLINKS),
        _number("delta.dataSkippingNumIndexedCols", -1),
        _text("delta.dataSkippingStatsColumns"),
        _number("delta.dataSkippingStringPrefixLength", 0),
        _interval("delta.deletedFileRetentionDuration"),
        _interval("delta.dropFeatureTruncateHistory.retentionDuration"),
        _flag("delta.enableChangeDataFeed"),
        _flag(VECTORS),
        _flag("delta.enableExpiredLogCleanup"),
        _flag("delta.enableFullRetentionRollback"),
        _flag("delta.enableIcebergCompatV1", _ICEBERG),
        _flag("delta.enableIcebergCompatV2", _ICEBERG),
        _flag("delta.enableIcebergCompatV3", _ICEBERG),
        _flag("delta.enableIcebergWriterCompatV1", _ICEBERG),
        _flag("delta.enableIcebergWriterCompatV3", _ICEBERG),
        _flag("delta.enableInCommitTimestamps"),
        _flag("delta.enableMaterializePartitionColumnsFeature", _NOT_WRITTEN),
        _flag("delta.enableRowTracking"),
        _flag("delta.enableTypeWidening"),
        _flag("delta.enableVariantShredding"),
        _number("delta.inCommitTimestampEnablementTimestamp", 0, _OURS),
        _number("delta.inCommitTimestampEnablementVersion", 0, _OURS),
        _choice("delta.isolationLevel", "Serializable", "WriteSerializable"),
        _interval("delta.logRetentionDuration"),
        _choice("delta.parquet.compression.codec", "snappy", "zstd", "gzip", "lz4", "uncompressed"),
        _choice("delta.parquet.format.version", "1.0.0", "2.12.0"),
        _flag("delta.randomizeFilePrefixes"),
        _number("delta.randomPrefixLength", 1),
        _text("delta.redirectReaderWriter-preview", _CATALOG),
        _text("delta.redirectWriterOnly-preview", _CATALOG),
        _number("delta.requireCheckpointProtectionBeforeVersion", 0, _OURS),
        _text(ROW_IDS, _OURS),
        _text(ROW_COMMIT_VERSIONS, _OURS),
        _flag("delta.rowTrackingSuspended"),
        _interval("delta.sampleRetentionDuration"),
        _interval("delta.setTransactionRetentionDuration"),
        _text("delta.universalFormat.enabledFormats", _ICEBERG),
        _flag("delta.universalFormat.iceberg.atomicConversion.supported", _ICEBERG),
        _flag("delta.writePartitionColumnsToParquet", _NOT_WRITTEN),
        _text("delta.coordinatedCommits.commitCoordinator-preview", _CATALOG),
        _text("delta.coordinatedCommits.commitCoordinatorConf-preview", _CATALOG),
        _text("delta.coordinatedCommits.tableConf-preview", _CATALOG),
    )
}
# Commands to engines, which tables do not keep.
_NOT_STORED: Final = ("delta.minreaderversion", "delta.minwriterversion")
_IGNORED: Final = "delta.ignoreprotocoldefaults"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asked for: features by name, properties to store, constraints by name."""

    features: frozenset[str]
    properties: Mapping[str, str]
    constraints: Mapping[str, str]


def wanted(properties: Mapping[str, Any]) -> Wanted:
    """Check properties and give them their right names; `delta.feature.*` become features.

    Raises:
        InvalidArgumentError: A `delta.*` property that is unknown, or a value it cannot have.
        UnsupportedFeatureError: One that delvec could not keep its word on.
    """
    features, stored, constraints = set(), {}, {}
    for name, value in properties.items():
        text, lower = _as_text(name, value), name.lower()
        if lower in _NOT_STORED or lower == _IGNORED:
            continue
        if lower.startswith(FEATURE):
            features.add(_wanted_feature(name, text))
        elif lower.startswith(CONSTRAINT):
            constraints[name[len(CONSTRAINT) :]] = text
        elif lower.startswith("delta."):
            known = _known(name)
            _require_valid(known, text)
            stored[known.name] = text
        else:
            stored[name] = text
    return Wanted(frozenset(features), stored, constraints)


def feature_of(name: str) -> str:
    """Give the right name of a feature.

    Raises:
        InvalidArgumentError: There is none of that name.
    """
    names = {each.lower(): each for each in FEATURES}
    if name.lower() in names:
        return names[name.lower()]
    near = get_close_matches(name.lower(), names, 3)
    raise InvalidArgumentError(
        f"there is no table feature {name!r}",
        hint=f"did you mean {' or '.join(names[each] for each in near)}?"
        if near
        else "PROTOCOL.md of Delta lists them",
    )


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value).strip() if name.lower().startswith("delta.") else str(value)
    raise InvalidArgumentError(f"property {name} is {value!r}", hint="properties are texts")


def _wanted_feature(name: str, text: str) -> str:
    if text.lower() not in ("supported", "enabled"):
        raise InvalidArgumentError(f"{name} is {text!r}", hint="features are set to 'supported'")
    return feature_of(name[len(FEATURE) :])


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
        raise InvalidArgumentError(f"{known.name} takes {known.takes}, not {text!r}")
    if known.managed and text.lower() != "false":
        raise UnsupportedFeatureError(
            f"{known.name} cannot be set to {text}: {known.managed}",
            feature=known.name,
            hint="leave it out",
        )
