"""The live files of a version as columns, with bounds; one is an object only if asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.actions import Kind
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.partition_values import partition_column
from delvec.delta.schema.traversal import find
from delvec.delta.schema.types import PrimitiveType, arrow_type
from delvec.delta.skipping.data_skipping import ColumnBounds, may_match, must_match
from delvec.delta.skipping.predicate import Always, ColumnPath, Predicate
from delvec.delta.skipping.statistics import is_ordered, record_count
from delvec.delta.skipping.statistics_columns import (
    StatisticPath,
    StatisticsSource,
    statistics_columns,
)
from delvec.errors import FormatError, add_location
from delvec.storage.listed_files import are_absolute, outside_of
from delvec.vector import Descriptor

_LAST_MICROSECOND: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a version of the table holds, as its entry in the log describes it."""

    # Percent-decoded, as `Storage` takes names: relative to the table's root, or absolute (a plain
    # path on local disk, else scheme, bucket and key).
    path: str
    size: int  # bytes of the whole file
    partition_values: Mapping[str, str | None]  # strings, as in the log, by physical column name
    descriptor: Descriptor | None  # where the deletion vector is; None without one
    row_count: int | None  # all rows in the file, deleted ones too; None if the log lacks the count
    modification_time: int  # milliseconds since 1970


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A live file with its whole add action, as a commit that removes it needs it."""

    path: str
    add: Mapping[str, Any]

    @property
    def descriptor(self) -> Descriptor | None:
        value = self.add.get("deletionVector")
        return None if value is None else Descriptor.from_json(value)

    @property
    def rows(self) -> int | None:
        """Its physical rows, None if the log lacks the count."""
        return record_count(self.add.get("stats"))


class AddSource(StatisticsSource, Protocol):
    """A file of the log that adds data files."""

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return whole actions by the rows of their adds."""

    def pieces(
        self, kind: Kind, partition_names: Sequence[str], more: Sequence[str] = ()
    ) -> Iterator[pa.StructArray]:
        """Yield all actions of one kind as columns, piece by piece."""


