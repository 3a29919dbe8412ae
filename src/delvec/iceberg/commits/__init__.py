"""Commits to Iceberg tables: snapshots on branches, and branches and tags themselves."""

from __future__ import annotations
