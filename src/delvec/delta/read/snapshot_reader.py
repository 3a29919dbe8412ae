"""Reading a version with Arrow alone: to tables, batches and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from delvec.delta.pruning.predicate import Always, to_arrow
from delvec.delta.read.file_reader import read_files
from delvec.delta.read.scan import FILE_COLUMN, POSITION_COLUMN, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.types import StructType

__all__ = [
    "ADDED_COLUMNS",
    "arrow_scan",
    "count_rows",
    "is_understood",
    "read_batches",
]

# The place of a row: its file and its position there. They are returned when asked for by name.
ADDED_COLUMNS: Final = (FILE_COLUMN, POSITION_COLUMN)


def arrow_scan(
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    time_zone: str = "UTC",
) -> Scan:
    """Return what to read of a version; `_file` and `_pos` among the columns come last."""
    own = {field.name for field in snapshot.metadata.schema.fields}
    added = {
        name
        for name in ADDED_COLUMNS
        if columns is not None and name in columns and name not in own
    }
    return Scan(
        snapshot.metadata.schema,
        snapshot.metadata.partition_columns,
        None if columns is None else tuple(name for name in columns if name not in added),
        Always() if predicate is None else predicate,
        snapshot.metadata.mapping_mode,
        time_zone,
        FILE_COLUMN in added,
        POSITION_COLUMN in added,
    )


def read_batches(snapshot: Snapshot, scan: Scan) -> pa.RecordBatchReader:
    """Stream the rows of a version; files that cannot match are not opened."""
    files = snapshot.files.prune(scan.predicate, scan.time_zone)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from read_files(snapshot.storage, files.data_files(), scan)

    return pa.RecordBatchReader.from_batches(scan.arrow_schema, batches())


def count_rows(snapshot: Snapshot, predicate: Predicate, time_zone: str) -> int:
    """Count rows, by the log alone where it suffices, else by reading the other files.

    A file of which every row matches counts by its entry in the log. Of the others only those that
    may match are read, and only the columns of the predicate.
    """
    files = snapshot.files
    known = ~files.row_counts.is_null().to_numpy(zero_copy_only=False)
    may = files.may_match(predicate, time_zone)
    surely = files.must_match(predicate, time_zone) & known & may
    total = int(files.live_rows.fill_null(0).to_numpy()[surely].sum())
    open_files = files.data_files(np.flatnonzero(may & ~surely))
    if open_files:
        scan = arrow_scan(snapshot, columns=(), predicate=predicate, time_zone=time_zone)
        total += sum(batch.num_rows for batch in read_files(snapshot.storage, open_files, scan))
    return total


def is_understood(predicate: Predicate, schema: StructType) -> bool:
    """Tell whether Arrow can evaluate a predicate exactly."""
    return isinstance(predicate, Always) or to_arrow(predicate, schema) is not None
