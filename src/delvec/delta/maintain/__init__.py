"""Maintenance of Delta tables: what is planned and done without reading rows by Spark."""

from __future__ import annotations
