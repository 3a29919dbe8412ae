"""Deleted positions of data files, from found rows to stored files: collected, united, written.

In tables of format 3 they are vectors in a Puffin file, in tables of format 2 Parquet files of row
positions, one for each data file. The driver holds the vectors of all data files it is about.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delvec.errors import PlanError, add_location
from delvec.iceberg.client import files as client_files
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.content_files import delete_file_json
from delvec.iceberg.client.failures import translate_errors
from delvec.parquet.readable import open_parquet, readable
from delvec.spark.positions import NUMBER, POSITION, find_rows
from delvec.storage import Storage
from delvec.storage.listed_files import local_path, open_listed_file, spark_path
from delvec.storage.parallel import map_in_order
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap, blobs
from delvec.vector.bitmap import unite
from delvec.vector.frame import decode_frame, encode_frame
from delvec.vector.frame_batch import Frames

_PATH_TYPE: Final = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(  # with the ids that Iceberg reserves for these columns
    [
        pa.field(
            "file_path", _PATH_TYPE, nullable=False, metadata={"PARQUET:field_id": "2147483546"}
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
_ROWS_AT_ONCE: Final = 1 << 19
_DATA_FOLDER: Final = "data"
_VECTORS_FROM: Final = 3  # the format version
_REQUESTS_AT_ONCE: Final = 16
_IN_FLIGHT: Final = 64 << 20
_PARQUET: Final = "parquet"
_PATH_COLUMN: Final = "__delvec_path"


@dataclass(frozen=True, eq=False)
class StoredPositions:
    """What was written: objects for `RowChange.delete_files`, in how many files of which size."""

    delete_files: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, eq=False)
class MergedPositions:
    """Data files with deleted rows, as they are to be.

    Attributes:
        files: The data files, by path, with the position deletes that they have.
        vectors: All deleted positions of those that keep rows, by path.
        whole: Paths of those that have no row left.
        rows: Rows that were live and are not any more.
    """

    files: Mapping[str, client_files.DataFileWithDeletes] = field(default_factory=dict)
    vectors: Mapping[str, Bitmap] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    rows: int = 0

    @property
    def replaced(self) -> list[client_files.PositionDeleteFile]:
        """The delete files that the new ones replace."""
        files = self.files.values()
        return [each for file in files for each in file.deletes if each.is_file_scoped]

    @property
    def replaced_vectors(self) -> int:
        """How many of the data files with a new vector have one before."""
        return sum(
            any(each.is_file_scoped for each in self.files[path].deletes) for path in self.vectors
        )


def collect_positions(
    table: LoadedTable, rows: DataFrame, paths: Sequence[str]
) -> Mapping[str, Bitmap]:
    """Return the positions of rows by the path of their data file, by one job.

    Its tasks send the driver at most 24 bytes for each 64 rows with a hit.
    """
    numbers = pa.table({_PATH_COLUMN: pa.array(paths, pa.string()), NUMBER: range(len(paths))})
    known = F.broadcast(table.spark.createDataFrame(numbers))
    places = rows.select(F.col("_file"), F.col("_pos").alias(POSITION))
    joined = places.join(known, F.col("_file") == F.col(_PATH_COLUMN), "left")
    # A row of an unknown file must not get lost: it would not be deleted.
    number = F.coalesce(F.col(NUMBER), F.lit(len(paths)))
    with translate_errors(str(table.name)):
        numbered = joined.select(number.alias(NUMBER), POSITION)
        found = find_rows(numbered).bitmaps
    if len(paths) in found:
        raise PlanError(
            f"rows were found in a file that the snapshot of {table.name} does not list",
            hint="was the table changed meanwhile? Run it again",
        )
    return {paths[number]: bitmap for number, bitmap in found.items()}


def merge_positions(
    table: LoadedTable,
    snapshot_id: int,
    hits: Mapping[str, Bitmap],
    *,
    whole: Collection[str] = (),
    complete: bool = False,
) -> MergedPositions:
    """Unite new deleted rows with those that a snapshot has.

    The driver holds the vectors of all these data files.
    """
    files = client_files.find_position_deletes(table, snapshot_id, hits.keys() | set(whole))
    touched = [files[path] for path in hits if path not in whole]
    storage = table.storage()
    earlier = read_earlier_positions(table, snapshot_id, storage, touched, complete=complete)
    vectors: dict[str, Bitmap] = {}
    gone = list(whole)
    rows = sum(files[path].row_count for path in whole)
    for file in touched:
        path, before = file.path, earlier.get(file.path)
        # Others may have deleted some of the rows since they were found.
        new = hits[path] if before is None else hits[path] - before
        united = unite(before, new, rows=file.row_count, path=path)
        rows += new.cardinality
        if united.cardinality == file.row_count:
            gone.append(path)
        elif united:
            vectors[path] = united
    return MergedPositions(files, vectors, tuple(gone), rows)


def read_earlier_positions(
    table: LoadedTable,
    snapshot_id: int,
    storage: Storage,
    files: Collection[client_files.DataFileWithDeletes],
    *,
    complete: bool = False,
) -> dict[str, Bitmap]:
    """Return the positions that are deleted already, by the path of their data file.

    In tables of format 2 only those of position-delete files that are about one data file: others
    stay, and need not be repeated. In tables of format 3 all: next to a vector no position-delete
    file counts.
    """
    by_vector: list[tuple[str, client_files.PositionDeleteFile]] = []
    by_file: dict[client_files.PositionDeleteFile, set[str]] = {}
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


def write_position_vectors(
    table: LoadedTable,
    files: Sequence[client_files.DataFileWithDeletes],
    vectors: Sequence[Bitmap],
    storage: Storage,
    uncommitted: UncommittedFiles,
) -> StoredPositions:
    """Write the deleted positions of data files, in the form of the table's format version."""
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


