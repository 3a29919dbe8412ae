"""Maintenance of Iceberg tables: what keeps them small and fast and changes none of their rows."""

from __future__ import annotations
