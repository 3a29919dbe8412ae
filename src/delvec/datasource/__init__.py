"""`spark.read.format("delvec")`: Delta tables through Spark's data source API, vectors applied.

For SQL, for Spark Connect, and for code that reads by format name. Rows pass through Python
workers, so `DeltaTable.to_df` is about three times faster.
"""

from __future__ import annotations

from delvec.datasource.source import DelvecDataSource

__all__ = ["DelvecDataSource"]
