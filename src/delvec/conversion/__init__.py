"""Conversion of Delta tables to Iceberg tables: plan, apply and follow."""

from __future__ import annotations
