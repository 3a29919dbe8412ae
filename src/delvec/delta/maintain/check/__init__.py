"""Checking a Delta table against its log, and repairing what cannot lose a row."""

from __future__ import annotations
