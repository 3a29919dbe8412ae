"""Delta tables: the log, snapshots, and reading data files through their deletion vectors."""

from __future__ import annotations
