"""What a commit to an Iceberg table changes, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable, TableName

__all__ = ["NewSnapshot", "NewTable", "OpenTransaction", "Prepared", "RowChange", "Staged"]


def _no_files() -> pa.Array:
    return pa.array([], pa.string())


@dataclass(frozen=True, eq=False)
class RowChange:
    """The files that one snapshot adds and removes, as columns.

    Attributes:
        data_files: Data files to add, as `file_json.data_file_json` describes them.
        delete_files: Delete files to add, as `file_json.delete_file_json` describes them.
        removed_data: Paths of data files to remove.
        removed_deletes: Delete files to remove: `path@offset` for a vector in a Puffin file, else
            the path.
        data_with_new_deletes: Paths of data files of the table that get new deletes.
        summary: Additional entries of the snapshot's summary.
    """

    data_files: pa.Array = field(default_factory=_no_files)
    delete_files: pa.Array = field(default_factory=_no_files)
    removed_data: pa.Array = field(default_factory=_no_files)
    removed_deletes: pa.Array = field(default_factory=_no_files)
    data_with_new_deletes: pa.Array = field(default_factory=_no_files)
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot to be staged.

    Attributes:
        change: Its files.
        schema: The table's schema from this snapshot on; None if it does not change.
        last_column_id: The highest field id that was ever used.
        tag: The tag that it gets when it is published.
    """

    change: RowChange
    schema: Mapping[str, Any] | None = None
    last_column_id: int = 0
    tag: str | None = None


@dataclass(frozen=True)
class NewTable:
    """How to create a table that does not exist yet."""

    schema: Mapping[str, Any]
    last_column_id: int
    spec: Mapping[str, Any]
    format_version: int
    location: str | None = None


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction of Iceberg's, begun on a table that exists or is to be created.

    Attributes:
        handle: Iceberg's own object, for `commit.py` alone.
        location: Where the table is; only the catalog knows it for a new table.
        spec_id: The partition spec of added files.
        parent: The snapshot that `main` points to; None for a table without snapshots.
    """

    spark: SparkSession
    name: TableName
    handle: Any
    location: str
    spec_id: int
    parent: int | None


@dataclass(frozen=True)
class Prepared:
    """Snapshots whose manifests are written and that no commit refers to yet.

    Attributes:
        opened: The transaction.
        branch: The branch that they are staged on.
        snapshot_ids: The snapshots, oldest first.
        tags: Snapshot ids by the tag that each gets when it is published.
        schema_id: The schema of the table after publication.
        layout_until_then: The ids of the table's schema and partition spec until then.
        metadata: Iceberg's table metadata to be committed, for `commit.py` alone.
    """

    opened: OpenTransaction
    branch: str
    snapshot_ids: tuple[int, ...]
    tags: Mapping[str, int]
    schema_id: int
    layout_until_then: tuple[int, int]
    metadata: Any


@dataclass(frozen=True)
class Staged:
    """Snapshots on a branch of their own, to be published or abandoned.

    Attributes:
        table: The table after they were staged.
        snapshot_ids: The staged snapshots, oldest first.
        tags: Snapshot ids by the tag that each gets when it is published.
        parent: What `main` pointed to; None for a table without snapshots.
        schema_id: The schema of the table after publication.
        layout_until_then: The ids of the table's schema and partition spec until then.
        spec_id: The partition spec of added files, and of the table after publication.
    """

    table: LoadedTable
    branch: str
    snapshot_ids: tuple[int, ...]
    tags: Mapping[str, int]
    parent: int | None
    schema_id: int
    layout_until_then: tuple[int, int]
    spec_id: int

    @property
    def snapshot_id(self) -> int:
        """The newest staged snapshot."""
        return self.snapshot_ids[-1]
