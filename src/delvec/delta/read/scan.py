"""Reading data files into Arrow: without their deleted rows, in the names and types of the table.

A `Scan` says what to read: columns, rows, names. Deleted rows are known by their position in the
file, which is counted from the row groups that the footer lists: no filter, projection or pruned
row group can shift it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.file_set import DataFile
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.data_file import ParquetData, open_data_file
from delvec.delta.read.footer_statistics import footer_bounds
from delvec.delta.read.vectors import load_vectors
from delvec.delta.schema.partition_values import parse_partition_value
from delvec.delta.schema.types import (
    WIDEST_CHAR,
    Field,
    MappingMode,
    StructType,
    arrow_field,
    arrow_type,
)
from delvec.delta.skipping.data_skipping import ColumnBounds, may_match
from delvec.delta.skipping.predicate import Always, ColumnPath, Predicate, columns_of, to_arrow
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError, add_location
from delvec.storage import Storage
from delvec.storage.backend import is_absolute
from delvec.vector import Bitmap

FILE_COLUMN: Final = "_file"
POSITION_COLUMN: Final = "_pos"
# The place of a row: its file and its position there. They are returned when asked for by name.
ADDED_COLUMNS: Final = (FILE_COLUMN, POSITION_COLUMN)
_VECTORS_AT_ONCE: Final = 64
_ROWS_AT_ONCE: Final = 1 << 16
_PADDED_BYTES: Final = 64 << 20


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
    return isinstance(predicate, Always) or to_arrow(predicate, schema) is not None


def read_files(storage: Storage, files: Sequence[DataFile], scan: Scan) -> Iterator[pa.RecordBatch]:
    """Read files one after the other, with their vectors, which are loaded for 64 files at a time.

    Every batch has the schema `scan.arrow_schema` and at least one row.
    """
    for start in range(0, len(files), _VECTORS_AT_ONCE):
        window = files[start : start + _VECTORS_AT_ONCE]
        for file, vector in zip(window, load_vectors(storage, window), strict=True):
            yield from read_file(storage, file, scan, vector=vector)


def read_file(
    storage: Storage,
    file: DataFile,
    scan: Scan,
    *,
    vector: Bitmap | None,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read one file, batch by batch, rows in order, without the deleted ones.

    Memory holds a batch of 65,536 rows, and the compressed bytes of one row group's wanted columns.
    """
    if vector is None and file.descriptor is not None:
        raise InvalidArgumentError(f"{file.path} has a deletion vector, which was not passed")
    constants = {}  # by logical name; null where the log has no value
    for name in scan.partition_columns:
        field = scan.schema.field(name)
        text = file.partition_values.get(field.physical_name)
        with add_location(file.path if is_absolute(file.path) else storage.uri_of(file.path)):
            value = parse_partition_value(text, field.type, scan.time_zone)
        constants[field.name] = pa.scalar(value, arrow_type(field.type))
    stored = StructType(tuple(f for f in scan.needed_fields if f.name not in constants))
    with open_data_file(storage, file, stored, mapping_mode=scan.mapping_mode) as data:
        data.check_vector(vector)
        assembly = _Assembly.of(scan, constants, data.uri)
        for group in _matching_groups(data, scan, constants, row_groups):
            first, end = data.row_starts[group : group + 2]
            if vector is not None and vector.rank(end - 1) - vector.rank(first - 1) == end - first:
                continue  # all its rows are deleted
            for positions, columns in data.read_group(group, vector):
                for start in range(0, len(positions), assembly.rows_at_once):
                    rows = slice(start, start + assembly.rows_at_once)
                    batch = assembly.batch(positions[rows], [each[rows] for each in columns])
                    if batch.num_rows:
                        yield batch


