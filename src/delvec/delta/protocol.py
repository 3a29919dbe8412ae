"""What a table demands of who reads it, and what delvec knows of that.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import FormatError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FEATURES", "Feature", "Protocol"]


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature: whether readers must know it, whether delvec reads it rightly."""

    name: str
    for_readers: bool
    is_read: bool = True
    advice: str = ""


_CATALOG: Final = "its commits are in a catalog: read it through the catalog that owns it"
_PLAIN: Final = "copy the table to one without the feature, with the engine that wrote it"

# The one place that decides what is read. Features for writers alone leave the rows as they are.
FEATURES: Final = {
    feature.name: feature
    for feature in (
        Feature("deletionVectors", for_readers=True),
        Feature("columnMapping", for_readers=True),
        Feature("v2Checkpoint", for_readers=True),
        Feature("timestampNtz", for_readers=True),
        Feature("typeWidening", for_readers=True),
        Feature("typeWidening-preview", for_readers=True),
        Feature("variantType", for_readers=True),
        Feature("variantType-preview", for_readers=True),
        Feature("variantShredding", for_readers=True),
        Feature("variantShredding-preview", for_readers=True),
        Feature("vacuumProtocolCheck", for_readers=True),
        Feature("catalogManaged", for_readers=True, is_read=False, advice=_CATALOG),
        Feature("catalogOwned-preview", for_readers=True, is_read=False, advice=_CATALOG),
        Feature("adaptiveMetadata-preview", for_readers=True, is_read=False, advice=_PLAIN),
        Feature("adaptiveMetadata", for_readers=True, is_read=False, advice=_PLAIN),
        Feature("geospatial", for_readers=True, is_read=False, advice=_PLAIN),
        Feature(
            "redirectReaderWriter-preview",
            for_readers=True,
            is_read=False,
            advice="the table has moved: read it at its new place",
        ),
        # Collations are announced to writers alone, and yet change which rows are equal.
        Feature("collations", for_readers=False, is_read=False, advice=_PLAIN),
        Feature("collations-preview", for_readers=False, is_read=False, advice=_PLAIN),
        Feature("redirectWriterOnly-preview", for_readers=False),
        Feature("appendOnly", for_readers=False),
        Feature("invariants", for_readers=False),
        Feature("checkConstraints", for_readers=False),
        Feature("generatedColumns", for_readers=False),
        Feature("allowColumnDefaults", for_readers=False),
        Feature("identityColumns", for_readers=False),
        Feature("changeDataFeed", for_readers=False),
        Feature("rowTracking", for_readers=False),
        Feature("domainMetadata", for_readers=False),
        Feature("inCommitTimestamp", for_readers=False),
        Feature("clustering", for_readers=False),
        Feature("icebergCompatV1", for_readers=False),
        Feature("icebergCompatV2", for_readers=False),
        Feature("icebergCompatV3", for_readers=False),
        Feature("icebergWriterCompatV1", for_readers=False),
        Feature("icebergWriterCompatV3", for_readers=False),
        Feature("materializePartitionColumns", for_readers=False),
        Feature("checkpointProtection", for_readers=False),
    )
}

_NEWEST_READER: Final = 3
_WITH_FEATURES: Final = 3


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

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Protocol:
        """Read the `protocol` action."""
        versions = [value.get(key) for key in ("minReaderVersion", "minWriterVersion")]
        reader, writer = versions
        if not (type(reader) is int and type(writer) is int and reader > 0 and writer > 0):
            raise FormatError(
                "the protocol names no versions",
                expected="minReaderVersion and minWriterVersion of 1 and more",
                found=versions,
            )
        lists = [value.get(key) for key in ("readerFeatures", "writerFeatures")]
        for names in lists:
            if names is not None and not (
                isinstance(names, list) and all(isinstance(name, str) for name in names)
            ):
                raise FormatError("features of the protocol are no list of names", found=names)
        return cls(reader, writer, *(frozenset(names or ()) for names in lists))

    @property
    def has_vectors(self) -> bool:
        """Whether files of the table may have deletion vectors."""
        return "deletionVectors" in self.reader_features

    @property
    def features(self) -> frozenset[str]:
        """All features that the protocol names, for readers and for writers."""
        return self.reader_features | self.writer_features

    def require_readable(self, table: str) -> None:
        """Refuse what delvec would read wrongly, by name.

        Raises:
            UnsupportedFeatureError: With the feature and what helps.
        """
        if self.min_reader_version > _NEWEST_READER:
            raise UnsupportedFeatureError(
                f"{table} needs a reader of protocol version {self.min_reader_version};"
                f" delvec knows versions up to {_NEWEST_READER}",
                feature=f"minReaderVersion {self.min_reader_version}",
                needed_by=table,
                hint="is there a newer delvec?",
            )
        needed = self.reader_features if self.min_reader_version >= _WITH_FEATURES else frozenset()
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
