"""The protocol of a table and its features: what they demand, and what delvec supports.

The one place that decides. A feature for writers alone does not change what a reader sees, except
for collations, which change which rows are equal.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from delvec.calls import called_property
from delvec.delta.schema.metadata import Property
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError
from delvec.report.format import did_you_mean

# What delvec does when a table has the feature and has it switched on:
#   handled      delvec writes as the feature demands
#   append_only  rows are added, and never changed or removed
#   identity     values of identity columns are generated, and never updated
#   no_vectors   neither data files nor vectors are written
#   no_files     no data files are written; vectors are
#   moved        nothing is written at all
Writing: TypeAlias = Literal[
    "handled", "append_only", "identity", "no_vectors", "no_files", "moved"
]
READERS_WITH_FEATURES: Final = 3
WRITERS_WITH_FEATURES: Final = 7


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature."""

    name: str
    for_readers: bool = False  # whether readers must support it
    is_read: bool = True  # whether delvec supports reading it
    advice: str = ""  # the hint of errors where it is not read or not written
    writing: Writing = "handled"  # what delvec does on writing
    # The property that is true where the feature is in use; empty if there is none.
    switch: str = ""
    # The lowest (reader, writer) versions that have the feature without naming it.
    versions: tuple[int, int] | None = None
    needs: tuple[str, ...] = ()  # other features that must be there as well


_CATALOG: Final = "its commits are in a catalog: read it through the catalog that owns it"
_PLAIN: Final = "copy the table to one without the feature, with the engine that wrote it"
_ELSEWHERE: Final = "the table has moved: read it at its new place"
_MOVED: Final = "the table has moved: write it at its new place"
_ICEBERG: Final = "write it with the engine that keeps its Iceberg metadata"
_MAPPED: Final = "columnMapping"


def _iceberg(name: str, writing: Writing, switch: str = "", *needs: str) -> Feature:
    return Feature(name, advice=_ICEBERG, writing=writing, switch=switch, needs=needs)


FEATURES: Final = {
    feature.name: feature
    for feature in (
        Feature("deletionVectors", for_readers=True, switch=Property.ENABLE_DELETION_VECTORS),
        Feature("columnMapping", for_readers=True, versions=(2, 5)),
        Feature("v2Checkpoint", for_readers=True),
        Feature("timestampNtz", for_readers=True),
        Feature("typeWidening", for_readers=True, switch=Property.ENABLE_TYPE_WIDENING),
        Feature("typeWidening-preview", for_readers=True),
        Feature("variantType", for_readers=True),
        Feature("variantType-preview", for_readers=True),
        Feature("variantShredding", for_readers=True, switch=Property.ENABLE_VARIANT_SHREDDING),
        Feature("variantShredding-preview", for_readers=True),
        Feature("vacuumProtocolCheck", for_readers=True),
        Feature("catalogManaged", for_readers=True, is_read=False, advice=_CATALOG),
        Feature("catalogOwned-preview", for_readers=True, is_read=False, advice=_CATALOG),
        Feature("adaptiveMetadata-preview", for_readers=True, is_read=False, advice=_PLAIN),
        Feature("adaptiveMetadata", for_readers=True, is_read=False, advice=_PLAIN),
        Feature("geospatial", for_readers=True, is_read=False, advice=_PLAIN),
        Feature("redirectReaderWriter-preview", for_readers=True, is_read=False, advice=_ELSEWHERE),
        Feature("collations", is_read=False, advice=_PLAIN),
        Feature("collations-preview", is_read=False, advice=_PLAIN),
        Feature("redirectWriterOnly-preview", advice=_MOVED, writing="moved"),
        Feature(
            "appendOnly",
            advice=f"set {Property.APPEND_ONLY} to false",
            writing="append_only",
            switch=Property.APPEND_ONLY,
            versions=(1, 2),
        ),
        Feature("invariants", versions=(1, 2)),
        Feature("checkConstraints", versions=(1, 3)),
        Feature("generatedColumns", versions=(1, 4)),
        Feature("allowColumnDefaults"),
        Feature(
            "identityColumns",
            advice="update other columns only, or delete the rows and insert new ones",
            writing="identity",
            versions=(1, 6),
        ),
        Feature("changeDataFeed", switch=Property.ENABLE_CHANGE_DATA_FEED, versions=(1, 4)),
        Feature("rowTracking", switch=Property.ENABLE_ROW_TRACKING, needs=("domainMetadata",)),
        Feature("domainMetadata"),
        Feature("inCommitTimestamp", switch=Property.ENABLE_IN_COMMIT_TIMESTAMPS),
        Feature("clustering", needs=("domainMetadata",)),
        _iceberg("icebergCompatV1", "no_vectors", Property.ENABLE_ICEBERG_COMPAT_V1, _MAPPED),
        _iceberg("icebergCompatV2", "no_vectors", Property.ENABLE_ICEBERG_COMPAT_V2, _MAPPED),
        _iceberg(
            "icebergCompatV3", "no_files", Property.ENABLE_ICEBERG_COMPAT_V3, _MAPPED, "rowTracking"
        ),
        _iceberg(
            "icebergWriterCompatV1",
            "no_vectors",
            Property.ENABLE_ICEBERG_WRITER_COMPAT_V1,
            "icebergCompatV2",
        ),
        _iceberg(
            "icebergWriterCompatV3",
            "no_files",
            Property.ENABLE_ICEBERG_WRITER_COMPAT_V3,
            "icebergCompatV3",
        ),
        _iceberg("materializePartitionColumns", "no_files"),
        Feature("checkpointProtection"),
    )
}


