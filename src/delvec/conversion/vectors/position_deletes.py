"""Vectors as position deletes of Iceberg's format 2: Parquet files of row positions.

There is one file for each data file. Its name begins with a digest of the vector's id, by which a
later conversion recognises it without opening it.
"""

from __future__ import annotations

from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from delvec.conversion.vectors.places import pieces, vector_places
from delvec.conversion.vectors.reference import REQUESTS_AT_ONCE, StoredVectors
from delvec.delta.log.file_set import DataFile
from delvec.delta.read.load_vectors import load_vectors
from delvec.iceberg.by_condition.position_files import write_positions
from delvec.storage.listed_files import spark_path
from delvec.storage.parallel import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles

__all__ = ["digest", "write_position_deletes"]

_DIGITS: Final = 32
_PIECE: Final = 4 << 20
_PIECE_VECTORS: Final = 256
_IN_FLIGHT: Final = 64 << 20


def digest(unique_ids: pa.Array) -> pa.Array:
    """Return the digest of each vector's id for the name of its file; null for null.

    >>> digest(pa.array(["uab^-aqEH.-t@S}K{vb[*k^@1"]))[0].as_py()
    '66e49ccb193a466aec2420aefec6aa10'
    """
    ids = unique_ids.to_pylist()
    return pa.array(
        [None if each is None else sha256(each.encode()).hexdigest()[:_DIGITS] for each in ids],
        pa.string(),
    )


def write_position_deletes(
    files: FileSet,
    data_paths: pa.Array,
    source: Storage,
    target: Storage,
    folder: str,
    uncommitted: UncommittedFiles,
) -> StoredVectors:
    """Write the vectors of files, all of which have one, as Parquet files of row positions.

    Positions are streamed: memory grows with the size of the vectors that are written in parallel
    (64 MiB, unless a single one is larger), not with the number of deleted rows. A file of more
    than some hundred thousand positions goes through a temporary file on local disk.

    Args:
        files: The data files.
        data_paths: Their paths, exactly as the manifest has them.
        source: The Delta table.
        target: The Iceberg table's location.
        folder: Where in the target to write.
        uncommitted: Is told of each file before it is written.

    Raises:
        FormatError: A vector is damaged or does not match its data file; the error names both.
        ObjectNotFoundError: The file of a vector is gone; the error names the data file too.
    """
    places = vector_places(files)
    sizes = np.empty(len(files), dtype=np.int64)
    start = f"{folder}/" if folder else ""
    keys = [f"{start}{each}-{uuid4()}.parquet" for each in digest(places.ids).to_pylist()]
    chosen = pieces(
        places,
        most_bytes=_PIECE,
        most_vectors=min(max(len(files) // (4 * REQUESTS_AT_ONCE), 1), _PIECE_VECTORS),
        most_homes=1,
    )

    def remembered() -> Iterator[tuple[NDArray[np.int64], int]]:
        for rows, weight in chosen:
            uncommitted.add(*(keys[row] for row in rows.tolist()))
            yield rows, weight

    def written(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
        chosen_rows = rows.tolist()
        vectors = load_vectors(source, [_data_file(files, row) for row in chosen_rows])
        return rows, [
            write_positions(target, keys[row], data_paths[row].as_py(), vector)
            for row, vector in zip(chosen_rows, vectors, strict=True)
            if vector is not None
        ]

    results = in_order(written, remembered(), threads=REQUESTS_AT_ONCE, budget=_IN_FLIGHT)
    with closing(results):
        for rows, bytes_of_each in results:
            sizes[rows] = bytes_of_each
    names = pa.array([spark_path(target.root, key) for key in keys], pa.string())
    return StoredVectors(
        names, sizes, None, None, places.cardinalities, int(sizes.sum()), len(files)
    )


def _data_file(files: FileSet, row: int) -> DataFile:
    """Return what loading a vector needs to know of its data file."""
    return DataFile(
        files.paths[row].as_py(),
        int(files.sizes[row]),
        {},
        files.descriptor(row),
        files.row_counts[row].as_py(),
        int(files.modification_times[row]),
    )
