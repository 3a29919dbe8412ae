"""One Parquet file of a table: opened, checked against the log, and read by row group.

It may have columns that its table does not have any more: with column mapping a drop changes the
metadata alone, and files keep the values until they are rewritten. Only footers tell which files:
one request for each, 16 at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from delvec.delta.log.file_set import DataFile, FileSet
from delvec.delta.read.change_feed import CHANGE_TYPE
from delvec.delta.read.conform import FIELD_ID, Conformer, find_field, has_field_ids
from delvec.delta.read.footer_statistics import leaf_count
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.traversal import all_fields
from delvec.delta.schema.types import DataType, Field, MappingMode, StructType, arrow_type, children
from delvec.documents import whole_number
from delvec.errors import DelvecError, FormatError, ObjectNotFoundError
from delvec.parquet.readable import open_parquet, readable, wants_threads
from delvec.storage import Storage
from delvec.storage.input_file import InputFile
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather
from delvec.vector import Bitmap

_BATCH_ROWS: Final = 1 << 16
_ROWS_PER_BYTE: Final = 8  # more is possible: a million equal values take some bytes
_FOOTER_GUESS: Final = 1 << 16  # what pyarrow asks for first
_CALENDAR_KEYS: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_AT_ONCE: Final = 16
_MATERIALIZED: Final = (Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN)


@contextmanager
def open_data_file(
    storage: Storage, file: DataFile, schema: StructType, *, mapping_mode: MappingMode
) -> Iterator[ParquetData]:
    place, key = open_listed_file(storage, file.path)
    uri = place.uri_of(key)
    with place.open_input(key, file.size or None) as source:
        size = source.size()
        # One request for the footer, and for all of a small file.
        source.prefetch([(max(0, size - _FOOTER_GUESS), min(size, _FOOTER_GUESS))])
        with readable(uri):
            parquet = open_parquet(
                source, coerce_int96_timestamp_unit="us", page_checksum_verification=True
            )
        data = ParquetData(uri, source, parquet, schema, by_id=mapping_mode == "id")
        data.check(file.row_count)
        yield data


@dataclass(frozen=True)
class ParquetData:
    """A data file while it is read."""

    uri: str
    source: InputFile
    parquet: pq.ParquetFile
    schema: StructType
    by_id: bool

    def check_vector(self, vector: Bitmap | None) -> None:
        rows = self.row_starts[-1]
        if vector is not None and vector.max is not None and vector.max >= rows:
            raise FormatError(
                "the deletion vector marks a row that its data file does not have",
                path=self.uri,
                expected=f"rows below {rows}",
                found=f"row {vector.max}",
            )

    def check(self, row_count: int | None) -> None:
        """Refuse a file that has not the rows of its entry in the log, or lacks ids."""
        rows = self.parquet.metadata.num_rows
        for what, expected, found in (
            ("the file does not have as many rows as the log says", row_count, rows),
            ("the row groups do not add up to the rows of the file", rows, self.row_starts[-1]),
        ):
            if expected not in (None, found):
                raise FormatError(
                    what, path=self.uri, expected=f"{expected} rows", found=f"{found} rows"
                )
        if self.by_id and not has_field_ids(list(self.parquet.schema_arrow)):
            raise FormatError(
                "the table finds its columns by id, and the columns of the file have none",
                path=self.uri,
            )

    @cached_property
    def row_starts(self) -> list[int]:
        """The position of the first row of each row group, then the number of rows."""
        metadata = self.parquet.metadata
        counts = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        return list(accumulate(counts, initial=0))

    def read_group(
        self, group: int, vector: Bitmap | None
    ) -> Iterator[tuple[NDArray[np.int64], list[pa.Array]]]:
        """Yield positions in the file and columns of live rows, up to 65,536 at a time."""
        start, end = self.row_starts[group : group + 2]
        for count, stored in self._stored_columns(group):
            stop = start + count
            positions, columns = np.arange(start, stop, dtype=np.int64), stored
            if vector is not None:
                keep = ~vector.to_mask(start, stop)
                mask = pa.array(keep)
                positions, columns = positions[keep], [column.filter(mask) for column in stored]
            start = stop
            if len(positions):
                yield positions, self._conformed(columns, len(positions))
        if start != end:
            raise FormatError(
                f"row group {group} does not have the rows that the footer says",
                path=self.uri,
                expected=f"rows up to {end}",
                found=f"rows up to {start}",
            )

    @cached_property
    def _places(self) -> list[int | None]:
        """Where the file has each column of the schema."""
        stored = list(self.parquet.schema_arrow)
        return [
            find_field(stored, field, by_id=self.by_id, path=self.uri)
            for field in self.schema.fields
        ]

    @cached_property
    def is_old(self) -> bool:
        """Whether the file may hold dates in the calendar of Spark 2."""
        return has_old_calendar(self.parquet.metadata.metadata)

    def _stored_columns(self, group: int) -> Iterator[tuple[int, list[pa.Array]]]:
        """Read the columns that the file has, as they are stored; yield the count of rows too."""
        places = [place for place in self._places if place is not None]
        start, end = self.row_starts[group : group + 2]
        # By index: to Arrow `a.b` is a field of the struct `a` too, and names may be there twice.
        read = sorted(set(places))
        if not read:
            if end - start <= _ROWS_PER_BYTE * self.source.size():
                for at in range(start, end, _BATCH_ROWS):
                    yield min(_BATCH_ROWS, end - at), []
                return
            read = [0]  # so many rows are counted, not believed
        self.source.prefetch(self._ranges(group))
        batches = self.parquet.reader.iter_batches(
            _BATCH_ROWS,
            row_groups=[group],
            column_indices=[leaf for place in read for leaf in self._leaves[place]],
            use_threads=wants_threads(self.parquet.metadata.row_group(group).total_byte_size),
        )
        while True:
            with readable(self.uri):
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate()  # lengths alone: those of a damaged file may not fit together
            yield batch.num_rows, [batch.column(read.index(place)) for place in places]

    @cached_property
    def _leaves(self) -> list[range]:
        counts = [leaf_count(field.type) for field in self.parquet.schema_arrow]
        starts = list(accumulate(counts, initial=0))
        found = self.parquet.metadata.num_columns
        if starts[-1] != found:
            raise FormatError(
                "the schema of the file does not fit its columns",
                path=self.uri,
                expected=f"{starts[-1]} columns",
                found=f"{found} columns",
            )
        return [range(start, end) for start, end in pairwise(starts)]

    def _ranges(self, group: int) -> list[tuple[int, int]]:
        chunks = self.parquet.metadata.row_group(group)
        ranges = []
        for place in self._places:
            for index in () if place is None else self._leaves[place]:
                chunk = chunks.column(index)
                first = min(
                    chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset
                )
                if 0 <= first <= first + chunk.total_compressed_size <= self.source.size():
                    ranges.append((first, chunk.total_compressed_size))
        return ranges

    def _conformed(self, stored: Sequence[pa.Array], count: int) -> list[pa.Array]:
        remaining = iter(stored)
        conformer = Conformer(self.uri, by_id=self.by_id, old_calendar=self.is_old)
        with readable(self.uri):
            return [
                pa.nulls(count, arrow_type(field.type))
                if place is None
                else conformer.conform(next(remaining), field.type, field.name)
                for field, place in zip(self.schema.fields, self._places, strict=True)
            ]


def has_old_calendar(facts: Mapping[bytes, bytes] | None) -> bool:
    """Return whether a file may hold dates in the calendar of Spark 2, by its key-value pairs."""
    known = facts or {}
    is_old = known.get(b"org.apache.spark.version", b"3.1") < b"3.1"
    return is_old or any(key in known for key in _CALENDAR_KEYS)


def read_schemas(
    storage: Storage, files: Sequence[tuple[str, int]]
) -> list[pa.Schema | DelvecError | None]:
    """Read the columns of files, by path and size, from their footers.

    Why not for a file that cannot be read, and None for one that is gone.
    """

    def schema_of(file: tuple[str, int]) -> pa.Schema | DelvecError | None:
        path, size = file
        try:
            place, key = open_listed_file(storage, path)
            with place.open_input(key, size or None) as source, readable(path):
                return open_parquet(source).schema_arrow
        except ObjectNotFoundError:
            return None
        except DelvecError as error:
            return error

    return gather(schema_of, files, _AT_ONCE)


def may_have_dropped(metadata: Metadata) -> bool:
    """Return whether columns may have been dropped and still be in files, by the ids ever given."""
    if metadata.mapping_mode == "none":
        return False
    highest = whole_number(metadata.configuration.get(Property.MAX_COLUMN_ID, ""))
    ids = {field.field_id for field in all_fields(metadata.schema)}
    return highest is None or highest > len(ids)


def have_dropped(storage: Storage, files: FileSet) -> NDArray[np.bool_]:
    """Return which live files have columns that their table does not have any more."""
    if not may_have_dropped(files.metadata):
        return np.zeros(len(files), dtype=np.bool_)
    places = zip(files.paths.to_pylist(), files.sizes.tolist(), strict=True)
    found = read_schemas(storage, list(places))
    for each in found:
        if isinstance(each, DelvecError):
            raise each
    # A file that is gone is an error of whatever reads it.
    known = [files.metadata]
    return np.array(
        [isinstance(each, pa.Schema) and bool(foreign_columns(each, known)) for each in found],
        dtype=np.bool_,
    )


def foreign_columns(stored: pa.Schema, known: Sequence[Metadata]) -> list[str]:
    """Return the columns of a file that no definition of its table has, nested ones by path."""
    own = {each.configuration.get(name, "").lower() for each in known for name in _MATERIALIZED}
    schemas = [each.schema for each in known]
    return [
        name
        for name in _foreign(list(stored), schemas)
        if name.lower() not in own and name != CHANGE_TYPE
    ]


def _foreign(stored: Sequence[pa.Field], known: Sequence[StructType]) -> list[str]:
    found = []
    for field in stored:
        same = [each for kind in known for each in kind.fields if _is_same(field, each)]
        inner = _foreign_inside(field.type, [each.type for each in same])
        found += [f"{field.name}.{name}" for name in inner] if same else [field.name]
    return found


def _foreign_inside(stored: pa.DataType, known: Sequence[DataType]) -> list[str]:
    structs = [each for each in known if isinstance(each, StructType)]
    if pa.types.is_struct(stored):  # which a variant is to Parquet as well
        return _foreign(list(stored), structs) if structs else []
    parts: list[tuple[str, pa.DataType]] = []
    if pa.types.is_map(stored):
        parts = [("key", stored.key_type), ("value", stored.item_type)]
    elif pa.types.is_list(stored) or pa.types.is_large_list(stored):
        parts = [("element", stored.value_type)]
    found = []
    for name, kind in parts:
        same = [each.type for outer in known for each in children(outer) if each.name == name]
        found += [f"{name}.{inner}" for inner in _foreign_inside(kind, same)]
    return found


def _is_same(stored: pa.Field, field: Field) -> bool:
    number = (stored.metadata or {}).get(FIELD_ID)
    is_id = field.field_id is not None and number == str(field.field_id).encode()
    return is_id or stored.name.lower() == field.physical_name.lower()
