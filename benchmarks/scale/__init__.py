"""What operations cost in tables of many files: synthetic metadata, measurements, a cost model."""

from __future__ import annotations
