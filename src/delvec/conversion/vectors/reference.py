"""Vectors as an Iceberg table holds them: where they are stored, or referred to in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from delvec.conversion.vectors.places import blamed, vector_places
from delvec.errors import ObjectNotFoundError, TruncatedError, UnsupportedFeatureError
from delvec.storage.listed_files import spark_path
from delvec.storage.parallel import in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.conversion.vectors.places import VectorPlaces
    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

__all__ = ["REQUESTS_AT_ONCE", "StoredVectors", "reference"]

REQUESTS_AT_ONCE: Final = 16


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Where vectors are for Iceberg, one row for each file that has one, in the order given.

    Attributes:
        paths: The file that holds the vector, as the manifest shall name it.
        sizes: Bytes of that whole file.
        offsets: Where the vector begins there; None if the file holds nothing else.
        lengths: Bytes of the vector there; None likewise.
        cardinalities: How many rows each marks.
        bytes_written: What was written for them in all.
        files_written: Into how many files.
    """

    paths: pa.Array
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64] | None
    lengths: NDArray[np.int64] | None
    cardinalities: NDArray[np.int64]
    bytes_written: int = 0
    files_written: int = 0

    def __len__(self) -> int:
        return len(self.paths)


def reference(files: FileSet, source: Storage) -> StoredVectors:
    """Refer to the vectors where they are, in Delta's own files: nothing is written.

    One HEAD for each `.bin` file, for its true size. The vectors themselves are not looked at.

    Raises:
        UnsupportedFeatureError: A vector is in the log, where Iceberg cannot point at.
        FormatError: A vector lies outside its file, or its descriptor is not valid.
        ObjectNotFoundError: A file of vectors is gone.
    """
    places = vector_places(files)
    firsts = _first_rows(places)
    if "" in places.homes:
        _refuse_inline(places, firsts[places.homes.index("")])

    def measure(row: int) -> int:
        place, key = places.open_home(source, row)
        try:
            return place.size(key)
        except ObjectNotFoundError as error:
            raise blamed(error, files, row) from None

    measured = in_order(
        measure, ((row, 1) for row in firsts), threads=REQUESTS_AT_ONCE, budget=len(firsts)
    )
    sizes = np.fromiter(measured, dtype=np.int64, count=len(firsts))[places.home]
    _require_inside(places, sizes)
    names = [spark_path(source.root, home) for home in places.homes]
    return StoredVectors(
        pa.array(names, pa.string()).take(places.home),
        sizes,
        places.starts,
        places.lengths,
        places.cardinalities,
    )


def _first_rows(places: VectorPlaces) -> list[int]:
    """Give a row for each file of vectors, for the errors to name a data file."""
    firsts: list[int] = np.unique(places.home, return_index=True)[1].tolist()
    return firsts


def _refuse_inline(places: VectorPlaces, row: int) -> None:
    raise UnsupportedFeatureError(
        f"the deletion vector of {places.files.paths[row].as_py()} in {places.files.root} is in"
        " the log itself, where Iceberg cannot point at",
        feature="inline deletion vectors",
        hint='use vectors="repack", which copies vectors into Puffin files',
    )


def _require_inside(places: VectorPlaces, sizes: NDArray[np.int64]) -> None:
    outside = np.flatnonzero(places.starts + places.lengths > sizes)
    if not len(outside):
        return
    row = int(outside[0])
    error = TruncatedError(
        "vector lies outside its file",
        path=places.homes[int(places.home[row])],
        offset=int(places.starts[row]),
        expected=f"{places.lengths[row]} bytes",
        found=f"a file of {sizes[row]} bytes",
    )
    raise blamed(error, places.files, row)
