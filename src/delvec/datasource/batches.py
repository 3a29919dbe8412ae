"""Arrow batches as Spark takes them: columns by position, under its own names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["for_spark"]


def for_spark(
    batch: pa.RecordBatch, columns: Sequence[str], names: Sequence[str]
) -> pa.RecordBatch:
    """Choose columns in the order of Spark's schema, under the names that it has for them."""
    return pa.record_batch([batch.column(name) for name in columns], names=list(names))