@dataclass(frozen=True, slots=True)
class _Assembly:
    """How the columns of a file become rows of the result."""

    schema: pa.Schema
    constants: Sequence[pa.Scalar | None]
    added: Sequence[pa.Scalar | None]
    returned: Sequence[int]
    widths: Sequence[int | None]
    row_filter: pc.Expression | None

    @property
    def rows_at_once(self) -> int:
        """So many that the strings of `char(n)` columns, padded, take some 64 MiB at most."""
        width = sum(width or 0 for width in self.widths)
        return _ROWS_AT_ONCE if not width else max(1, min(_ROWS_AT_ONCE, _PADDED_BYTES // width))

    @classmethod
    def of(cls, scan: Scan, constants: Mapping[str, pa.Scalar], uri: str) -> _Assembly:
        needed, returned = scan.needed_fields, len(scan.fields)
        added: list[pa.Scalar | None] = [pa.scalar(uri)] * scan.with_file
        added += [None] * scan.with_position
        row_filter = None
        if not isinstance(scan.predicate, Always):
            row_filter = to_arrow(scan.predicate, scan.schema)
            if row_filter is None:
                raise InvalidArgumentError(f"{scan.predicate} cannot be evaluated by Arrow")
        return cls(
            schema=pa.schema([*map(arrow_field, needed), *scan.added_fields]),
            constants=[constants.get(field.name) for field in needed],
            added=added,
            returned=[*range(returned), *range(len(needed), len(needed) + len(added))],
            widths=[_char_width(field, uri) for field in needed],
            row_filter=row_filter,
        )

    def batch(self, positions: NDArray[np.int64], columns: Sequence[pa.Array]) -> pa.RecordBatch:
        count, remaining = len(positions), iter(columns)
        arrays = [
            next(remaining) if constant is None else _repeated(constant, count)
            for constant in self.constants
        ]
        arrays = [
            array if width is None else pc.utf8_rpad(array, width)
            for array, width in zip(arrays, self.widths, strict=True)
        ]
        arrays += [
            pa.array(positions) if constant is None else _repeated(constant, count)
            for constant in self.added
        ]
        if self.row_filter is not None:
            table = _filtered(pa.table(arrays, schema=self.schema), self.row_filter)
            count, arrays = table.num_rows, [each.combine_chunks() for each in table.columns]
        if not self.returned:
            rows = pa.Array.from_buffers(pa.struct([]), count, [None])
            return pa.RecordBatch.from_struct_array(rows)
        return pa.record_batch(
            [arrays[index] for index in self.returned],
            schema=pa.schema([self.schema.field(index) for index in self.returned]),
        )


def _char_width(field: Field, uri: str) -> int | None:
    if field.char_type and field.char_width is None:
        raise UnsupportedFeatureError(
            f"column {field.name} of {uri} holds char(n) inside of {field.char_type[:80]}, which"
            " only Spark pads",
            feature=field.char_type[:80],
            needed_by=uri,
            hint="read the table by to_df(), or without this column",
        )
    if field.char_width is not None and field.char_width > WIDEST_CHAR:
        raise FormatError(
            f"column {field.name} has strings that are too wide",
            path=uri,
            expected=f"char({WIDEST_CHAR}) at most",
            found=field.char_type,
        )
    return field.char_width


def _repeated(value: pa.Scalar, count: int) -> pa.Array:
    return pa.repeat(value, count) if value.is_valid else pa.nulls(count, value.type)


def _filtered(table: pa.Table, row_filter: pc.Expression) -> pa.Table:
    # Not Table.filter: it uses threads, and rows must stay in order.
    from pyarrow import acero  # noqa: PLC0415 - it imports pandas

    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("filter", acero.FilterNodeOptions(row_filter)),
    ]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _matching_groups(
    data: ParquetData, scan: Scan, constants: Mapping[str, pa.Scalar], wanted: Sequence[int] | None
) -> list[int]:
    count = len(data.row_starts) - 1
    if wanted is not None and any(not 0 <= group < count for group in wanted):
        raise InvalidArgumentError(f"{data.uri} has {count} row groups, not all of {list(wanted)}")
    stored = footer_bounds(data.parquet, data.schema, by_id=data.by_id, path=data.uri)
    row_counts = pa.array(np.diff(data.row_starts), pa.int64())

    def bounds_of(column: ColumnPath) -> ColumnBounds | None:
        if scan.schema.field(column[0]).char_type:
            return None  # compared with the padding that the file lacks
        if column[0] not in constants:
            return None if data.is_old else stored(column)
        value = constants[column[0]]
        if not value.is_valid:
            return ColumnBounds(null_count=row_counts, row_count=row_counts)
        values = pa.repeat(value, count)
        return ColumnBounds(values, values, pa.array([0] * count, pa.int64()), row_counts)

    possible = may_match(scan.predicate, bounds_of, count)
    return [group for group in (range(count) if wanted is None else wanted) if possible[group]]
