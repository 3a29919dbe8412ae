"""Row-level deletes for Delta Lake and Apache Iceberg, on Spark, from Python."""

from __future__ import annotations

from delvec._version import __version__

__all__ = ["__version__"]
