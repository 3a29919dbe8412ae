"""Where vectors are and what identifies them, as columns without an object per vector.

delete file of the target     `path@offset` for a vector in a Puffin file, else the path
delete file of a later step   `planned:` and the path of its data file
vector of a data file         path and id with a NUL character between

Which vectors of the source a target has is known without reading any vector:

where the vector is          id                                    the same id of the source
a Puffin file of delvec      property `delvec-source-id`           `vector_ids`
Delta's own `.bin`           path and offset                       `referenced_keys`
a Parquet file of delvec     digest in the file's name             `digest` of `vector_ids`
anything else                null
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.file_set import FileSet
from delvec.delta.log.replay import vector_ids
from delvec.delta.read.vectors import locate_error
from delvec.documents import whole_number
from delvec.errors import DelvecError, FormatError, InvalidArgumentError, ObjectNotFoundError
from delvec.report.format import escape_controls
from delvec.storage import Storage
from delvec.storage.backend import is_absolute
from delvec.storage.listed_files import local_path, open_listed_file, spark_path
from delvec.storage.parallel import map_in_order
from delvec.vector import Descriptor
from delvec.vector.blobs import DELETION_VECTOR
from delvec.vector.descriptor import StorageType
from delvec.vector.frame import FRAME_OVERHEAD
from delvec.vector.puffin import read_footer

_INT_LIMIT: Final = 2**31
_FIRST_OFFSET: Final = 1  # what an absent offset means; see Descriptor.file_range
_READ_ALONG: Final = 1 << 20  # a gap between two ranges up to this size is read with them
PLANNED: Final = "planned:"
"""Prefix of the key of a delete file that an earlier step of the same plan will write."""
SOURCE_ID: Final = "delvec-source-id"
"""The blob property with the unique id of Delta's vector."""
_LOG = logging.getLogger("delvec")
_FOOTERS_AT_ONCE: Final = 4  # each may take 100 MB while it is parsed
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PARQUET_NAME: Final = rf"/(?P<digest>[0-9a-f]{{32}})-{_UUID}\.parquet$"


@dataclass(frozen=True, eq=False)
class VectorPlaces:
    """The places of vectors: one row for each file, all of which have one."""

    files: FileSet
    # The distinct files of vectors, as `Descriptor.file_path` names them; "" for inline vectors.
    homes: tuple[str, ...]
    home: NDArray[np.int64]  # the index of each vector's file in `homes`
    starts: NDArray[np.int64]  # of each frame in that file; meaningless for an inline vector
    lengths: NDArray[np.int64]  # bytes of each frame
    cardinalities: NDArray[np.int64]  # by the log
    ids: pa.Array  # Delta's unique ones

    def open_home(self, source: Storage, row: int) -> tuple[Storage, str]:
        try:
            return open_listed_file(source, self.homes[int(self.home[row])])
        except FormatError as error:
            raise blamed(error, self.files, row) from None

    def inline_frame(self, row: int) -> bytes:
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
    return locate_error(error, path, files.root, instead="convert an older version")


def delete_file_keys(paths: pa.Array, offsets: pa.Array) -> pa.Array:
    """Return the keys of delete files.

    >>> delete_file_keys(pa.array(["a.puffin", "b.parquet"]), pa.array([4, None])).to_pylist()
    ['a.puffin@4', 'b.parquet']
    """
    at_offset = pc.binary_join_element_wise(paths, offsets.cast(pa.string()), "@")
    return pc.coalesce(at_offset, paths)


def planned_keys(data_paths: pa.Array) -> pa.Array:
    """Return the keys of delete files that are not written yet, by the paths of data files."""
    return pc.binary_join_element_wise(pa.scalar(PLANNED), data_paths, pa.scalar(""))


def vector_keys(paths: pa.Array, ids: pa.Array) -> pa.Array:
    """Return keys of data files with their vectors; a null id is a file without one."""
    return pc.binary_join_element_wise(paths, ids, "\0", null_handling="skip")


