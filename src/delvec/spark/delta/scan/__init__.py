"""Reading Delta tables on Spark's own Parquet reader: file index, pruning, deletion vectors."""

from __future__ import annotations
