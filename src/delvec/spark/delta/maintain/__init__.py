"""Maintenance of Delta tables that reads or writes rows."""

from __future__ import annotations
