"""The protocol of a table: what it demands of readers and writers, and what delvec supports.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.schema.features import FEATURES, Feature, implied_by
from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.spellings import called_property

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FEATURES", "READERS_WITH_FEATURES", "WRITERS_WITH_FEATURES", "Feature", "Protocol"]


READERS_WITH_FEATURES: Final = 3
WRITERS_WITH_FEATURES: Final = 7


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
        """Refuse a table that delvec would read wrong.

        Raises:
            UnsupportedFeatureError: With the feature and what helps.
        """
        if self.min_reader_version > READERS_WITH_FEATURES:
            raise UnsupportedFeatureError(
                f"{table} needs a reader of protocol version {self.min_reader_version};"
                f" delvec knows versions up to {READERS_WITH_FEATURES}",
                feature=f"minReaderVersion {self.min_reader_version}",
                needed_by=table,
                hint="is there a newer delvec?",
            )
        needed = (
            self.reader_features
            if self.min_reader_version >= READERS_WITH_FEATURES
            else frozenset()
        )
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
