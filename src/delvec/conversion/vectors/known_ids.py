"""Which vectors of the source a target has, without reading any vector.

where the vector is          id                                    the same id of the source
a Puffin file of delvec      property `delvec-source-id`           `vector_ids`
Delta's own `.bin`           path and offset                       `referenced_keys`
a Parquet file of delvec     digest in the file's name             `digest` of `vector_ids`
anything else                null
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.vectors.keys import delete_file_keys
from delvec.conversion.vectors.places import vector_places
from delvec.conversion.vectors.repack import SOURCE_ID
from delvec.documents import whole_number
from delvec.errors import FormatError, InvalidArgumentError, ObjectNotFoundError
from delvec.report.figures import visible
from delvec.storage.listed_files import is_absolute, local_path, open_listed_file, spark_path
from delvec.storage.parallel import in_order
from delvec.vector import Descriptor
from delvec.vector.blobs import DELETION_VECTOR
from delvec.vector.puffin import read_footer

if TYPE_CHECKING:
    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage
    from delvec.vector.descriptor import StorageType

__all__ = ["referenced_ids", "referenced_keys", "stored_ids"]

_LOG = logging.getLogger("delvec")
_FOOTERS_AT_ONCE: Final = 4  # each may take 100 MB while it is parsed
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PARQUET_NAME: Final = rf"/(?P<digest>[0-9a-f]{{32}})-{_UUID}\.parquet$"


def stored_ids(paths: pa.Array, offsets: pa.Array, formats: pa.Array, target: Storage) -> pa.Array:
    """Return the source's id of the vector of each delete file of the target; null if unknown.

    Costs one HEAD and one or two GETs for each distinct Puffin file, four of them in parallel;
    other files are not opened. Memory grows with the entries and with four footers.

    The ids in a Puffin file that is missing or damaged are null, so that a full conversion writes
    its vectors anew and repairs the target; a warning is logged. Files are opened only on the
    target's own kind of store. Other errors of the store are raised.

    Args:
        paths: The file that holds the vector, as the manifest names it.
        offsets: The entry's `content_offset`, null without one.
        formats: The entry's file format, such as `PUFFIN`.
        target: The Iceberg table's location.

    Raises:
        StorageError: A file could not be read, but may be there.
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


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def referenced_ids(ids: pa.Array, root: str) -> pa.Array:
    """Return the same for Delta's unique ids; null where an id has no file and offset.

    Args:
        ids: As `vector_ids` returns them.
        root: The path or URI of their table.
    """
    return pa.array([_referenced(each, root) for each in ids.to_pylist()], pa.string())


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
    footers = in_order(
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
        _LOG.warning("the vectors in %s are not known: %s", visible(path), error)
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
