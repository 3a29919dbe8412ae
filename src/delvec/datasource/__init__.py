"""`format("delvec")`: Delta tables through Spark's data source API, read, written and streamed.

For SQL, for Spark Connect, for streams, and for code that names formats. Rows pass through Python
workers, so `DeltaTable.to_df` is about three times faster.
"""

from __future__ import annotations

from delvec.datasource.source import DelvecDataSource

__all__ = ["DelvecDataSource"]
