"""The protocol and metadata of a table: which schemas are valid, and the features that they need.

Protocols are those that delta-spark would choose: plain versions where they imply exactly the
features, else writer version 7, and reader version 3 if a feature has no lower reader version.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.change_feed import FEED_COLUMNS
from delvec.delta.schema import expressions
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.protocol import (
    FEATURES,
    READERS_WITH_FEATURES,
    WRITERS_WITH_FEATURES,
    Protocol,
    implied_by,
)
from delvec.delta.schema.traversal import all_fields, is_void, primitives, walk
from delvec.delta.schema.types import DataType, Field, PrimitiveType, StructType
from delvec.delta.skipping.clustering import (
    Paths,
    clustered_by,
    clustering_domain,
    clustering_paths,
)
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.report.hints import call, format_hint

_OF_TYPES: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_OF_METADATA: Final = {
    expressions.GENERATION: "generatedColumns",
    expressions.CURRENT_DEFAULT: "allowColumnDefaults",
    expressions.INVARIANT: "invariants",
}
_FORBIDDEN: Final = " ,;{}()\n\t="
_COLLATIONS: Final = "__COLLATIONS"  # of the strings in a field, by their places


@dataclass(frozen=True)
class TableState:
    """The protocol and the metadata of a table, and its clustering."""

    protocol: Protocol
    metadata: Metadata
    clustering: Paths = ()  # the columns by which it is clustered, by physical names

    @classmethod
    def of(cls, snapshot: Snapshot) -> TableState:
        return cls(snapshot.protocol, snapshot.metadata, clustered_by(snapshot.domains))

    @property
    def schema(self) -> StructType:
        return self.metadata.schema

    def with_properties(self, properties: Mapping[str, str]) -> TableState:
        return replace(self, metadata=replace(self.metadata, configuration=dict(properties)))

    def with_schema(self, schema: StructType) -> TableState:
        written = json.dumps(schema.to_json(), separators=(",", ":"), ensure_ascii=False)
        return replace(self, metadata=replace(self.metadata, schema_string=written))

    def clustered(self, columns: Sequence[str]) -> TableState:
        """Return the state of a table that is clustered by columns, or by none."""
        paths = clustering_paths(self.metadata, columns)
        return replace(self.with_features(["clustering"] if paths else []), clustering=paths)

    def new_domains(self, was: TableState | None = None) -> dict[str, str]:
        """Return the metadata domains that the commit of this state has to write."""
        before = () if was is None else was.clustering
        return {} if self.clustering == before else clustering_domain(self.clustering)

    def with_features(self, names: Iterable[str]) -> TableState:
        """Add table features to the protocol, and those that they depend on."""
        return replace(self, protocol=add_features(self.protocol, names))

    def upgraded(self, was: TableState, *, for_readers: bool = False) -> TableState:
        """Add the features that a change of the metadata needs; of readers only if told so."""
        # Features that the metadata needed before, and the protocol lacks, are not added here.
        missing = needed_features(self.metadata) - needed_features(was.metadata)
        missing -= self.protocol.supported
        # A feature and its preview have the same format.
        missing -= {name.removesuffix("-preview") for name in self.protocol.supported}
        refused = sorted(name for name in missing if FEATURES[name].for_readers)
        if refused and not for_readers:
            raise InvalidArgumentError(
                f"this needs the table feature {', '.join(refused)}: readers that do not"
                " support it could not read the table any more",
                hint=format_hint("{} adds it", call("enable_deletion_vectors"))
                if refused[0] == "deletionVectors"
                else format_hint("{} adds it", call("add_feature", refused[0])),
            )
        return self.with_features(missing) if missing else self


def needed_features(metadata: Metadata) -> frozenset[str]:
    needed = {
        feature.name
        for feature in FEATURES.values()
        if feature.switch and metadata.is_on(feature.switch)
    }
    if metadata.mapping_mode != "none":
        needed.add("columnMapping")
    if metadata.configuration.get(Property.CHECKPOINT_POLICY) == "v2":
        needed.add("v2Checkpoint")
    if expressions.constraints(metadata):
        needed.add("checkConstraints")
    for field in all_fields(metadata.schema):
        needed |= set(_needed_by(field))
    return _closure(needed)


def add_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return the lowest protocol that supports more features, and all that the old one does.

    >>> add_features(Protocol(1, 2), ["checkConstraints"])  # doctest: +ELLIPSIS
    Protocol(min_reader_version=1, min_writer_version=3, ...
    """
    features = protocol.supported | _closure(names)
    return protocol if features == protocol.supported else lowest_protocol(features, protocol)


