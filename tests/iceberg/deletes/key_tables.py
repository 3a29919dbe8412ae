"""Tables without a catalog, and what the tests of deletes ask of their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from delvec.iceberg.client.catalog import LoadedTable, TableName
from delvec.iceberg.client.files import EqualityDeleteFile, from_content_file
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.deletes.write_keys import WrittenDeletes
from delvec.spark.input.key_values import KeyColumn
from delvec.storage import Storage
from delvec.storage.uncommitted import UncommittedFiles

ENABLED = {"write.delete.equality-vector.enabled": "true"}


def column(kind: str = "long", *, required: bool = False) -> KeyColumn:
    """The column k, field 7, of a type."""
    field = {"id": 7, "name": "k", "required": required, "type": kind}
    [found] = key_columns({"type": "struct", "fields": [field]}, ["k"], "t")
    return found


def loaded(
    root: Path, *, version: int = 3, properties: dict[str, str] | None = None
) -> LoadedTable:
    """A table that no catalog knows."""
    metadata = TableMetadata(
        "uuid",
        f"file:{root}",
        version,
        ENABLED if properties is None else properties,
        {"type": "struct", "fields": []},
        {},
        9,
        {},
        {},
        {},
        {},
    )
    nothing = cast("Any", None)
    return LoadedTable(nothing, TableName("lake", ("db",), "t"), nothing, metadata, nothing)


def uncommitted(root: Path) -> UncommittedFiles:
    """Files below a table."""
    return UncommittedFiles(Storage.open(root))


def entries(written: WrittenDeletes) -> list[dict[str, Any]]:
    """The manifest entries of delete files."""
    return [json.loads(each) for each in written.delete_files.to_pylist()]


def listed(written: WrittenDeletes) -> list[EqualityDeleteFile]:
    """The delete files as a manifest gives them back."""
    return [from_content_file(each, 1) for each in written.delete_files.to_pylist()]
