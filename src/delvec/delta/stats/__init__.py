"""Per-file statistics of the log: which columns have them, as Arrow columns and as JSON."""

from __future__ import annotations
