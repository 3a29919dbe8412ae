"""Delta tables as Iceberg tables: what to convert, and how it is said in the other format."""

from __future__ import annotations
