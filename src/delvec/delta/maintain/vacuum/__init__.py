"""VACUUM: files below a table that nobody needs are found and deleted."""

from __future__ import annotations
