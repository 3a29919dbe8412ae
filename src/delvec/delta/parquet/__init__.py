"""Parquet data files of a Delta table: their footers, and their columns as the table types them."""

from __future__ import annotations
