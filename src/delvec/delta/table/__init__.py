"""`DeltaTable`, the public class, as one mixin for each kind of command."""

from __future__ import annotations

from delvec.delta.table.reads import TableDetail
from delvec.delta.table.table import DeltaTable

__all__ = ["DeltaTable", "TableDetail"]
