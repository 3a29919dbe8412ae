"""The live files of a version as columns; no object per file is made before one is asked for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.file_bounds import column_bounds
from delvec.delta.pruning.predicate import Always
from delvec.delta.pruning.skipping import may_match, must_match
from delvec.delta.stats.columns import StatisticPath, StatisticsSource, statistics_columns
from delvec.delta.stats.entry import record_count
from delvec.errors import FormatError, located
from delvec.storage.listed_files import are_absolute, is_absolute, outside_of
from delvec.vector import Descriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.action_columns import Kind
    from delvec.delta.pruning.predicate import ColumnPath, Predicate
    from delvec.delta.pruning.skipping import ColumnBounds
    from delvec.delta.schema.metadata import Metadata

__all__ = ["AddSource", "DataFile", "FileEntry", "FileSet"]

_ROWS: Final[StatisticPath] = ("numRecords",)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a version of the table holds, as its entry in the log describes it.

    Attributes:
        path: Percent-decoded, as `Storage` takes names: relative to the table's root, or absolute
            (a plain path on local disk, else scheme, bucket and key).
        size: Bytes of the whole file.
        partition_values: Strings, as in the log, by physical column name.
        descriptor: Where the deletion vector is; None without one.
        row_count: All rows in the file, deleted ones too; None if the log lacks the count.
        modification_time: Milliseconds since 1970.

    >>> DataFile("year=2021/part-0.parquet", 500, {"year": "2021"}, None, 10, 0).is_absolute
    False
    >>> DataFile("s3://lake/part-0.parquet", 500, {}, None, None, 0).is_absolute
    True
    """

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    descriptor: Descriptor | None
    row_count: int | None
    modification_time: int

    @property
    def is_absolute(self) -> bool:
        """Whether the path is not below the table's root, as in shallow clones."""
        return is_absolute(self.path)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A live file with its whole entry in the log, as a commit that removes it needs it.

    Attributes:
        path: Decoded, in one spelling.
        add: Its add action, as the log has it.
    """

    path: str
    add: Mapping[str, Any]

    @property
    def descriptor(self) -> Descriptor | None:
        """Where its vector is; None without one."""
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
class FileSet:
    """Live files, one row each in every column.

    Attributes:
        paths: Decoded, in one spelling each.
        columns: `size`, `modificationTime`, `deletionVector` and, if the table has partitions,
            `partitionValues` (strings by physical name).
        sources: The files of the log that add them; `source` and `row` are the place of each.
    """

    metadata: Metadata
    root: str
    paths: pa.Array
    columns: pa.Table
    sources: tuple[AddSource, ...]
    source: NDArray[np.int32]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each file."""
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
        """The files of vectors that the log names by absolute paths; each once.

        Raises:
            FormatError: A path is not a valid one.
        """
        kinds, texts = (
            pc.struct_field(self.vectors, [name]) for name in ("storageType", "pathOrInlineDv")
        )
        named = texts.filter(pc.fill_null(pc.equal(kinds, "p"), False)).unique()
        with located(f"the log of {self.root}"):
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
        """The live rows of each file, null where the log lacks the count.

        Raises:
            FormatError: A vector marks more rows than its file has.
        """
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
        counts = self.statistic(_ROWS, pa.int64())
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
        """Return one partition value of each file, as the string of the log."""
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
        """Return what is known of a column's values in each file, or None if nothing is."""
        return column_bounds(self, column, time_zone)

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
        return FileSet(
            self.metadata,
            self.root,
            self.paths.take(rows),
            self.columns.take(rows),
            self.sources,
            self.source[rows],
            self.row[rows],
        )

    def descriptor(self, index: int) -> Descriptor | None:
        """Return the descriptor of one file's vector; None without one.

        Raises:
            FormatError: It is not valid.
        """
        value = self.vectors[index].as_py()
        return None if value is None else self._described(value, self.paths[index].as_py())

    def _described(self, value: Mapping[str, Any], path: str) -> Descriptor:
        with located(f"the entry of {path} in the log of {self.root}"):
            return Descriptor.from_json(value)

    def data_files(self, indexes: Iterable[int] | None = None) -> list[DataFile]:
        """Make one object for each file, or for those of the given rows, which must ascend."""
        chosen = self
        if indexes is not None:
            chosen = self.select(np.fromiter(indexes, dtype=np.int64))
        paths, counts = chosen.paths.to_pylist(), chosen.row_counts.to_pylist()
        values: Sequence[dict[str, str | None]] = [{}] * len(chosen)
        if self.metadata.partition_columns:
            values = chosen._partition_values.to_pylist()  # noqa: SLF001
        marks = chosen.vectors.to_pylist()
        sizes, times = chosen.sizes.tolist(), chosen.modification_times.tolist()
        return [
            DataFile(
                path,
                sizes[at],
                values[at] or {},
                self._described(marks[at], path) if has_vector else None,
                counts[at],
                times[at],
            )
            for at, (path, has_vector) in enumerate(
                zip(paths, chosen.has_vector.tolist(), strict=True)
            )
        ]

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


def _cached(
    source: AddSource, wanted: Mapping[StatisticPath, pa.DataType]
) -> dict[StatisticPath, pa.Array | None]:
    """Return statistics of a source, parsed at the first call and cached with the source."""
    kept: dict[Any, pa.Array | None] = source.__dict__.setdefault("_statistics", {})
    missing = {path: kind for path, kind in wanted.items() if (path, kind) not in kept}
    for path, column in statistics_columns(source, missing).items() if missing else ():
        kept[path, missing[path]] = column
    return {path: kept[path, kind] for path, kind in wanted.items()}
