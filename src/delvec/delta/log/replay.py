"""Which files are live: the newest word on each (path, vector) decides.

The order of actions inside a commit means nothing. Everything is done on Arrow columns; memory
grows with the files that are live (some 200 bytes each), time with the actions that are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.paths import canonical
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "Batch",
    "live_rows",
    "require_one_vector_each",
    "standing_removes",
    "unspoken_rows",
    "vector_ids",
]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one file of the log says of data files; a checkpoint has no removes that matter."""

    uri: str
    add_paths: pa.Array
    add_vectors: pa.Array
    remove_paths: pa.Array | None = None
    remove_vectors: pa.Array | None = None


def vector_ids(vectors: pa.Array) -> pa.Array:
    """Give Delta's unique id of each vector, null where a file has none."""
    kind, text, offset = (
        pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    at = pc.binary_join_element_wise("@", offset.cast(pa.string()), "")
    return pc.binary_join_element_wise(kind, text, pc.coalesce(at, ""), "")


def live_rows(
    commits: Sequence[Batch], checkpoint: Sequence[Batch], root: str
) -> tuple[list[NDArray[np.int64]], list[pa.Array]]:
    """Find the adds that are live: their rows in each batch, commits first, and their paths.

    Args:
        commits: The files of the log after the checkpoint, newest first.
        checkpoint: The parts of the checkpoint.
        root: The table, for errors and to complete paths.
    """
    spoken = [_keys_of(batch, root) for batch in commits]
    said = _said(spoken)
    rows, paths = _newest(spoken, said)
    for batch in checkpoint:
        part_paths = canonical(batch.add_paths, root)
        kept = _unspoken(part_paths, batch.add_vectors, said)
        rows.append(kept)
        paths.append(part_paths if len(kept) == len(part_paths) else part_paths.take(kept))
    return rows, paths


def standing_removes(
    commits: Sequence[Batch], root: str
) -> tuple[list[NDArray[np.int64]], pa.Array]:
    """Find the removes in commits that nothing newer speaks against.

    Args:
        commits: The files of the log after the checkpoint, newest first.
        root: The table.

    Returns:
        Their rows in each commit, and all keys that the commits speak of; see `unspoken_rows`.
    """
    spoken = [_keys_of(batch, root) for batch in commits]
    said = _said(spoken)
    is_first, rows, start = _is_first(said), [], 0
    for keys in spoken:
        start += len(keys.adds)
        rows.append(np.flatnonzero(is_first[start : start + len(keys.removes)]))
        start += len(keys.removes)
    return rows, said


def unspoken_rows(
    paths: pa.Array, vectors: pa.Array, said: pa.Array, root: str
) -> NDArray[np.int64]:
    """Find the files of a checkpoint that no commit after it speaks of."""
    return _unspoken(canonical(paths, root), vectors, said)


def require_one_vector_each(paths: pa.Array, root: str) -> None:
    """Refuse a table in which one data file is live twice, as with two vectors.

    That is what a writer leaves that removed a file without naming its vector. Every engine would
    read the rows twice.
    """
    inside = f"{root.rstrip('/')}/"
    within = pc.starts_with(paths, inside)
    if pc.any(within).as_py():
        paths = pc.if_else(within, pc.utf8_slice_codeunits(paths, len(inside)), paths)
    if len(paths.unique()) == len(paths):  # count_distinct takes five times as long
        return
    counted = paths.value_counts()
    twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
    raise FormatError(
        "a data file is live more than once: its rows would be read twice",
        path=root,
        expected="one entry, with one deletion vector or none",
        found=f"{twice[0].as_py()!r}" + (f" and {len(twice) - 1} more" if len(twice) > 1 else ""),
        hint="a writer removed the file without naming its vector; the version before still reads"
        " rightly",
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    paths: pa.Array
    adds: pa.Array
    removes: pa.Array


_NONE = pa.array([], pa.string())


def _keys_of(batch: Batch, root: str) -> _Keys:
    paths = canonical(batch.add_paths, root)
    adds = _keys(paths, batch.add_vectors)
    removes = _NONE
    if batch.remove_paths is not None and len(batch.remove_paths):
        removes = _keys(canonical(batch.remove_paths, root), batch.remove_vectors)
        both = adds.filter(pc.is_in(adds, value_set=removes))
        if len(both):
            raise FormatError(
                "one commit adds and removes the same file with the same vector",
                path=batch.uri,
                found=repr(both[0].as_py().partition("\0")[0]),
                hint="the order inside a commit means nothing, so nobody can tell what was meant",
            )
    return _Keys(paths, adds, removes)


def _keys(paths: pa.Array, vectors: pa.Array) -> pa.Array:
    if vectors.null_count == len(vectors):
        return paths
    return pc.binary_join_element_wise(paths, vector_ids(vectors), "\0", null_handling="skip")


def _said(spoken: Sequence[_Keys]) -> pa.Array:
    return pa.concat_arrays([_NONE, *(key for keys in spoken for key in (keys.adds, keys.removes))])


def _unspoken(paths: pa.Array, vectors: pa.Array, said: pa.Array) -> NDArray[np.int64]:
    """Give the rows whose keys are not among those that were spoken of."""
    if not len(said):
        return np.arange(len(paths))
    gone = pc.is_in(_keys(paths, vectors), value_set=said)
    return np.flatnonzero(~gone.to_numpy(zero_copy_only=False))


def _is_first(said: pa.Array) -> NDArray[np.bool_]:
    """Tell which keys are named for the first time."""
    codes = said.dictionary_encode().indices.to_numpy()
    first = np.empty(len(said), dtype=np.int64)
    order = np.arange(len(said))
    first[codes[::-1]] = order[::-1]  # the last to be written here is the newest
    is_first: NDArray[np.bool_] = first[codes] == order
    return is_first


def _newest(
    spoken: Sequence[_Keys], said: pa.Array
) -> tuple[list[NDArray[np.int64]], list[pa.Array]]:
    """Give for each batch, newest first, the rows whose add is the first word on its key."""
    is_first = _is_first(said)
    rows, paths, start = [], [], 0
    for keys in spoken:
        kept = np.flatnonzero(is_first[start : start + len(keys.adds)])
        rows.append(kept)
        paths.append(keys.paths.take(kept))
        start += len(keys.adds) + len(keys.removes)
    return rows, paths