def stored_ids(paths: pa.Array, offsets: pa.Array, formats: pa.Array, target: Storage) -> pa.Array:
    """Return the source's id of the vector of each delete file of the target; null if unknown.

    Costs one HEAD and one or two GETs for each distinct Puffin file, four of them in parallel;
    other files are not opened. Memory grows with the entries and with four footers.

    The ids in a Puffin file that is missing or damaged are null, so that a full conversion writes
    its vectors again and repairs the target; a warning is logged. Files are opened only on the
    target's own kind of store. Other errors of the store are raised.
    """
    paths, offsets, kind = map(_flat, (paths, offsets, pc.utf8_upper(formats)))
    is_puffin = pc.fill_null(pc.and_(pc.equal(kind, "PUFFIN"), offsets.is_valid()), False)
    is_parquet = pc.fill_null(pc.equal(kind, "PARQUET"), False)
    is_delta = pc.ends_with(paths, ".bin")
    digests = pc.struct_field(pc.extract_regex(paths, _PARQUET_NAME), "digest")
    known = pc.case_when(
        pc.make_struct(is_parquet, pc.and_(is_puffin, is_delta)),
        digests,
        delete_file_keys(paths, offsets),
        pa.scalar(None, pa.string()),
    )
    rows = np.flatnonzero(pc.and_(is_puffin, pc.invert(is_delta)).to_numpy(zero_copy_only=False))
    if not len(rows):
        return known
    read = _from_footers(paths.take(rows), offsets.take(rows), target)
    mask = np.zeros(len(paths), dtype=np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(known, pa.array(mask), read)


def referenced_keys(files: FileSet, source: Storage) -> pa.Array:
    """Return the ids that `stored_ids` returns for referenced vectors; null for inline ones."""
    places = vector_places(files)
    names = [spark_path(source.root, home) if home else None for home in places.homes]
    return delete_file_keys(pa.array(names, pa.string()).take(places.home), pa.array(places.starts))


def referenced_ids(ids: pa.Array, root: str) -> pa.Array:
    """Return the same for Delta's unique ids; null where an id has no file and offset."""
    return pa.array([_referenced(each, root) for each in ids.to_pylist()], pa.string())


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


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _referenced(unique_id: str | None, root: str) -> str | None:
    path, sign, offset = (unique_id or "").rpartition("@")
    if not sign or whole_number(offset) is None or path[:1] not in ("u", "p"):
        return None
    kind: StorageType = "u" if path[0] == "u" else "p"
    try:
        home = Descriptor(kind, path[1:], None, 0, 0).file_path
    except FormatError:
        return None  # the `@` was a part of the path
    return None if home is None else f"{spark_path(root, home)}@{offset}"


def _from_footers(paths: pa.Array, offsets: pa.Array, target: Storage) -> pa.Array:
    encoded = paths.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy().tolist()
    footers = map_in_order(
        lambda name: _footer_ids(name, target),
        ((name, 1) for name in names),
        threads=_FOOTERS_AT_ONCE,
        budget=len(names),
    )
    known = list(footers)
    places = zip(codes, offsets.to_pylist(), strict=True)
    return pa.array([known[code].get(offset) for code, offset in places], pa.string())


def _footer_ids(path: str, target: Storage) -> dict[int, str | None]:
    """Return the id of each vector of a Puffin file by offset; empty if it cannot be read."""
    try:
        place, key = _opened(path, target)
        footer = read_footer(
            lambda start, length: place.read_range(key, start, length), place.size(key)
        )
    except (FormatError, InvalidArgumentError, ObjectNotFoundError) as error:
        _LOG.warning("the vectors in %s are not known: %s", escape_controls(path), error)
        return {}
    return {
        blob.offset: blob.properties.get(SOURCE_ID)
        for blob in footer.blobs
        if blob.type == DELETION_VECTOR
    }


def _opened(path: str, target: Storage) -> tuple[Storage, str]:
    """Open a file by its path in a manifest, only on the target's kind of store."""
    name = local_path(path)
    if not is_absolute(name):
        raise FormatError("the table names a file by a relative path", found=repr(path))
    return open_listed_file(target, name)
