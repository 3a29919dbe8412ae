"""`spark.read.format("delvec")`: Delta tables through Spark's data source API, vectors applied.

It is the connector for SQL, for Spark Connect, and for code that only knows formats. Rows go
through Python workers, so `DeltaTable.to_df` is some three times faster.
"""

from __future__ import annotations

from delvec.datasource.source import DelvecDataSource

__all__ = ["DelvecDataSource"]
