"""Vectors written by tasks, for hits that exceed the driver's limit.

Each task gets all hits of its files, loads their old vectors, unites, packs and writes; the driver
gets one descriptor for each file. Vector files go into a folder of their own, so that those of a
task that was run again are found and removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from delvec.delta.parquet.footer_statistics import require_row_count
from delvec.delta.parquet.row_counts import row_counts
from delvec.delta.read.load_vectors import admit_files, load_vectors
from delvec.delta.write.change import VectorUpdate
from delvec.errors import MissingDependencyError
from delvec.spark.delta.write.file_outcomes import FileOutcomes, Found
from delvec.spark.positions import HIT_MEMORY, NUMBER, bitmap_of, hit_words
from delvec.vector import Descriptor, delta_file
from delvec.vector.unite import unite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from delvec.delta.log.file_set import DataFile, FileSet
    from delvec.delta.write.transaction import Attempt
    from delvec.storage import Storage
    from delvec.vector import Bitmap

__all__ = ["write_vectors_in_tasks"]

_RESULT: Final = f"{NUMBER} long, hits long, found long, descriptor string, path string, bytes long"
_FOLDER_LETTERS: Final = 8


def write_vectors_in_tasks(
    attempt: Attempt, files: FileSet, rows: DataFrame, counted: Mapping[str, str]
) -> Found:
    """Find rows and let tasks write the vectors; see `file_outcomes.find_outcomes`.

    Raises:
        MissingDependencyError: There is no pandas, without which PySpark refuses `mapInArrow`.
    """
    _require_pandas()
    folder = uuid4().hex[:_FOLDER_LETTERS]
    attempt.uncommitted.add_folder(folder)
    everything = range(len(files))
    counts = row_counts(attempt.storage, files, everything)
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
    _drop_unused(attempt.storage, folder, result.vector_files)
    return result


def _require_pandas() -> None:
    if find_spec("pandas") is None:
        raise MissingDependencyError(
            "so many rows may match that tasks have to write the vectors, for which PySpark needs"
            " pandas",
            dependency="pandas>=2.2.2",
            hint=f"pip install 'delvec[pandas]', or raise {HIT_MEMORY} if the driver has memory",
        )


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
        FileOutcomes(tuple(updates), tuple(emptied)),
        sum(result["hits"] for result in results),
        {name: sum(result[name] for result in results) for name in counted},
        tuple(repeated),
        vector_files={result["path"]: result["bytes"] for result in results if result["path"]},
    )


def _drop_unused(storage: Storage, folder: str, used: Mapping[str, int]) -> None:
    """Delete vector files of tasks that failed after writing and were run again."""
    storage.delete(info.key for info in storage.list(folder) if info.key not in used)


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
        result = {
            NUMBER: piece.number,
            "hits": hits.cardinality,
            "found": piece.found,
            **piece.sums,
        }
        return result, None if vector.cardinality == rows else vector

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

    def _batch(self, results: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        numbers = [NUMBER, "hits", "found"]
        strings = ["descriptor", "path"]
        schema = pa.schema(
            [
                *((name, pa.int64()) for name in numbers),
                *((name, pa.string()) for name in strings),
                *((name, pa.int64()) for name in ("bytes", *self.counted)),
            ]
        )
        columns = {name: [result.get(name) for result in results] for name in schema.names}
        return pa.RecordBatch.from_pydict(columns, schema=schema)