@dataclass(frozen=True)
class LooseEntries:
    """Entries of files that are no adds of one file of the log; nothing is written from them."""

    stats: pa.Array | None = None

    def json_statistics(self) -> pa.Array | None:
        return self.stats

    def parsed_statistics(self, *_path: str) -> pa.Array | None:
        return None

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Fail: callers know the entries themselves."""
        raise AssertionError(f"no file of the log has the entries {rows}")

    def pieces(
        self, kind: Kind, partition_names: Sequence[str], more: Sequence[str] = ()
    ) -> Iterator[pa.StructArray]:
        raise AssertionError(f"no {kind} of {partition_names} {more} is written of them")


@dataclass(frozen=True)
class FileSet:
    """Live files, one row each in every column."""

    metadata: Metadata
    root: str
    paths: pa.Array  # decoded, in one spelling each
    # `size`, `modificationTime`, `deletionVector` and, if the table has partitions,
    # `partitionValues` (strings by physical name).
    columns: pa.Table
    # The files of the log that add them; `source` and `row` are the place of each.
    sources: tuple[AddSource, ...]
    source: NDArray[np.int32]
    row: NDArray[np.int64]

    @classmethod
    def of_one(
        cls, source: AddSource, metadata: Metadata, root: str, paths: pa.Array, columns: pa.Table
    ) -> FileSet:
        """Return the files that one source adds, all of them."""
        numbers = np.zeros(len(paths), dtype=np.int32), np.arange(len(paths), dtype=np.int64)
        return cls(metadata, root, paths, columns, (source,), *numbers)

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        return self._numbers("size")

    @cached_property
    def modification_times(self) -> NDArray[np.int64]:
        """The modification time of each file, in milliseconds since 1970."""
        return self._numbers("modificationTime")

    def _numbers(self, name: str) -> NDArray[np.int64]:
        column = pc.fill_null(self.columns.column(name), 0)
        numbers: NDArray[np.int64] = column.to_numpy()
        return numbers

    @cached_property
    def vectors(self) -> pa.StructArray:
        """The descriptor of each file's vector, null without one."""
        column = self.columns.column("deletionVector")
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    @cached_property
    def absolute_vectors(self) -> list[str]:
        """The files of vectors that the log names by absolute paths; each once."""
        kinds, texts = (
            pc.struct_field(self.vectors, [name]) for name in ("storageType", "pathOrInlineDv")
        )
        named = texts.filter(pc.fill_null(pc.equal(kinds, "p"), False)).unique()
        with add_location(f"the log of {self.root}"):
            found = [Descriptor("p", each, None, 0, 0).file_path for each in named.to_pylist()]
        return [each for each in found if each is not None]

    @cached_property
    def outside(self) -> list[str]:
        """Data files and files of vectors that lie outside of the table's folder, in order."""
        absolute = self.paths.filter(are_absolute(self.paths)).to_pylist()
        with suppress(FormatError):  # of a path that is none: a reader of the vector tells more
            absolute += self.absolute_vectors
        return outside_of(self.root, absolute)

    @cached_property
    def has_vector(self) -> NDArray[np.bool_]:
        """Which files have a vector that deletes rows."""
        rows, size = (
            pc.fill_null(pc.struct_field(self.vectors, [name]), -1).to_numpy()
            for name in ("cardinality", "sizeInBytes")
        )
        # Descriptors refuse an invalid count when the vector is loaded, and a count of 0 for a
        # vector that has bytes.
        marks: NDArray[np.bool_] = self.vectors.is_valid().to_numpy(zero_copy_only=False)
        marked: NDArray[np.bool_] = marks & ((rows != 0) | (size != 0))
        return marked

    @cached_property
    def deleted_rows(self) -> NDArray[np.int64]:
        """The cardinality of each vector; 0 without one."""
        marked = pc.struct_field(self.vectors, "cardinality")
        there = self.vectors.is_valid()
        counts: NDArray[np.int64] = pc.if_else(there, pc.fill_null(marked, -1), 0).to_numpy()
        if (counts < 0).any():
            index = int(np.flatnonzero(counts < 0)[0])
            raise FormatError(
                f"the vector of {self.paths[index].as_py()} marks an impossible number of rows",
                path=self.root,
                expected="0 or more",
                found=marked[index].as_py(),
            )
        return counts

    @cached_property
    def live_rows(self) -> pa.Array:
        """The live rows of each file, null where the log lacks the count."""
        left = pc.subtract(self.row_counts, pa.array(self.deleted_rows))
        wrong = np.flatnonzero(pc.fill_null(pc.less(left, 0), False).to_numpy(zero_copy_only=False))
        if len(wrong):
            index = int(wrong[0])
            raise FormatError(
                f"the vector of {self.paths[index].as_py()} marks more rows than there are",
                path=self.root,
                expected=f"at most {self.row_counts[index].as_py()}",
                found=int(self.deleted_rows[index]),
            )
        return left

    @cached_property
    def row_counts(self) -> pa.Array:
        """Physical rows of each file, null where the log lacks the count."""
        counts = self.statistic(("numRecords",), pa.int64())
        counts = pa.nulls(len(self), pa.int64()) if counts is None else counts
        return pc.if_else(pc.greater_equal(counts, 0), counts, pa.scalar(None, pa.int64()))

    def bitmap_bytes(self) -> NDArray[np.float64]:
        """Return the most bytes that each file's vector can take as a bitmap, one bit per row.

        Infinite for a file whose number of rows is not known.
        """
        known = self.row_counts.is_valid().to_numpy(zero_copy_only=False)
        rows = self.row_counts.fill_null(0).to_numpy()
        return np.where(known, rows / 8, np.inf)

    def partition_strings(self, physical_name: str) -> pa.Array:
        return pc.struct_field(self._partition_values, [physical_name])

    @cached_property
    def _partition_values(self) -> pa.StructArray:
        column = self.columns.column("partitionValues")
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def statistic(self, path: StatisticPath, kind: pa.DataType) -> pa.Array | None:
        """Return one statistic of all files, such as `("minValues", "id")`; None if unknown."""
        return self.statistics({path: kind})[path]

    def statistics(
        self, wanted: Mapping[StatisticPath, pa.DataType]
    ) -> dict[StatisticPath, pa.Array | None]:
        """Return several statistics, which are parsed together, once for each file of the log."""
        pieces: dict[StatisticPath, list[pa.Array]] = {path: [] for path in wanted}
        # Files are in the order of their sources: the rows of each source are adjacent.
        ends = np.searchsorted(self.source, np.arange(len(self.sources)), side="right").tolist()
        for source, start, end in zip(self.sources, [0, *ends[:-1]], ends, strict=True):
            if start == end:
                continue
            rows, columns = self.row[start:end], _cached(source, wanted)
            for path, kind in wanted.items():
                column = columns[path]
                pieces[path].append(
                    pa.nulls(len(rows), kind) if column is None else column.take(rows)
                )
        return {
            path: pa.concat_arrays(parts)
            if any(part.null_count < len(part) for part in parts)
            else None
            for path, parts in pieces.items()
        }

    def bounds(self, column: ColumnPath, time_zone: str) -> ColumnBounds | None:
        """Return bounds that hold for every value of a column, or None if nothing is known."""
        fields = find(self.metadata.schema, column)
        if not fields:
            return None
        names, kind = tuple(each.physical_name for each in fields), fields[-1].type
        if not isinstance(kind, PrimitiveType) or fields[0].char_type:
            return None  # char(n) is compared with its padding, which files lack
        if len(column) == 1 and fields[0] in self.metadata.partition_fields:
            values = partition_column(self.partition_strings(names[0]), kind, time_zone)
            rows = pc.coalesce(self.row_counts, 1)
            absent = pc.if_else(values.is_null(), rows, pa.scalar(0, pa.int64()))
            return ColumnBounds(values, values, absent, rows)
        low, high, nulls = (("minValues", *names), ("maxValues", *names), ("nullCount", *names))
        arrow = arrow_type(kind)
        ordered = {low: arrow, high: arrow} if is_ordered(kind) else {}
        found = self.statistics({**ordered, nulls: pa.int64(), ("numRecords",): pa.int64()})
        bottom, top = found.get(low), found.get(high)
        return ColumnBounds(
            None if bottom is None else _surely_below(bottom),
            None if top is None else _surely_above(top),
            _null_counts(found[nulls], self.row_counts),
            self.row_counts,
        )

    def may_match(self, predicate: Predicate, time_zone: str) -> NDArray[np.bool_]:
        """Return for each file whether any of its rows can match, by the log alone."""
        return may_match(predicate, lambda column: self.bounds(column, time_zone), len(self))

    def must_match(self, predicate: Predicate, time_zone: str) -> NDArray[np.bool_]:
        """Return for each file whether all of its rows surely match, by the log alone."""
        return must_match(predicate, lambda column: self.bounds(column, time_zone), len(self))

    def prune(self, predicate: Predicate, time_zone: str) -> FileSet:
        """Return the files that can hold a row that matches a predicate."""
        if isinstance(predicate, Always):
            return self
        return self.select(self.may_match(predicate, time_zone))

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> FileSet:
        """Return the files of a mask, or of ascending row numbers."""
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        if len(rows) > 1 and (np.diff(rows) <= 0).any():
            raise AssertionError("files are chosen in their order, each once")
        if len(rows) == len(self):
            return self
        return replace(
            self,
            paths=self.paths.take(rows),
            columns=self.columns.take(rows),
            source=self.source[rows],
            row=self.row[rows],
        )

    def descriptor(self, index: int) -> Descriptor | None:
        """Return the descriptor of one file's vector; None without one."""
        value = self.vectors[index].as_py()
        return None if value is None else self._described(value, self.paths[index].as_py())

    def _described(self, value: Mapping[str, Any], path: str) -> Descriptor:
        with add_location(f"the entry of {path} in the log of {self.root}"):
            return Descriptor.from_json(value)

    def data_files(self, indexes: Iterable[int] | None = None) -> list[DataFile]:
        """Make one object for each file, or for those of the given rows, which must ascend."""
        chosen = self if indexes is None else self.select(np.fromiter(indexes, dtype=np.int64))
        paths, counts = chosen.paths.to_pylist(), chosen.row_counts.to_pylist()
        sizes, times = chosen.sizes.tolist(), chosen.modification_times.tolist()
        values: list[dict[str, str | None] | None] = [None] * len(chosen)
        if self.metadata.partition_columns:
            values = chosen._partition_values.to_pylist()  # noqa: SLF001
        marks = zip(paths, chosen.has_vector.tolist(), chosen.vectors.to_pylist(), strict=True)
        vectors = [
            self._described(mark, path) if is_there else None for path, is_there, mark in marks
        ]
        plain = [value or {} for value in values]
        return list(map(DataFile, paths, sizes, plain, vectors, counts, times))

    def entries(self, indexes: Iterable[int] | None = None) -> list[FileEntry]:
        """Return all files, or those of the given rows in that order, with their whole entries."""
        chosen = range(len(self)) if indexes is None else [int(index) for index in indexes]
        by_source: dict[int, list[int]] = {}
        for index in chosen:
            by_source.setdefault(int(self.source[index]), []).append(index)
        adds: dict[int, dict[str, Any]] = {}
        for source, members in by_source.items():
            rows = [int(self.row[index]) for index in members]
            actions = self.sources[source].actions(rows)
            adds |= {index: each["add"] for index, each in zip(members, actions, strict=True)}
        paths = self.paths.take(pa.array(chosen, pa.int64())).to_pylist()
        return [FileEntry(path, adds[index]) for path, index in zip(paths, chosen, strict=True)]


