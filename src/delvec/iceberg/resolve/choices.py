"""How equality deletes are to be resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from delvec.iceberg.deletes.key_columns import key_columns

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.search.strategy import Strategy

__all__ = ["Choices", "Verify"]

Verify: TypeAlias = Literal["counts", "rows", "none"]


@dataclass(frozen=True)
class Choices:
    """How to resolve.

    Attributes:
        target: The branch that is to hold no equality deletes.
        staging: The branch whose changes are taken over; None to resolve in place.
        keys: The key columns, for the index and for `unique_keys`.
        index: `auto`, `join` or `index`.
        verify: `counts`, `rows` or `none`.
        unique_keys: Whether no two rows may have the same key afterwards.
        max_snapshots: How many staged snapshots become one commit at most.
        dry_run: Whether to find rows only, and write nothing.
    """

    target: str = "main"
    staging: str | None = None
    keys: tuple[str, ...] = ()
    index: Strategy = "auto"
    verify: Verify = "counts"
    unique_keys: bool = False
    max_snapshots: int | None = None
    dry_run: bool = False

    def key_ids(self, table: LoadedTable) -> frozenset[int]:
        """Return the field ids of the key columns.

        Raises:
            InvalidArgumentError: There is no such column, or it cannot be part of a key.
        """
        if not self.keys:
            return frozenset()
        found = key_columns(table.metadata.schema, self.keys, str(table.name))
        return frozenset(each.id for each in found)
