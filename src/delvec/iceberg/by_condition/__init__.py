"""Deleting by a condition: the keys that it lists, or the positions of the rows that match it."""

from __future__ import annotations