def _null_counts(counts: pa.Array | None, rows: pa.Array) -> pa.Array | None:
    """Return null counts that can be trusted: none at all, or every row of the file.

    With a vector any other count says nothing of the rows that are left, and not all writers
    tell by `tightBounds` which rows they counted.
    """
    if counts is None:
        return None
    sure = pc.or_(pc.equal(counts, 0), pc.equal(counts, rows))
    return pc.if_else(sure, counts, pa.scalar(None, pa.int64()))


def _surely_below(low: pa.Array) -> pa.Array:
    """Return minima that no value is below.

    A column of doubles may have been one of floats. Statistics hold these in their shortest form,
    0.7 for 0.699999988079071, which is what a reader gets.
    """
    if not pa.types.is_float64(low.type):
        return low
    return pc.min_element_wise(low, _as_floats(low), skip_nulls=False)


def _as_floats(values: pa.Array) -> pa.Array:
    with np.errstate(over="ignore"):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float32).astype(np.float64)
    return pa.array(numbers, pa.float64(), mask=~values.is_valid().to_numpy(zero_copy_only=False))


def _surely_above(high: pa.Array) -> pa.Array:
    """Return maxima that no value exceeds, though writers cut timestamps and long strings."""
    if pa.types.is_float64(high.type):
        return pc.max_element_wise(high, _as_floats(high), skip_nulls=False)
    if pa.types.is_timestamp(high.type):
        at_the_end = pc.greater(high.cast(pa.int64()), _LAST_MICROSECOND - 1000)
        # Writers cut them to milliseconds: a value may lie that much above the stored maximum.
        cut = pa.scalar(1000, pa.duration("us"))
        return pc.add(pc.if_else(at_the_end, pa.scalar(None, high.type), high), cut)
    if pa.types.is_string(high.type):
        # A cut string ends in a character that is above all others. Some writers took one that is
        # not: the emoji and other characters beyond 16 bits are larger.
        doubtful = pc.match_substring_regex(high, "[\ufffd\uffff]$")
        return pc.if_else(doubtful, pa.scalar(None, pa.string()), high)
    return high


def _cached(
    source: AddSource, wanted: Mapping[StatisticPath, pa.DataType]
) -> dict[StatisticPath, pa.Array | None]:
    """Return statistics of a source, parsed at the first call and cached with the source."""
    kept: dict[Any, pa.Array | None] = source.__dict__.setdefault("_statistics", {})
    missing = {path: kind for path, kind in wanted.items() if (path, kind) not in kept}
    for path, column in statistics_columns(source, missing).items() if missing else ():
        kept[path, missing[path]] = column
    return {path: kept[path, kind] for path, kind in wanted.items()}
