"""`IcebergTable`, the public class, as one mixin for each kind of command."""

from __future__ import annotations

from delvec.iceberg.table.detail import IcebergDetail
from delvec.iceberg.table.table import IcebergTable

__all__ = ["IcebergDetail", "IcebergTable"]
