"""Iceberg's Java library, called by catalog name: tables, their metadata and files, and commits.

Knows nothing of Delta. Only `commit.py` changes a table.
"""

from __future__ import annotations
