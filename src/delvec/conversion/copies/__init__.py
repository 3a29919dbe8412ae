"""Data files that Iceberg cannot read as they are: which these are, and copies of them."""

from __future__ import annotations
