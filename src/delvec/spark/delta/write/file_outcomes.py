"""What becomes of files in which rows were found: a new vector, a rewrite, or a removal.

Memory grows with the vectors of the files that have hits, at most one bit for each of their rows.
If hits exceed the driver's limit, tasks write the vectors: each gets all hits of its files, and the
driver one descriptor for each file. Their vector files go into a folder of their own, so that those
of a task that was run again are found and removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from delvec.delta.log.file_set import DataFile, FileEntry, FileSet
from delvec.delta.read.footer_statistics import require_row_count, row_counts
from delvec.delta.read.vectors import admit_files, load_vectors
from delvec.delta.write.change import VectorUpdate
from delvec.delta.write.transaction import Attempt
from delvec.errors import InvalidArgumentError, MissingDependencyError
from delvec.spark.positions import HIT_MEMORY, NUMBER, bitmap_of, find_rows, fits_driver, hit_words
from delvec.storage import Storage
from delvec.vector import Bitmap, Descriptor, delta_file
from delvec.vector.bitmap import unite

_RESULT: Final = f"{NUMBER} long, hits long, found long, descriptor string, path string, bytes long"
_FOLDER_LETTERS: Final = 8


@dataclass(frozen=True)
class Found:
    """The rows that a scan found, and what becomes of their files.

    Attributes:
        removed: Files without a live row left, then those that are rewritten.
        rewritten: All deleted rows of the files whose live rows are copied to new files, by the
            number of the file among those that were scanned.
        counts: How many rows satisfy each of the conditions that were asked for.
        repeated: Paths of files in which a row was found more than once.
        hits: Positions by the number of their file; empty if tasks wrote the vectors.
        vector_files: Vector files that tasks have written, with their bytes.
    """

    vector_updates: tuple[VectorUpdate, ...] = ()
    removed: tuple[FileEntry, ...] = ()
    rewritten: Mapping[int, Bitmap] = field(default_factory=dict)
    rows: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    repeated: tuple[str, ...] = ()
    hits: Mapping[int, Bitmap] = field(default_factory=dict)
    vector_files: Mapping[str, int] = field(default_factory=dict)


def require_ratio(ratio: float | None) -> None:
    if ratio is not None and not 0 < ratio <= 1:
        raise InvalidArgumentError(
            f"rewrite_ratio is a share of rows above 0 and up to 1, got {ratio}"
        )


def find_outcomes(
    attempt: Attempt,
    files: FileSet,
    rows: DataFrame,
    *,
    vectors: bool,
    ratio: float | None = None,
    counted: Mapping[str, str] | None = None,
    in_order: bool = True,
) -> Found:
    """Run the job that finds rows, unite them with the vectors that files have, and decide."""
    if vectors and ratio is None and not fits_driver(attempt.spark, files):
        return write_vectors_in_tasks(attempt, files, rows, counted or {})
    hits = find_rows(rows, counted, in_order=in_order)
    storage, numbers = attempt.storage, sorted(hits.bitmaps)
    olds = load_vectors(storage, files.data_files(numbers)) if numbers else []
    lives = files.entries(numbers)
    counts = row_counts(storage, files, numbers)
    updates: list[VectorUpdate] = []
    emptied: list[FileEntry] = []
    rewritten: dict[int, Bitmap] = {}
    copied: list[FileEntry] = []
    for number, old, live, count in zip(numbers, olds, lives, counts, strict=True):
        vector = unite(old, hits.bitmaps[number], rows=count, path=live.path)
        if vector.cardinality == count:
            if old is not None:
                require_row_count(storage, live.path, live.add, count)
            emptied.append(live)
        elif vectors and (ratio is None or vector.cardinality < ratio * count):
            updates.append(VectorUpdate(live, count, vector))
        else:
            rewritten[number] = vector
            copied.append(live)
    return Found(
        tuple(updates),
        (*emptied, *copied),
        rewritten,
        sum(bitmap.cardinality for bitmap in hits.bitmaps.values()),
        hits.counts,
        tuple(files.paths[number].as_py() for number in hits.repeated),
        hits.bitmaps,
    )


def write_vectors_in_tasks(
    attempt: Attempt, files: FileSet, rows: DataFrame, counted: Mapping[str, str]
) -> Found:
    """Find rows and let tasks write the vectors; see `find_outcomes`."""
    if find_spec("pandas") is None:
        raise MissingDependencyError(
            "so many rows may match that tasks have to write the vectors, for which PySpark needs"
            " pandas",
            dependency="pandas>=2.2.2",
            hint=f"pip install 'delvec[pandas]', or raise {HIT_MEMORY} if the driver has memory",
        )
    folder = uuid4().hex[:_FOLDER_LETTERS]
    attempt.uncommitted.add_folder(folder)
    counts = row_counts(attempt.storage, files, range(len(files)))
    admit_files(attempt.storage, files)  # tasks have no Hadoop settings to ask
    writer = _Writer(attempt.storage, folder, files.data_files(), counts, tuple(counted))
    sums = ", ".join(f"{name} long" for name in counted)
    schema = f"{_RESULT}, {sums}" if counted else _RESULT
    table = (
        hit_words(rows, counted)
        .repartition(NUMBER)
        .sortWithinPartitions(NUMBER)
        .mapInArrow(writer.write, schema)
        .toArrow()
    )
    result = _found(attempt.storage, files, table, counts, counted)
    # Those of tasks that failed after writing and were run again.
    listed = attempt.storage.list(folder)
    attempt.storage.delete(each.key for each in listed if each.key not in result.vector_files)
    return result


def _found(
    storage: Storage,
    files: FileSet,
    table: pa.Table,
    counts: Sequence[int],
    counted: Mapping[str, str],
) -> Found:
    results = sorted(table.to_pylist(), key=lambda result: result[NUMBER])
    lives = files.entries([result[NUMBER] for result in results])
    updates, emptied, repeated = [], [], []
    for result, live in zip(results, lives, strict=True):
        if result["found"] != result["hits"]:
            repeated.append(live.path)
        if result["descriptor"] is None:
            if live.descriptor is not None:
                require_row_count(storage, live.path, live.add, counts[result[NUMBER]])
            emptied.append(live)
            continue
        descriptor = Descriptor.from_json(json.loads(result["descriptor"]))
        updates.append(VectorUpdate(live, counts[result[NUMBER]], None, descriptor))
    return Found(
        tuple(updates),
        tuple(emptied),
        rows=sum(result["hits"] for result in results),
        counts={name: sum(result[name] for result in results) for name in counted},
        repeated=tuple(repeated),
        vector_files={result["path"]: result["bytes"] for result in results if result["path"]},
    )


@dataclass
class _Open:
    """The hits of one file, as batches bring them."""

    number: int
    words: list[NDArray[np.int64]] = field(default_factory=list)
    bits: list[NDArray[np.int64]] = field(default_factory=list)
    found: int = 0
    sums: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Writer:
    """The work of a task; pickled."""

    storage: Storage
    folder: str
    files: Sequence[DataFile]
    counts: Sequence[int]
    counted: tuple[str, ...]

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the hits of files, sorted by file, into vectors."""
        waiting: list[tuple[dict[str, Any], Bitmap]] = []
        size = 0
        for piece in self._pieces(batches):
            result, vector = self._united(piece)
            if vector is None:
                yield self._batch([result])
                continue
            waiting.append((result, vector))
            size += vector.byte_size
            if size >= delta_file.TARGET_SIZE:
                yield from self._stored(waiting)
                waiting, size = [], 0
        yield from self._stored(waiting)

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Open]:
        current: _Open | None = None
        for batch in batches:
            numbers = batch.column(NUMBER).to_numpy()
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
                part = batch.slice(start, stop - start)
                if current is None or numbers[start] != current.number:
                    if current is not None:
                        yield current
                    current = _Open(int(numbers[start]))
                current.words.append(part.column("word").to_numpy().astype(np.int64))
                current.bits.append(part.column("bits").to_numpy())
                current.found += int(part.column("rows").to_numpy().sum())
                for name in self.counted:
                    more = int(part.column(name).to_numpy().sum())
                    current.sums[name] = current.sums.get(name, 0) + more
        if current is not None:
            yield current

    def _united(self, piece: _Open) -> tuple[dict[str, Any], Bitmap | None]:
        """Unite hits with the old vector; None if the file has no live row left."""
        file, rows = self.files[piece.number], self.counts[piece.number]
        hits = bitmap_of(np.concatenate(piece.words), np.concatenate(piece.bits))
        [old] = load_vectors(self.storage, [file])
        vector = unite(old, hits, rows=rows, path=file.path)
        result = {NUMBER: piece.number, "hits": hits.cardinality, "found": piece.found}
        return result | piece.sums, None if vector.cardinality == rows else vector

    def _stored(self, waiting: Sequence[tuple[dict[str, Any], Bitmap]]) -> Iterator[pa.RecordBatch]:
        results = iter([result for result, _ in waiting])
        for file in delta_file.pack((vector for _, vector in waiting), prefix=self.folder):
            self.storage.write(file.path, file.data)  # the name is new
            yield self._batch(
                [
                    {
                        **next(results),
                        "descriptor": json.dumps(descriptor.to_json()),
                        "path": file.path,
                        "bytes": len(file.data),
                    }
                    for descriptor in file.descriptors
                ]
            )

    def _batch(self, results: list[dict[str, Any]]) -> pa.RecordBatch:
        names = (NUMBER, "hits", "found", "descriptor", "path", "bytes", *self.counted)
        strings = {"descriptor": pa.string(), "path": pa.string()}
        schema = pa.schema([(name, strings.get(name, pa.int64())) for name in names])
        return pa.RecordBatch.from_pylist(results, schema=schema)