def implied_by(reader: int, writer: int) -> frozenset[str]:
    """Return the features that a protocol without lists has by its versions.

    >>> sorted(implied_by(1, 3))
    ['appendOnly', 'checkConstraints', 'invariants']
    """
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if feature.versions and feature.versions[0] <= reader and feature.versions[1] <= writer
    )


def feature_name(name: str) -> str:
    """Return the name of a feature as the protocol spells it."""
    names = {each.lower(): each for each in FEATURES}
    if name.lower() in names:
        return names[name.lower()]
    raise InvalidArgumentError(
        f"there is no table feature {name!r}",
        hint=did_you_mean(name, FEATURES) or "PROTOCOL.md of Delta lists them",
    )


@dataclass(frozen=True, slots=True)
class Protocol:
    """The protocol action of a table.

    >>> Protocol.from_json({"minReaderVersion": 1, "minWriterVersion": 2}).reader_features
    frozenset()
    """

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    if not TYPE_CHECKING:  # for t.protocol(), as deltalake has it; to a type checker it is none

        def __call__(self) -> None:
            """Explain that there is nothing to call."""
            raise called_property("protocol")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Protocol:
        """Read the `protocol` action."""
        versions = [value.get(key) for key in ("minReaderVersion", "minWriterVersion")]
        reader, writer = versions
        if not (type(reader) is int and type(writer) is int and reader > 0 and writer > 0):
            raise FormatError(
                "the protocol names no versions",
                expected="minReaderVersion and minWriterVersion of 1 and more",
                found=repr(versions)[:80],
            )
        lists = [value.get(key) for key in ("readerFeatures", "writerFeatures")]
        for names in lists:
            if names is not None and not (
                isinstance(names, list) and all(isinstance(name, str) for name in names)
            ):
                raise FormatError(
                    "features of the protocol are no list of names", found=repr(names)[:80]
                )
        return cls(reader, writer, *(frozenset(names or ()) for names in lists))

    def to_json(self) -> dict[str, Any]:
        """Return the `protocol` action; features are listed by the versions that have lists."""
        value: dict[str, Any] = {
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
        }
        if self.min_reader_version >= READERS_WITH_FEATURES:
            value["readerFeatures"] = sorted(self.reader_features)
        if self.min_writer_version >= WRITERS_WITH_FEATURES:
            value["writerFeatures"] = sorted(self.writer_features)
        return value

    @property
    def supported(self) -> frozenset[str]:
        """All features that the table may use: those listed, or implied by the versions."""
        if self.min_writer_version >= WRITERS_WITH_FEATURES:
            return self.features
        return implied_by(self.min_reader_version, self.min_writer_version)

    @property
    def has_vectors(self) -> bool:
        """Whether files of the table may have deletion vectors."""
        return "deletionVectors" in self.reader_features

    @property
    def features(self) -> frozenset[str]:
        """All features that the protocol lists, for readers and for writers."""
        return self.reader_features | self.writer_features

    def require_readable(self, table: str) -> None:
        """Refuse a table that delvec would read wrong."""
        if self.min_reader_version > READERS_WITH_FEATURES:
            raise UnsupportedFeatureError(
                f"{table} needs a reader of protocol version {self.min_reader_version};"
                f" delvec knows versions up to {READERS_WITH_FEATURES}",
                feature=f"minReaderVersion {self.min_reader_version}",
                needed_by=table,
                hint="is there a newer delvec?",
            )
        is_listed = self.min_reader_version >= READERS_WITH_FEATURES
        needed = self.reader_features if is_listed else frozenset[str]()
        refused = sorted(needed - {name for name, known in FEATURES.items() if known.is_read})
        refused += sorted(
            name
            for name in self.features - self.reader_features
            if name in FEATURES and not FEATURES[name].is_read
        )
        if refused:
            advice = [FEATURES[name].advice for name in refused if name in FEATURES]
            raise UnsupportedFeatureError(
                f"{table} needs a reader that knows {', '.join(refused)};"
                " delvec would read wrong rows without",
                feature=refused[0],
                needed_by=table,
                hint=next(iter(advice), "is there a newer delvec?"),
            )
