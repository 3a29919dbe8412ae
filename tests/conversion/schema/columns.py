"""Metadata of Delta tables, and their files without data: just what a log says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delvec.delta.log.file_set import FileSet
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.schema.metadata import Metadata
from delvec.storage import Storage
from tests.delta.builder import TableBuilder

Json = dict[str, Any]


def column(
    name: str,
    kind: Any,  # noqa: ANN401
    metadata: Mapping[str, Any] | None = None,
    *,
    nullable: bool = True,
) -> Json:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": dict(metadata or {})}


def mapped(
    number: int,
    name: str,
    kind: Any,  # noqa: ANN401
    physical_name: str | None = None,
    nested_ids: Mapping[str, int] | None = None,
    *,
    nullable: bool = True,
) -> Json:
    """A column with an id, as column mapping has it."""
    physical = physical_name or f"col-{number}"
    keys: Json = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    if nested_ids:
        keys["delta.columnMapping.nested.ids"] = {
            f"{physical}.{path}": each for path, each in nested_ids.items()
        }
    return column(name, kind, keys, nullable=nullable)


def struct(*fields: Json) -> Json:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any, *, contains_null: bool = True) -> Json:  # noqa: ANN401
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def of_map(key: Any, value: Any) -> Json:  # noqa: ANN401
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def metadata_of(
    *columns: Json, partitions: Sequence[str] = (), mode: str = "none", **properties: str
) -> Metadata:
    configuration = {key.replace("__", "."): value for key, value in properties.items()}
    return Metadata.from_json(
        {
            "schemaString": json.dumps(struct(*columns)),
            "partitionColumns": list(partitions),
            "configuration": {"delta.columnMapping.mode": mode, **configuration},
        }
    )


def files_of(root: Path, metadata: Metadata, *adds: Json) -> FileSet:
    """Give the files of a table whose log has these adds; nobody asks for the data."""
    table = TableBuilder(root)
    value = {**table.metadata(), **metadata.to_json()}
    whole = [
        {
            "path": f"part-{at}.parquet",
            "partitionValues": {},
            "size": 100,
            "modificationTime": 0,
            "dataChange": True,
            **add,
            "stats": json.dumps(add.get("stats", {})),
        }
        for at, add in enumerate(adds)
    ]
    features = ["deletionVectors", "columnMapping", "timestampNtz"]
    protocol = table.protocol | {"readerFeatures": features, "writerFeatures": features}
    table.commit({"protocol": protocol}, {"metaData": value}, *({"add": each} for each in whole))
    return open_snapshot(Storage.open(root)).files
