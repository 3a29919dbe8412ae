"""What delvec writes to and what it refuses: every feature, with every operation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.protocol import FEATURES, Protocol
from delvec.delta.write.writable import WriteKind, require_writable, writes_vectors
from delvec.errors import UnsupportedFeatureError
from tests.delta.builder import field_of

OPERATIONS = get_args(WriteKind)
VECTORS = {"delta.enableDeletionVectors": "true"}
ALL = set(OPERATIONS)
FILES = {"append", "overwrite", "update", "merge", "optimize"}
# What each feature refuses where it is in use, on a table with vectors on.
REFUSED = {
    "appendOnly": {"overwrite", "delete", "update", "merge", "restore"},
    "icebergCompatV1": FILES | {"delete"},
    "icebergCompatV2": FILES | {"delete"},
    "icebergCompatV3": FILES,
    "icebergWriterCompatV1": FILES | {"delete"},
    "icebergWriterCompatV3": FILES,
    "materializePartitionColumns": FILES,
    "redirectWriterOnly-preview": ALL,
} | {name: ALL for name, feature in FEATURES.items() if not feature.is_read}


def snapshot(
    *features: str,
    properties: Mapping[str, str] | None = None,
    versions: tuple[int, int] = (3, 7),
    identity: bool = False,
) -> Snapshot:
    named = frozenset(features) if versions == (3, 7) else frozenset()
    protocol = Protocol(*versions, named, named)
    metadata: dict[str, Any] = {"delta.identity.step": 1} if identity else {}
    fields = [field_of("Id", "long", **metadata), field_of("v", "long")]
    text = json.dumps({"type": "struct", "fields": fields})
    meta = Metadata.from_json({"schemaString": text, "configuration": dict(properties or {})})
    made = SimpleNamespace(protocol=protocol, metadata=meta, table="lake/t", version=3)
    return cast("Snapshot", made)


def refusal(table: Snapshot, operation: WriteKind, **more: Any) -> str | None:  # noqa: ANN401
    """Give what the error of an operation says; None if it may be done."""
    try:
        require_writable(table, operation, **more)
    except UnsupportedFeatureError as error:
        facts = (error.feature, error.needed_by, error.hint)
        return str(error) if all(facts) and str(error.feature) in str(error) else "tells too little"
    return None


def refused(table: Snapshot, **more: Any) -> set[str]:  # noqa: ANN401
    texts = {operation: refusal(table, operation, **more) for operation in OPERATIONS}
    assert "tells too little" not in texts.values()
    return {operation for operation, text in texts.items() if text}


@pytest.mark.parametrize("name", FEATURES)
def test_every_feature_is_handled_or_refused_by_name(name: str) -> None:
    switch = FEATURES[name].switch
    on = {**VECTORS, **({switch: "TRUE"} if switch else {})}
    table = snapshot("deletionVectors", name, properties=on, identity=name == "identityColumns")
    assert refused(table) == REFUSED.get(name, set())
    if switch:
        off = snapshot("deletionVectors", name, properties={**VECTORS, switch: "false"})
        assert refused(off) == set()


@pytest.mark.parametrize("writer", range(1, 7))
def test_protocols_of_old_are_written(writer: int) -> None:
    assert refused(snapshot(versions=(1, writer))) == set()
    table = snapshot(versions=(1, writer), properties={"delta.appendOnly": "true"})
    assert refused(table) == REFUSED["appendOnly"]


def test_newer_writers_and_unknown_features_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="protocol version 8; delvec knows") as error:
        require_writable(snapshot(versions=(3, 8)), "delete")
    assert error.value.feature == "minWriterVersion 8"
    with pytest.raises(UnsupportedFeatureError, match="supports fromTheFuture") as error:
        require_writable(snapshot("deletionVectors", "fromTheFuture"), "alter")
    assert error.value.feature == "fromTheFuture"


def test_identity_columns_keep_their_values() -> None:
    table = snapshot("identityColumns", identity=True)
    assert {"update", "merge"} <= refused(table, columns_set=["ID"])
    assert not refused(table, columns_set=["v"])


def test_a_delete_that_writes_files_needs_leave_to_write_files() -> None:
    on = {**VECTORS, "delta.enableIcebergCompatV3": "true"}
    table = snapshot("deletionVectors", "icebergCompatV3", properties=on)
    require_writable(table, "delete")
    for by, rewrites in ((table, True), (snapshot("icebergCompatV3", properties=on), False)):
        with pytest.raises(UnsupportedFeatureError, match="icebergCompatV3"):
            require_writable(by, "delete", rewrites=rewrites)


def test_vectors_are_written_where_they_are_on_and_nothing_forbids_them() -> None:
    assert writes_vectors(snapshot("deletionVectors", properties=VECTORS))
    assert not writes_vectors(snapshot("deletionVectors"))
    assert not writes_vectors(snapshot(properties=VECTORS))
    assert not writes_vectors(snapshot(properties={Property.SYMLINK_MANIFEST: "true"}))
    for name in (
        Property.SYMLINK_MANIFEST,
        "delta.enableIcebergCompatV1",
        "delta.enableIcebergCompatV2",
    ):
        table = snapshot("deletionVectors", properties={**VECTORS, name: "true"})
        feature = name if name == Property.SYMLINK_MANIFEST else name.removeprefix("delta.enable")
        with pytest.raises(UnsupportedFeatureError, match=f"(?i){feature}"):
            writes_vectors(table)
