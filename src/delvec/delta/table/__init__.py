"""A Delta table, from Python: what users hold in their hands."""

from __future__ import annotations

from delvec.delta.table.reads import TableDetail
from delvec.delta.table.table import DeltaTable

__all__ = ["DeltaTable", "TableDetail"]