def lowest_protocol(features: Iterable[str], at_least: Protocol | None = None) -> Protocol:
    """Return the lowest protocol that supports exactly some features, as delta-spark chooses it.

    >>> lowest_protocol(["appendOnly", "invariants"])  # doctest: +ELLIPSIS
    Protocol(min_reader_version=1, min_writer_version=2, ...
    >>> lowest_protocol(["columnMapping", "rowTracking"]).min_reader_version
    2
    """
    wanted, at_least = frozenset(features), at_least or Protocol(1, 1)
    unknown = wanted - FEATURES.keys() - at_least.writer_features
    readers = {name for name, each in FEATURES.items() if each.for_readers and name in wanted}
    readers |= at_least.reader_features | unknown
    lowest = 1 if not readers else 2 if readers == {"columnMapping"} else READERS_WITH_FEATURES
    reader = max(lowest, at_least.min_reader_version)
    if reader < READERS_WITH_FEATURES:
        for writer in range(at_least.min_writer_version, WRITERS_WITH_FEATURES):
            if implied_by(reader, writer) == wanted:
                return Protocol(reader, writer)
    named = frozenset(readers) if reader >= READERS_WITH_FEATURES else frozenset()
    return Protocol(reader, WRITERS_WITH_FEATURES, named, wanted)


def require_valid_schema(metadata: Metadata) -> None:
    schema = metadata.schema
    if not schema.fields:
        raise InvalidArgumentError("the table has no columns", hint="give it at least one")
    _require_distinct(schema, "the table")
    for field in all_fields(schema):
        _require_distinct(field.type, field.name)
        if metadata.mapping_mode == "none" and any(each in field.name for each in _FORBIDDEN):
            raise InvalidArgumentError(
                f"column {field.name!r} has one of {_FORBIDDEN!r} in its name",
                hint="use another name, or set delta.columnMapping.mode to name",
            )
    _require_storable(schema)
    if metadata.is_on(Property.ENABLE_CHANGE_DATA_FEED):
        taken = [name for name in schema.names if name.lower() in FEED_COLUMNS.names]
        if taken:
            raise InvalidArgumentError(
                f"column {taken[0]} has a name that the change data feed reserves",
                hint="rename it, or leave delta.enableChangeDataFeed off",
            )
    _require_partitions(metadata)


def require_no_collations(schema: StructType, known: StructType | None = None) -> None:
    """Refuse strings with a collation, as delta-spark does, unless the table has them already."""
    old = {each.physical_name for each in all_fields(known)} if known is not None else set()
    for field in all_fields(schema):
        if (found := field.metadata.get(_COLLATIONS)) and field.physical_name not in old:
            raise UnsupportedFeatureError(
                f"column {field.name} has a collation, by which other strings are equal: {found}",
                feature="collations",
                hint=f"cast it to a plain string: CAST({field.name} AS STRING COLLATE UTF8_BINARY)",
            )


def require_nullable_elements(schema: StructType) -> None:
    """Refuse NOT NULL fields inside arrays and maps: delta-spark does not write such tables."""
    for *above, field in walk(schema):
        holder = next((each for each in above if not isinstance(each.type, StructType)), None)
        if holder is not None and not field.nullable:
            raise InvalidArgumentError(
                f"column {holder.name} has a NOT NULL field inside an array or a map",
                hint="Delta allows none there: make it nullable",
            )


def _require_storable(schema: StructType) -> None:
    """Refuse columns without a type where files could not omit them, as delta-spark does."""
    for path in walk(schema):
        kind = path[-1].type
        in_structs = all(isinstance(above.type, StructType) for above in path[:-1])
        has_void = any(each.name == "void" for each in primitives(kind))
        is_empty = isinstance(kind, StructType) and is_void(path[-1])
        if is_empty or (has_void and not (in_structs and is_void(path[-1]))):
            raise InvalidArgumentError(
                f"column {'.'.join(each.name for each in path)} has no type: it is {kind}",
                hint="cast it to the type of its values",
            )
    if all(map(is_void, schema.fields)):
        raise InvalidArgumentError(
            f"all columns have no type, and data files would be empty: {', '.join(schema.names)}",
            hint="give at least one column the type of its values",
        )


def _needed_by(field: Field) -> Iterator[str]:
    if not field.nullable:
        yield "invariants"
    for key in field.metadata:
        if key in _OF_METADATA:
            yield _OF_METADATA[key]
        elif key.startswith(expressions.IDENTITY):
            yield "identityColumns"
    for kind in primitives(field.type):
        if kind.name in _OF_TYPES:
            yield _OF_TYPES[kind.name]


def _closure(names: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(FEATURES[name].needs)
    return frozenset(found)


def _require_distinct(kind: DataType, where: str) -> None:
    if not isinstance(kind, StructType):
        return
    counts = Counter(name.lower() for name in kind.names)
    equal = [name for name in kind.names if counts[name.lower()] > 1]
    if equal:
        raise InvalidArgumentError(
            f"{where} has more than one column of the same name: {', '.join(equal)}",
            hint="names that differ in case only are the same to Delta",
        )


def _require_partitions(metadata: Metadata) -> None:
    columns = metadata.partition_columns
    if len({name.lower() for name in columns}) < len(columns):
        raise InvalidArgumentError(f"a partition column is named twice: {', '.join(columns)}")
    for name in columns:
        kind = metadata.schema.field(name).type
        if not isinstance(kind, PrimitiveType) or kind.name in ("variant", "void"):
            raise InvalidArgumentError(
                f"the table cannot be partitioned by {name}, which is {kind}",
                hint="partition by a column of a primitive type",
            )
    if len(columns) == len(metadata.schema.fields):
        raise InvalidArgumentError(
            "the table is partitioned by all its columns, and data files would have none",
            hint="leave one out",
        )
