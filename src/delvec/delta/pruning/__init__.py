"""Predicates over rows, and the files or row groups that they rule out by statistics."""

from __future__ import annotations
