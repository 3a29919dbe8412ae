"""The package by which Spark finds delvec's data source without registration.

Spark imports every module whose name starts with `pyspark_` and takes its `DefaultSource`.
"""

from __future__ import annotations

from delvec.datasource import DelvecDataSource as DefaultSource

__all__ = ["DefaultSource"]
