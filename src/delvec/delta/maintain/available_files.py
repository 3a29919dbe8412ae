"""Whether files that a commit brings back exist, and will not be deleted by a VACUUM meanwhile.

They are looked up one by one, side by side, or by a listing: a request for a thousand files, one
after the other. Memory grows with the files that are asked for, not with those that are listed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.file_set import FileEntry
from delvec.delta.log.paths import among, canonicalize_paths
from delvec.delta.log.replay import vector_ids
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import Property, removed_files_kept_ms, retention_text
from delvec.errors import InvalidArgumentError, ObjectNotFoundError
from delvec.inspection.figures import moment
from delvec.storage import Storage
from delvec.storage.backend import is_absolute
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather

# Where so many are asked for, and they are so large a part of the folder, it is listed instead.
_SINGLY: Final = 1000
_SHARE: Final = 20
_DAY: Final = 86_400_000


def require_files(
    storage: Storage, entries: Sequence[FileEntry], *, version: int, others: int, what: str
) -> None:
    """Refuse to bring files back of which one, or its deletion vector, is gone."""
    holders: dict[str, str] = {}
    for entry in entries:
        descriptor = entry.descriptor
        if descriptor is not None and (path := descriptor.file_path) is not None:
            holders.setdefault(path, entry.path)
    gone = missing_files(storage, {*(entry.path for entry in entries), *holders}, others)
    if not gone:
        return
    first = gone[0]
    role = f"the deletion vectors of {holders[first]}" if first in holders else "a data file"
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    raise ObjectNotFoundError(
        f"version {version} of {storage.root} cannot be {what}: {first} ({role}){more} is gone",
        uri=first,
        hint="nothing was changed; take a version that does not need it, newer ones first"
        " (`delvec history` lists them), or copy the file back to its place",
    )


def missing_files(storage: Storage, paths: Collection[str], others: int = 0) -> list[str]:
    left = set(paths)
    inside = sum(not is_absolute(path) for path in left)
    if inside > _SINGLY and inside * _SHARE > inside + others:
        for info in storage.list(recursive=True):
            left.discard(info.key)
            if not left:
                break
        if "://" in storage.root:  # a store has no links, and its listing shows all that is inside
            gone = {path for path in left if not is_absolute(path)}
            return sorted(gone | _each(storage, left - gone))
    # A listing does not show elsewhere, nor what is behind links to folders.
    return sorted(_each(storage, left))


def add_again(entry: FileEntry, *, data_change: bool) -> dict[str, Any]:
    """Return the add action of a file that the log has already, with its whole entry."""
    body = {**entry.add, "dataChange": data_change}
    if (descriptor := entry.descriptor) is not None:
        body["deletionVector"] = descriptor.to_json()  # without null columns of a checkpoint
    return body


def file_keys(paths: pa.Array, vectors: pa.Array) -> pa.Array:
    # More than 2 GiB of names do not fit into one array of Arrow's usual strings.
    names, ids = (each.cast(pa.large_string()) for each in (paths, vector_ids(vectors)))
    separator = pa.scalar("\0", pa.large_string())
    return pc.binary_join_element_wise(names, pc.fill_null(ids, ""), separator)


def require_kept(newest: Snapshot, wanted: Snapshot, added: NDArray[np.int64]) -> None:
    """Refuse files that a VACUUM may delete: no live entry and no recent tombstone names them.

    One that runs at the same time might delete them after the commit: it knows of no reason to
    keep them.
    """
    files, live = wanted.files.select(added), newest.files
    text = retention_text(newest.metadata.configuration, Property.DELETED_FILE_RETENTION)
    since = int(time.time() * 1000) - removed_files_kept_ms(newest.metadata.configuration)
    homes = _vector_homes(files.vectors)
    data_is_kept = among(files.paths, live.paths)
    vector_is_kept = among(homes, _vector_homes(live.vectors)) | homes.is_null().to_numpy(
        zero_copy_only=False
    )
    removed_ms = np.zeros(len(files), dtype=np.int64)
    if (data_is_kept & vector_is_kept).all():
        return
    for piece in newest.tombstones():
        when = pc.fill_null(pc.struct_field(piece, "deletionTimestamp"), 0)
        paths = canonicalize_paths(pc.struct_field(piece, "path"), newest.table)
        recent = pc.greater_equal(when, since)
        vectors = pc.struct_field(piece, "deletionVector")
        data_is_kept |= among(files.paths, paths.filter(recent))
        vector_is_kept |= among(homes, _vector_homes(vectors).filter(recent))
        places = pc.index_in(files.paths, value_set=paths)
        moments = pc.fill_null(when.take(places), 0).to_numpy()
        removed_ms = np.maximum(removed_ms, np.minimum(moments, since))
    unsafe = np.flatnonzero(~(data_is_kept & vector_is_kept))
    if not len(unsafe):
        return
    index = int(unsafe[0])
    raise _unsafe(newest, wanted.version, files.paths[index].as_py(), int(removed_ms[index]), text)


def _each(storage: Storage, paths: Collection[str]) -> set[str]:
    def is_missing(path: str) -> bool:
        place, key = open_listed_file(storage, path)
        return not place.exists(key)

    chosen = list(paths)
    return set(compress(chosen, gather(is_missing, chosen)))


def _unsafe(
    newest: Snapshot, version: int, path: str, removed_ms: int, text: str
) -> InvalidArgumentError:
    days = (int(time.time() * 1000) - removed_ms) // _DAY + 2 if removed_ms else 60
    when = f" at {moment(removed_ms)}," if removed_ms else ""
    return InvalidArgumentError(
        f"version {version} of {newest.table} cannot be restored: its file {path} was removed"
        f"{when} longer ago than removed files are kept ({Property.DELETED_FILE_RETENTION}:"
        f" {text}), and a VACUUM may delete it at any moment",
        hint="restore a newer version; or have removed files kept for longer first, by"
        f" set_properties({{'{Property.DELETED_FILE_RETENTION}': 'interval {days} days'}}), and let"
        " no VACUUM run meanwhile",
    )


def _vector_homes(vectors: pa.StructArray) -> pa.Array:
    """Return the name of each vector's file as descriptors have it; null without such a file."""
    kind, text = (pc.struct_field(vectors, [name]) for name in ("storageType", "pathOrInlineDv"))
    names = pc.binary_join_element_wise(kind, text, "")
    return pc.if_else(pc.equal(kind, "i"), pa.scalar(None, pa.string()), names)
