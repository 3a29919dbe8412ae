"""Where the vectors of many files are, as columns: nothing is made for each vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.replay import vector_ids
from delvec.errors import DelvecError, FormatError
from delvec.storage.listed_files import is_absolute, open_listed_file, require_same_store
from delvec.vector import Descriptor
from delvec.vector.frame import FRAME_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage
    from delvec.vector.descriptor import StorageType

__all__ = ["VectorPlaces", "blamed", "pieces", "vector_places"]

_INT_LIMIT: Final = 2**31
_FIRST_OFFSET: Final = 1  # what an absent offset means; see Descriptor.file_range
_READ_ALONG: Final = 1 << 20  # what lies between two ranges comes with them, if it is no more


@dataclass(frozen=True, eq=False)
class VectorPlaces:
    """One row for each file, all of which have a vector.

    Attributes:
        files: The files.
        homes: The distinct files that hold vectors, as `Descriptor.file_path` names them; an empty
            name stands for the log itself.
        home: Which of these holds each vector.
        starts: Where each frame begins there; nothing that means anything for one in the log.
        lengths: Bytes of each whole frame.
        cardinalities: How many rows each marks, by the log.
        ids: Delta's unique id of each.
    """

    files: FileSet
    homes: tuple[str, ...]
    home: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    cardinalities: NDArray[np.int64]
    ids: pa.Array

    def open_home(self, source: Storage, row: int) -> tuple[Storage, str]:
        """Give the storage and the key of the file that holds a vector."""
        return open_listed_file(source, self.homes[int(self.home[row])])

    def inline_frame(self, row: int) -> bytes:
        """Give the frame of a vector that is in the log.

        Raises:
            FormatError: The text in the log is damaged; the data file is named.
        """
        descriptor = self.files.descriptor(row)
        if descriptor is None:
            raise AssertionError(f"{self.files.paths[row]} has no vector")
        try:
            return descriptor.inline_frame()
        except FormatError as error:
            raise blamed(error, self.files, row) from None


def vector_places(files: FileSet) -> VectorPlaces:
    """Find where the vectors of files are; every file must have one.

    Takes some 50 bytes for each file, and looks at each distinct `.bin` once.

    Raises:
        FormatError: A descriptor is not valid or names a file on another kind of store, or its
            vector marks no rows or more than its file has; the data file is named.
    """
    if not files.has_vector.all():
        raise AssertionError("a file has no vector")
    kind, text, offset, size, count = (
        pc.struct_field(files.vectors, name)
        for name in ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    )
    sizes, counts = _numbers(size, -1), _numbers(count, -1)
    # Where the log has a number and not null, so that a forged -1 is not taken for an absent one.
    starts = _numbers(offset, _FIRST_OFFSET)
    sound = pc.and_(pc.is_in(kind, pa.array(["u", "p", "i"], kind.type)), text.is_valid())
    fits = (starts >= 0) & (starts < _INT_LIMIT) & (sizes >= 0) & (sizes < _INT_LIMIT)
    fits &= (counts > 0) & sound.to_numpy(zero_copy_only=False)
    if not fits.all():
        _refuse(files, int(np.argmin(fits)))
    _ = files.live_rows  # refuses vectors that mark more rows than there are
    homes, home = _homes(files, kind, text)
    ids = vector_ids(files.vectors)
    return VectorPlaces(files, homes, home, starts, sizes + FRAME_OVERHEAD, counts, ids)


def pieces(
    places: VectorPlaces, *, most_bytes: int, most_vectors: int, most_homes: int
) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Cut vectors into pieces to be read together, in the order in which they are stored.

    Gives the rows of each piece and how many bytes will be in memory for it: more than allowed only
    if a single vector is that long.
    """
    order = np.lexsort((places.starts, places.home))
    home, starts, lengths = places.home[order], places.starts[order], places.lengths[order]
    is_next = np.diff(home, prepend=-1) != 0
    gaps = np.clip(starts - np.roll(starts + lengths, 1), 0, _READ_ALONG)
    # Ranges that overlap are counted in full, since each vector is copied out.
    totals = np.concatenate(([0], np.cumsum(lengths + np.where(is_next, 0, gaps))))
    numbers = np.cumsum(is_next)
    begin = 0
    while begin < len(order):
        by_bytes = int(np.searchsorted(totals, totals[begin] + most_bytes, side="right")) - 1
        by_homes = int(np.searchsorted(numbers, numbers[begin] + most_homes))
        end = min(max(by_bytes, begin + 1), begin + most_vectors, by_homes)
        yield order[begin:end], int(totals[end] - totals[begin])
        begin = end


def blamed(error: DelvecError, files: FileSet, row: int) -> DelvecError:
    """Add the table and the data file whose rows a vector deletes to what is wrong with it."""
    path = files.paths[row].as_py()
    error.message = f"{error.message} (the deletion vector of {path} in {files.root})"
    error.hint = error.hint or (
        "without the vector nobody can tell which rows are deleted: restore it from a copy, or"
        " convert an older version"
    )
    return error


def _numbers(column: pa.Array, absent: int) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), absent).to_numpy()
    return numbers


def _homes(
    files: FileSet, kind: pa.Array, text: pa.Array
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Give the distinct files that hold vectors, and which one holds each."""
    is_inline = pc.equal(kind, "i")
    named = pc.if_else(is_inline, "", pc.binary_join_element_wise(kind, text, ""))
    encoded = named.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    homes: dict[str, int] = {}
    numbers = []
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        storage_type = cast("StorageType", name[:1] or "i")
        try:
            home = Descriptor(storage_type, name[1:], None, 0, 0).file_path or ""
            if is_absolute(home):
                require_same_store(files.root, home)
        except FormatError as error:
            raise blamed(error, files, int(np.argmax(codes == code))) from None
        numbers.append(homes.setdefault(home, len(homes)))
    return tuple(homes), np.array(numbers, dtype=np.int64)[codes]


def _refuse(files: FileSet, row: int) -> None:
    descriptor = files.descriptor(row)
    error = FormatError(
        "a deletion vector has bytes, but by the log it marks no rows",
        path=descriptor.file_path if descriptor else None,
        expected="1 row or more",
        found=descriptor.cardinality if descriptor else None,
    )
    raise blamed(error, files, row)
