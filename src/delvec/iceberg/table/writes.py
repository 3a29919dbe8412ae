"""Writing to an Iceberg table."""

from __future__ import annotations

from dataclasses import dataclass

from delvec.calls import explained_calls
from delvec.iceberg.table.handle import TableHandle

__all__ = ["TableWrites"]


@explained_calls()
@dataclass(frozen=True)
class TableWrites(TableHandle):
    """The commands that write rows and deletes."""
