"""What is looked for: the live rows of some data files that have a deleted key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.chosen_files import DataFilesWithKeys
    from delvec.iceberg.deletes.key_filter import ScopedDelete

__all__ = ["FILE", "KEY_HASH", "PLACE", "Search"]

FILE: Final = "_file"
"""The column of a found row's data file, as the manifest spells it."""
PLACE: Final = "_pos"
"""The column of its position there."""
KEY_HASH: Final = "__delvec_key_hash"
"""The column of the hash of its key columns."""


@dataclass(frozen=True, eq=False)
class Search:
    """Data files of a snapshot, and the equality deletes that apply to rows of theirs.

    A row is deleted if a delete has its key, applies to the partition of its file or to all, and
    has a higher sequence number than its file.

    Attributes:
        table: The table.
        snapshot_id: Rows that positions and vectors of this snapshot delete are not live.
        schema: The columns, key columns included, in Iceberg's JSON form.
        files: The data files to search.
        deletes: The equality deletes, all of the same key columns. Their sequence numbers need not
            be those of the manifest.
    """

    table: LoadedTable
    snapshot_id: int
    schema: Mapping[str, Any]
    files: DataFilesWithKeys
    deletes: tuple[ScopedDelete, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The field ids of the key columns."""
        return self.deletes[0].file.equality_ids

    @property
    def rows(self) -> int:
        """How many rows the data files have."""
        return int(sum(self.files.files.column("rows").to_pylist()))
