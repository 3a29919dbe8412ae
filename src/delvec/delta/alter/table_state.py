"""The protocol and metadata of a table, and the table features that its metadata needs.

Protocols are those that delta-spark would choose: plain versions where they imply exactly the
features, else writer version 7, and reader version 3 if a feature has no lower reader version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from delvec.delta.schema.expressions import (
    CURRENT_DEFAULT,
    GENERATION,
    IDENTITY,
    INVARIANT,
    constraints,
)
from delvec.delta.schema.features import FEATURES, implied_by
from delvec.delta.schema.properties import CHECKPOINT_POLICY
from delvec.delta.schema.protocol import READERS_WITH_FEATURES, WRITERS_WITH_FEATURES, Protocol
from delvec.delta.schema.walk import all_fields, primitives
from delvec.errors import InvalidArgumentError
from delvec.report.wordings import call, worded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import Field, StructType

__all__ = ["TableState", "needed_features", "with_features"]

_OF_TYPES: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_OF_METADATA: Final = {
    GENERATION: "generatedColumns",
    CURRENT_DEFAULT: "allowColumnDefaults",
    INVARIANT: "invariants",
}


@dataclass(frozen=True)
class TableState:
    """The protocol and the metadata of a table."""

    protocol: Protocol
    metadata: Metadata

    @classmethod
    def of(cls, snapshot: Snapshot) -> TableState:
        """Return the state of a version."""
        return cls(snapshot.protocol, snapshot.metadata)

    @property
    def schema(self) -> StructType:
        """The columns of the table."""
        return self.metadata.schema

    def with_properties(self, properties: Mapping[str, str]) -> TableState:
        """Replace all properties by these."""
        return replace(self, metadata=replace(self.metadata, configuration=dict(properties)))

    def with_schema(self, schema: StructType) -> TableState:
        """Replace the schema."""
        written = json.dumps(schema.to_json(), separators=(",", ":"), ensure_ascii=False)
        return replace(self, metadata=replace(self.metadata, schema_string=written))

    def with_features(self, names: Iterable[str]) -> TableState:
        """Add table features to the protocol, and those that they depend on."""
        return replace(self, protocol=with_features(self.protocol, names))

    def upgraded(self, was: TableState) -> TableState:
        """Add the writer features that a change of the metadata needs.

        Args:
            was: The state before the change.

        Raises:
            InvalidArgumentError: It needs a reader feature, which users must add explicitly.
        """
        # Features that the metadata needed before, and the protocol lacks, are not added here.
        missing = needed_features(self.metadata) - needed_features(was.metadata)
        missing -= self.protocol.supported
        # A feature and its preview have the same format.
        missing -= {name.removesuffix("-preview") for name in self.protocol.supported}
        for_readers = sorted(name for name in missing if FEATURES[name].for_readers)
        if for_readers:
            raise InvalidArgumentError(
                f"this needs the table feature {', '.join(for_readers)}: readers that do not"
                " support it could not read the table any more",
                hint=worded("{} adds it", call("enable_deletion_vectors"))
                if for_readers[0] == "deletionVectors"
                else worded("{} adds it", call("add_feature", for_readers[0])),
            )
        return self.with_features(missing) if missing else self


def needed_features(metadata: Metadata) -> frozenset[str]:
    """Return the table features that the schema and the properties of a table need."""
    needed = {
        feature.name
        for feature in FEATURES.values()
        if feature.switch and metadata.is_on(feature.switch)
    }
    needed |= {
        name
        for name, is_used in (
            ("columnMapping", metadata.mapping_mode != "none"),
            ("v2Checkpoint", metadata.configuration.get(CHECKPOINT_POLICY) == "v2"),
            ("checkConstraints", bool(constraints(metadata))),
        )
        if is_used
    }
    for field in all_fields(metadata.schema):
        needed |= set(_needed_by(field))
    return _closure(needed)


def _needed_by(field: Field) -> Iterator[str]:
    if not field.nullable:
        yield "invariants"
    for key in field.metadata:
        if key in _OF_METADATA:
            yield _OF_METADATA[key]
        elif key.startswith(IDENTITY):
            yield "identityColumns"
    for kind in primitives(field.type):
        if kind.name in _OF_TYPES:
            yield _OF_TYPES[kind.name]


def _closure(names: Iterable[str]) -> frozenset[str]:
    """Return features and those that they depend on."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(FEATURES[name].needs)
    return frozenset(found)


def with_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return the lowest protocol that supports more features, and all that the old one does.

    >>> with_features(Protocol(1, 2), ["checkConstraints"])  # doctest: +ELLIPSIS
    Protocol(min_reader_version=1, min_writer_version=3, ...
    """
    features = protocol.supported | _closure(names)
    if features == protocol.supported:
        return protocol
    readers = {name for name in features if name in FEATURES and FEATURES[name].for_readers}
    readers |= protocol.reader_features
    lowest = 1 if not readers else 2 if readers == {"columnMapping"} else READERS_WITH_FEATURES
    reader = max(lowest, protocol.min_reader_version)
    if protocol.min_writer_version < WRITERS_WITH_FEATURES and reader < READERS_WITH_FEATURES:
        for writer in range(protocol.min_writer_version, WRITERS_WITH_FEATURES):
            if implied_by(reader, writer) == features:
                return Protocol(reader, writer)
    named = frozenset(readers) if reader >= READERS_WITH_FEATURES else frozenset()
    return Protocol(reader, WRITERS_WITH_FEATURES, named, features)
