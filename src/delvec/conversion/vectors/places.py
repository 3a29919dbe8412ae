"""Where the vectors of many files are, as columns without an object per vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.replay import vector_ids
from delvec.delta.read.load_vectors import blame
from delvec.errors import DelvecError, FormatError
from delvec.storage.listed_files import open_listed_file
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
_READ_ALONG: Final = 1 << 20  # a gap between two ranges up to this size is read with them


@dataclass(frozen=True, eq=False)
class VectorPlaces:
    """The places of vectors: one row for each file, all of which have one.

    Attributes:
        files: The files.
        homes: The distinct files of vectors, as `Descriptor.file_path` names them; the empty
            string stands for inline vectors.
        home: The index of each vector's file in `homes`.
        starts: The offset of each frame in that file; meaningless for an inline vector.
        lengths: Bytes of each frame.
        cardinalities: Deleted rows of each, by the log.
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
        """Return the storage and the key of the file that holds a vector.

        Raises:
            FormatError: The table must not lead there; the error names the data file.
        """
        try:
            return open_listed_file(source, self.homes[int(self.home[row])])
        except FormatError as error:
            raise blamed(error, self.files, row) from None

    def inline_frame(self, row: int) -> bytes:
        """Return the frame of an inline vector.

        Raises:
            FormatError: The descriptor is damaged; the error names the data file.
        """
        descriptor = self.files.descriptor(row)
        if descriptor is None:
            raise AssertionError(f"{self.files.paths[row]} has no vector")
        try:
            return descriptor.inline_frame()
        except FormatError as error:
            raise blamed(error, self.files, row) from None


def vector_places(files: FileSet) -> VectorPlaces:
    """Return where the vectors of files are; every file must have one.

    Takes some 50 bytes of memory for each file, and parses the path of each `.bin` once.

    Raises:
        FormatError: A descriptor is not valid or names a file on another kind of store, or its
            cardinality is 0 or more than the rows of its file; the error names the data file.
    """
    if not files.has_vector.all():
        raise AssertionError("a file has no vector")
    kind, path, offset, size, count = (
        pc.struct_field(files.vectors, [name])
        for name in ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    )
    sizes, counts = _numbers(size, -1), _numbers(count, -1)
    # Only null is an absent offset, so that a forged -1 is refused.
    starts = _numbers(offset, _FIRST_OFFSET)
    sound = pc.and_(pc.is_in(kind, pa.array(["u", "p", "i"], kind.type)), path.is_valid())
    fits = (starts >= 0) & (starts < _INT_LIMIT) & (sizes >= 0) & (sizes < _INT_LIMIT)
    fits &= (counts > 0) & sound.to_numpy(zero_copy_only=False)
    if not fits.all():
        _refuse(files, int(np.argmin(fits)))
    _ = files.live_rows  # refuses cardinalities of more rows than there are
    homes, home = _homes(files, kind, path)
    ids = vector_ids(files.vectors)
    return VectorPlaces(files, homes, home, starts, sizes + FRAME_OVERHEAD, counts, ids)


def pieces(
    places: VectorPlaces, *, most_bytes: int, most_vectors: int, most_homes: int
) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Split vectors into pieces to be read together, in the order in which they are stored.

    Yields the rows of each piece and how many bytes of memory it takes: more than allowed only if a
    single vector is that long.
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
    """Return an error about a vector with its table and data file added to the message."""
    path = files.paths[row].as_py()
    return blame(error, path, files.root, instead="convert an older version")


def _numbers(column: pa.Array, absent: int) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), absent).to_numpy()
    return numbers


def _homes(
    files: FileSet, kind: pa.Array, path: pa.Array
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the distinct files of vectors, and the index of each vector's file."""
    is_inline = pc.equal(kind, "i")
    named = pc.if_else(is_inline, "", pc.binary_join_element_wise(kind, path, ""))
    encoded = named.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    homes: dict[str, int] = {}
    numbers = []
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        storage_type = cast("StorageType", name[:1] or "i")
        try:
            home = Descriptor(storage_type, name[1:], None, 0, 0).file_path or ""
        except FormatError as error:
            raise blamed(error, files, int(np.argmax(codes == code))) from None
        numbers.append(homes.setdefault(home, len(homes)))
    return tuple(homes), np.array(numbers, dtype=np.int64)[codes]


def _refuse(files: FileSet, row: int) -> None:
    descriptor = files.descriptor(row)
    error = FormatError(
        "a deletion vector has bytes, but its cardinality in the log is not positive",
        path=descriptor.file_path if descriptor else None,
        expected="1 or more",
        found=descriptor.cardinality if descriptor else None,
    )
    raise blamed(error, files, row)