def read_positions(source: Storage, key: str, data_paths: Collection[str]) -> dict[str, Bitmap]:
    """Return the positions that a position-delete file has for some data files.

    Row groups are read one after the other; memory grows with the positions that are found.
    """
    wanted = pa.array(sorted(data_paths), pa.string())
    found: dict[str, Bitmap] = {}
    readable_file = readable(source.uri_of(key))
    with source.open_input(key) as file, readable_file, open_parquet(file) as parquet:
        for batch in parquet.iter_batches(columns=["file_path", "pos"]):
            paths = batch.column(0).cast(pa.string())
            chosen = batch.filter(pc.is_in(paths, value_set=wanted))
            paths = chosen.column(0).cast(pa.string())
            for path in paths.unique().to_pylist():
                new = Bitmap(chosen.column(1).filter(pc.equal(paths, path)).to_numpy())
                found[path] = found[path] | new if path in found else new
    return found


def write_positions(target: Storage, key: str, data_path: str, vector: Bitmap) -> int:
    """Write the deleted rows of one data file as a position-delete file; return its size.

    Positions are streamed. A file of more than some hundred thousand positions goes through a
    temporary file on local disk.
    """
    if vector.cardinality <= _ROWS_AT_ONCE:
        memory = BytesIO()
        _write_rows(memory, data_path, vector)
        content = memory.getbuffer()
        target.write(key, content)
        return content.nbytes
    with TemporaryFile(prefix="delvec-") as file:
        _write_rows(file, data_path, vector)
        file.flush()
        # Closed with its last user: closing a memory map that is still exported is an error.
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        target.write(key, content)
        return content.nbytes


def _read_vectors(
    storage: Storage, vectors: Sequence[tuple[str, client_files.PositionDeleteFile]]
) -> Iterator[Bitmap]:
    def read(vector: client_files.PositionDeleteFile) -> Bitmap:
        assert vector.span is not None  # noqa: S101 - chosen so
        place, key = open_listed_file(storage, local_path(vector.path))
        data = place.read_range(key, *vector.span)
        with add_location(vector.path, vector.span[0]):
            return decode_frame(data, cardinality=vector.record_count)

    sized = ((each, each.span[1] if each.span else 0) for _, each in vectors)
    return map_in_order(read, sized, threads=_REQUESTS_AT_ONCE, budget=_IN_FLIGHT)


def _read_by_spark(
    table: LoadedTable, snapshot_id: int, files: dict[str, set[str]]
) -> Iterable[tuple[str, Bitmap]]:
    """Yield the positions of files of other formats, which only Iceberg reads."""
    if not files:
        return
    with translate_errors(str(table.name)):
        rows = client_files.snapshot_table(table, "position_deletes", snapshot_id)
        rows = rows.where(F.col("delete_file_path").isin(*files))
        places = rows.groupBy("delete_file_path", "file_path").agg(F.collect_list("pos")).toArrow()
    for file, path, positions in zip(*(each.to_pylist() for each in places.columns), strict=True):
        if path in files[file]:
            yield path, Bitmap(positions)


def _write_files(
    storage: Storage, keys: Sequence[str], paths: Sequence[str], vectors: Sequence[Bitmap]
) -> Iterator[int]:
    """Write position-delete files; yield their sizes."""
    every = zip(keys, paths, vectors, strict=True)
    return map_in_order(
        lambda each: write_positions(storage, *each),
        ((each, len(each[2].to_bytes())) for each in every),
        threads=_REQUESTS_AT_ONCE,
        budget=_IN_FLIGHT,
    )


def _described(
    files: Sequence[client_files.DataFileWithDeletes],
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
    folder = local_path(table.metadata.properties.get("write.data.path", "")).rstrip("/")
    root = storage.root.rstrip("/") + "/"
    inside = folder[len(root) :] if folder.startswith(root) else _DATA_FOLDER
    return f"{inside}/{uuid4()}{ending}"


def _write_rows(file: IO[bytes], data_path: str, vector: Bitmap) -> None:
    name = pa.array([data_path], pa.string())
    with pq.ParquetWriter(
        file,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["file_path"],
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        store_schema=False,
    ) as writer:
        for positions in vector.batches(_ROWS_AT_ONCE):
            paths = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), name)
            batch = pa.record_batch([paths, pa.array(positions)], schema=_SCHEMA)
            writer.write_batch(batch)
