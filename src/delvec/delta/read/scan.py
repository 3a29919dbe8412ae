"""What to read of data files (columns, rows, names), and a version read by Arrow alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.file_reader import read_files
from delvec.delta.schema.types import Field, MappingMode, StructType, arrow_field
from delvec.delta.skipping.predicate import Always, Predicate, columns_of, to_arrow
from delvec.errors import InvalidArgumentError

FILE_COLUMN: Final = "_file"
POSITION_COLUMN: Final = "_pos"
# The place of a row: its file and its position there. They are returned when asked for by name.
ADDED_COLUMNS: Final = (FILE_COLUMN, POSITION_COLUMN)


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of each file; it can be pickled, and serves all files of a snapshot.

    Attributes:
        partition_columns: Logical names of the columns that are not in the files.
        columns: Logical names of the columns to return, in that order; None for all.
        predicate: Only rows for which it is true are returned; Arrow must understand all of it.
        time_zone: Of partition values that are timestamps without one.
        with_file: Add `_file`, the full name of the file.
        with_position: Add `_pos`, the row's position in the file, counting deleted rows.

    >>> from delvec.delta.schema.types import Field, PrimitiveType, StructType
    >>> schema = StructType((Field("id", PrimitiveType("long")),))
    >>> Scan(schema, columns=("ID",), with_position=True).arrow_schema.names
    ['id', '_pos']
    """

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    predicate: Predicate = Always()  # noqa: RUF009 - frozen as well
    mapping_mode: MappingMode = "none"
    time_zone: str = "UTC"
    with_file: bool = False
    with_position: bool = False

    def __post_init__(self) -> None:
        names = [field.name for field in (*self.needed_fields, *self.added_fields)]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgumentError(f"column {twice!r} would be there twice")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the table that are returned."""
        if self.columns is None:
            return self.schema.fields
        return tuple(self.schema.field(name) for name in self.columns)

    @property
    def needed_fields(self) -> tuple[Field, ...]:
        """The columns that are returned, then those that only the predicate needs."""
        returned = self.fields
        asked = {self.schema.field(column[0]) for column in columns_of(self.predicate)}
        return returned + tuple(
            field for field in self.schema.fields if field in asked and field not in returned
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of all batches."""
        return pa.schema([*map(arrow_field, self.fields), *self.added_fields])

    @property
    def added_fields(self) -> list[pa.Field]:
        """The columns with the place of a row: its file and position."""
        file = pa.field(FILE_COLUMN, pa.string(), nullable=False)
        position = pa.field(POSITION_COLUMN, pa.int64(), nullable=False)
        return [file] * self.with_file + [position] * self.with_position


def arrow_scan(
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    time_zone: str = "UTC",
) -> Scan:
    """Return what to read of a version; `_file` and `_pos` among the columns come last."""
    own = {field.name for field in snapshot.metadata.schema.fields}
    added = {name for name in ADDED_COLUMNS if name in (columns or ())} - own
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
