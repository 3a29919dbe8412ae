"""Cleaning a target: snapshots that expire, and files that belong to it alone."""

from __future__ import annotations
