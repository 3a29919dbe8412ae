"""Deleted positions of data files: those that a table holds, read; new ones, written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from delvec.errors import located
from delvec.iceberg.by_condition.position_files import read_positions, write_positions
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.file_json import delete_file_json
from delvec.iceberg.client.files import snapshot_table
from delvec.storage.listed_files import local_path, open_listed_file, spark_path
from delvec.storage.parallel import in_order
from delvec.vector import Bitmap, blobs
from delvec.vector.frame import decode_frame, encode_frame
from delvec.vector.frames import Frames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.position_deletes import DataFileWithDeletes, PositionDeleteFile
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles

__all__ = ["StoredPositions", "earlier_positions", "write_vectors"]

_DATA_FOLDER: Final = "data"
_DATA_PATH: Final = "write.data.path"
_VECTORS_FROM: Final = 3  # the format version
_REQUESTS_AT_ONCE: Final = 16
_IN_FLIGHT: Final = 64 << 20
_PARQUET: Final = "parquet"


@dataclass(frozen=True, eq=False)
class StoredPositions:
    """What was written.

    Attributes:
        delete_files: JSON objects for `RowChange.delete_files`.
        files: Files that were written.
        bytes: Their size.
    """

    delete_files: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    files: int = 0
    bytes: int = 0


def earlier_positions(
    table: LoadedTable,
    snapshot_id: int,
    storage: Storage,
    files: Collection[DataFileWithDeletes],
    *,
    complete: bool = False,
) -> dict[str, Bitmap]:
    """Return the positions that are deleted already, by the path of their data file.

    In tables of format 2 only those of position-delete files that are about one data file: others
    stay, and need not be repeated. In tables of format 3 all: next to a vector no position-delete
    file counts.

    Args:
        table: The table.
        snapshot_id: The snapshot that the files are of.
        storage: The table's location.
        files: Data files.
        complete: Whether all are wanted in any case.

    Raises:
        FormatError: A vector is damaged; the error names its file.
    """
    by_vector: list[tuple[str, PositionDeleteFile]] = []
    by_file: dict[PositionDeleteFile, set[str]] = {}
    all_files = complete or table.metadata.format_version >= _VECTORS_FROM
    for data in files:
        for delete in data.deletes:
            if delete.span is not None:
                by_vector.append((data.path, delete))
            elif all_files or delete.is_file_scoped:
                by_file.setdefault(delete, set()).add(data.path)
    found: dict[str, Bitmap] = {}

    def add(path: str, positions: Bitmap) -> None:
        found[path] = found[path] | positions if path in found else positions

    for (path, _), positions in zip(by_vector, _read_vectors(storage, by_vector), strict=True):
        add(path, positions)
    plain = {each: paths for each, paths in by_file.items() if each.file_format == _PARQUET}
    for delete, paths in plain.items():
        place, key = open_listed_file(storage, local_path(delete.path))
        for path, positions in read_positions(place, key, paths).items():
            add(path, positions)
    others = {each.path: paths for each, paths in by_file.items() if each not in plain}
    for path, positions in _read_by_spark(table, snapshot_id, others):
        add(path, positions)
    return found


def write_vectors(
    table: LoadedTable,
    files: Sequence[DataFileWithDeletes],
    vectors: Sequence[Bitmap],
    storage: Storage,
    uncommitted: UncommittedFiles,
) -> StoredPositions:
    """Write the deleted positions of data files, in the form of the table's format version.

    Args:
        table: The table.
        files: The data files.
        vectors: All deleted positions of each.
        storage: The table's location.
        uncommitted: Is told of each file before it is written.
    """
    if not files:
        return StoredPositions()
    counts = np.array([each.cardinality for each in vectors], dtype=np.int64)
    paths = [each.path for each in files]
    if table.metadata.format_version >= _VECTORS_FROM:
        frames = Frames.join(encode_frame(each) for each in vectors)
        data, offsets = blobs.from_frames(frames, paths, counts)
        key = _new_key(table, storage, "-deletes.puffin")
        uncommitted.add(key)
        storage.write(key, data)
        names, sizes = [key] * len(files), np.full(len(files), len(data), dtype=np.int64)
        spans = offsets, frames.lengths
        written = 1, len(data)
    else:
        names = [_new_key(table, storage, "-deletes.parquet") for _ in files]
        uncommitted.add(*names)
        sizes = np.array(list(_write_files(storage, names, paths, vectors)), dtype=np.int64)
        spans = None
        written = len(names), int(sizes.sum())
    full_names = [spark_path(storage.root, each) for each in names]
    return StoredPositions(_described(files, full_names, sizes, counts, spans), *written)


def _write_files(
    storage: Storage, keys: Sequence[str], paths: Sequence[str], vectors: Sequence[Bitmap]
) -> Iterator[int]:
    """Write position-delete files; yield their sizes."""
    every = zip(keys, paths, vectors, strict=True)
    return in_order(
        lambda each: write_positions(storage, *each),
        ((each, len(each[2].to_bytes())) for each in every),
        threads=_REQUESTS_AT_ONCE,
        budget=_IN_FLIGHT,
    )


def _described(
    files: Sequence[DataFileWithDeletes],
    names: Sequence[str],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    spans: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
) -> pa.Array:
    """Return the JSON objects: spec and partition are those of the data file, or readers refuse."""
    specs = np.array([each.spec_id for each in files])
    parts = []
    for spec_id in np.unique(specs).tolist():
        rows = np.flatnonzero(specs == spec_id)
        chosen = rows.tolist()
        parts.append(
            delete_file_json(
                pa.array([names[row] for row in chosen], pa.string()),
                sizes[rows],
                counts[rows],
                pa.array([files[row].path for row in chosen], pa.string()),
                spec_id,
                pa.array([files[row].partition_json for row in chosen], pa.string()),
                frames=None if spans is None else (spans[0][rows], spans[1][rows]),
            )
        )
    return pa.concat_arrays(parts)


def _new_key(table: LoadedTable, storage: Storage, ending: str) -> str:
    """Return the name of a new file, where the table has its data files if that is below it."""
    folder = local_path(table.metadata.properties.get(_DATA_PATH, "")).rstrip("/")
    root = storage.root.rstrip("/") + "/"
    inside = folder[len(root) :] if folder.startswith(root) else _DATA_FOLDER
    return f"{inside}/{uuid4()}{ending}"


def _read_vectors(
    storage: Storage, vectors: Sequence[tuple[str, PositionDeleteFile]]
) -> Iterator[Bitmap]:
    def read(vector: PositionDeleteFile) -> Bitmap:
        assert vector.span is not None  # noqa: S101 - chosen so
        place, key = open_listed_file(storage, local_path(vector.path))
        data = place.read_range(key, *vector.span)
        with located(vector.path, vector.span[0]):
            return decode_frame(data, cardinality=vector.record_count)

    return in_order(
        read,
        ((each, each.span[1] if each.span else 0) for _, each in vectors),
        threads=_REQUESTS_AT_ONCE,
        budget=_IN_FLIGHT,
    )


def _read_by_spark(
    table: LoadedTable, snapshot_id: int, files: dict[str, set[str]]
) -> Iterable[tuple[str, Bitmap]]:
    """Yield the positions of files of other formats, which only Iceberg reads."""
    if not files:
        return
    with explained(str(table.name)):
        rows = snapshot_table(table, "position_deletes", snapshot_id)
        rows = rows.where(F.col("delete_file_path").isin(*files))
        places = rows.groupBy("delete_file_path", "file_path").agg(F.collect_list("pos")).toArrow()
    for file, path, positions in zip(*(each.to_pylist() for each in places.columns), strict=True):
        if path in files[file]:
            yield path, Bitmap(positions)
