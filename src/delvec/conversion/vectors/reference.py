"""Where the target's vectors are, and references to vectors in Delta's own files."""

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
    """Where vectors are in the target, one row for each data file, in the order given.

    Attributes:
        paths: The file that holds the vector, as the manifest is to name it.
        sizes: Bytes of that file.
        offsets: The offset of the vector in it; None for files of position deletes.
        lengths: Bytes of the vector in it; None for files of position deletes.
        cardinalities: Deleted rows of each.
        bytes_written: Bytes of all files that were written.
        files_written: How many files.
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
    """Refer to vectors in Delta's own files; nothing is written.

    Costs one HEAD for each `.bin` file, for its true size. The vectors themselves are not read.

    Raises:
        UnsupportedFeatureError: A vector is inline in the log, which Iceberg cannot refer to.
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
    """Return a row for each file of vectors, so that errors can name a data file."""
    firsts: list[int] = np.unique(places.home, return_index=True)[1].tolist()
    return firsts


def _refuse_inline(places: VectorPlaces, row: int) -> None:
    raise UnsupportedFeatureError(
        f"the deletion vector of {places.files.paths[row].as_py()} in {places.files.root} is"
        " inline in the log, which Iceberg cannot refer to",
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
