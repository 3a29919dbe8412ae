"""Whether delvec can write to a table: each table feature is supported or refused by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.change_feed import require_feed_names
from delvec.delta.schema.column_metadata import identity_fields
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.protocol import FEATURES, WRITERS_WITH_FEATURES, Feature
from delvec.errors import UnsupportedFeatureError
from delvec.identifiers import require_no_own_names

WriteKind: TypeAlias = Literal[
    "append", "overwrite", "delete", "update", "merge", "alter", "optimize", "restore", "vacuum"
]

_REMOVING: Final = ("overwrite", "delete", "update", "merge", "restore")
_WITH_ROWS: Final = ("append", "overwrite", "delete", "update", "merge", "optimize")
_WRITING_FILES: Final = ("append", "overwrite", "update", "merge", "optimize")


def require_writable(
    snapshot: Snapshot,
    operation: WriteKind,
    *,
    columns_set: Collection[str] = (),
    rewrites: bool = False,
) -> None:
    """Refuse an operation on a table with a feature in use that delvec does not write."""
    _require_known(snapshot)
    writes_files = operation in _WRITING_FILES or (
        operation == "delete" and (rewrites or not _vectors_are_on(snapshot))
    )
    if operation in _WITH_ROWS:
        # Columns may not be called like those that a write adds to the rows.
        metadata, table = snapshot.metadata, snapshot.table
        physical = [each.physical_name for each in metadata.schema.fields]
        require_no_own_names([*metadata.schema.names, *physical], table)
        if metadata.is_on(Property.ENABLE_CHANGE_DATA_FEED):
            require_feed_names(table, metadata.schema)
    touched = {name.lower() for name in columns_set}
    for feature in FEATURES.values():
        if not _is_in_use(feature, snapshot):
            continue
        refused = {
            "handled": not feature.is_read,
            "append_only": operation in _REMOVING,
            "identity": bool(touched & _identity_columns(snapshot)),
            "no_vectors": writes_files or operation == "delete",
            "no_files": writes_files,
            "moved": True,
        }
        if refused[feature.writing]:
            raise _refusal(snapshot, f"{operation} on {snapshot.table}", feature)


def writes_vectors(snapshot: Snapshot) -> bool:
    """Return whether deletes write deletion vectors; if not, they rewrite files."""
    if not _vectors_are_on(snapshot):
        return False
    for feature in FEATURES.values():
        if feature.writing == "no_vectors" and _is_in_use(feature, snapshot):
            raise _refusal(snapshot, f"a vector for {snapshot.table}", feature)
    if snapshot.metadata.is_on(Property.SYMLINK_MANIFEST):
        raise UnsupportedFeatureError(
            f"{snapshot.table} has deletion vectors and {Property.SYMLINK_MANIFEST} switched on:"
            " readers of the manifest would see deleted rows",
            feature=Property.SYMLINK_MANIFEST,
            needed_by=snapshot.table,
            hint=f"unset {Property.SYMLINK_MANIFEST}, or set {Property.ENABLE_DELETION_VECTORS} to"
            " false",
        )
    return True


def _vectors_are_on(snapshot: Snapshot) -> bool:
    is_on = snapshot.metadata.is_on(Property.ENABLE_DELETION_VECTORS)
    return snapshot.protocol.has_vectors and is_on


def _require_known(snapshot: Snapshot) -> None:
    protocol, table = snapshot.protocol, snapshot.table
    if protocol.min_writer_version > WRITERS_WITH_FEATURES:
        raise UnsupportedFeatureError(
            f"{table} needs a writer of protocol version {protocol.min_writer_version};"
            f" delvec knows versions up to {WRITERS_WITH_FEATURES}",
            feature=f"minWriterVersion {protocol.min_writer_version}",
            needed_by=table,
            hint="is there a newer delvec?",
        )
    unknown = sorted(protocol.features - FEATURES.keys())
    if unknown:
        raise UnsupportedFeatureError(
            f"{table} needs a writer that supports {', '.join(unknown)}; delvec would break it",
            feature=unknown[0],
            needed_by=table,
            hint="is there a newer delvec? Reading works without it",
        )


def _is_in_use(feature: Feature, snapshot: Snapshot) -> bool:
    """Return whether a feature is in use: by its property, or else by the protocol.

    A property counts even where the protocol does not list its feature, as in other engines.
    """
    if feature.switch:
        return snapshot.metadata.is_on(feature.switch)
    if feature.writing == "identity":
        return bool(_identity_columns(snapshot))
    return feature.name in snapshot.protocol.supported


def _identity_columns(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(each.name.lower() for each in identity_fields(snapshot.metadata.schema))


def _refusal(snapshot: Snapshot, what: str, feature: Feature) -> UnsupportedFeatureError:
    reasons = {
        "append_only": "the table is append-only",
        "identity": "values of identity columns cannot be updated",
        "moved": "the table has moved",
    }
    reason = reasons.get(feature.writing, "delvec does not write what it requires")
    return UnsupportedFeatureError(
        f"{what} is refused because of {feature.name}: {reason}",
        feature=feature.name,
        needed_by=snapshot.table,
        hint=feature.advice or "is there a newer delvec?",
    )
