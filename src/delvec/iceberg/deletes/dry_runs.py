"""Dry runs of appends, deletes by key and upserts: counted and checked, nothing is written.

Keys are computed and checked as for the write. Of rows the names of the columns are checked;
whether values fit into them is seen when they are written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delvec.iceberg.deletes.change_batch import require_columns
from delvec.iceberg.deletes.key_frame import opened_keys
from delvec.spark.failures import explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.deletes.change_batch import Batch
    from delvec.iceberg.deletes.key_columns import KeyColumn
    from delvec.iceberg.deletes.report import KeyDeleteReport

__all__ = ["try_append", "try_delete", "try_upsert"]


def try_append(start: KeyDeleteReport, table: LoadedTable, rows: DataFrame) -> KeyDeleteReport:
    """Return the report of an append that is not made; the rows are counted.

    Raises:
        InvalidArgumentError: A column is missing, or the table does not have it.
    """
    columns = [each["name"] for each in table.metadata.schema["fields"]]
    require_columns(rows, columns, (), start.table)
    with explained(start.table):
        return replace(start, dry_run=True, rows_added=rows.count())


def try_delete(
    start: KeyDeleteReport,
    keys: Any,  # noqa: ANN401
    columns: Sequence[KeyColumn],
) -> KeyDeleteReport:
    """Return the report of a delete that is not made; the distinct keys are counted.

    Raises:
        InvalidArgumentError: A key does not fit its column.
    """
    with opened_keys(keys, columns, start.table) as opened:
        return replace(start, dry_run=True, keys=len(opened), null_keys=opened.nulls)


def try_upsert(
    start: KeyDeleteReport, batch: Batch, columns: Sequence[KeyColumn]
) -> KeyDeleteReport:
    """Return the report of an upsert that is not made; its keys and rows are counted."""
    tried = try_delete(start, batch.keys, columns)
    return replace(tried, rows_added=batch.rows.count(), duplicates=batch.duplicates)
