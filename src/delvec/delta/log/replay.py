"""Which files are live: the newest action of each key (path and vector) decides.

The order of actions inside a commit has no meaning. All work is on Arrow columns: memory grows with
the live files (some 200 bytes each), time with the actions that are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.paths import canonicalize_paths, inside_names
from delvec.errors import FormatError


@dataclass(frozen=True, slots=True)
class Batch:
    """The adds and removes of one file of the log; a checkpoint needs its adds alone."""

    uri: str
    add_paths: pa.Array
    add_vectors: pa.Array
    remove_paths: pa.Array | None = None
    remove_vectors: pa.Array | None = None


def vector_ids(vectors: pa.Array) -> pa.Array:
    """Return Delta's unique id of each vector, null where a file has none."""
    kind, text, offset = (
        pc.struct_field(vectors, [name]) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    at = pc.binary_join_element_wise("@", offset.cast(pa.string()), "")
    return pc.binary_join_element_wise(kind, text, pc.coalesce(at, ""), "")


def live_rows(
    commits: Sequence[Batch], checkpoint: Sequence[Batch], root: str
) -> tuple[list[NDArray[np.int64]], list[pa.Array]]:
    """Return the live adds: their rows in each batch, commits first, and their paths."""
    by_commit = [_keys_of(batch, root) for batch in commits]
    seen = _all_keys(by_commit)
    is_first, rows, paths, start = _is_first(seen), [], [], 0
    for keys in by_commit:
        kept = np.flatnonzero(is_first[start : start + len(keys.adds)])
        rows.append(kept)
        paths.append(keys.paths.take(kept))
        start += len(keys.adds) + len(keys.removes)
    for batch in checkpoint:
        part_paths = canonicalize_paths(batch.add_paths, root)
        kept = _rows_not_in(seen, part_paths, batch.add_vectors)
        rows.append(kept)
        paths.append(part_paths if len(kept) == len(part_paths) else part_paths.take(kept))
    return rows, paths


def tombstones(commits: Sequence[Batch], root: str) -> tuple[list[NDArray[np.int64]], pa.Array]:
    """Return the rows of tombstones in each commit that no newer action supersedes.

    And the keys of all actions of the commits; see `not_superseded`.
    """
    by_commit = [_keys_of(batch, root) for batch in commits]
    seen = _all_keys(by_commit)
    is_first, rows, start = _is_first(seen), [], 0
    for keys in by_commit:
        start += len(keys.adds)
        rows.append(np.flatnonzero(is_first[start : start + len(keys.removes)]))
        start += len(keys.removes)
    return rows, seen


def not_superseded(
    paths: pa.Array, vectors: pa.Array, seen: pa.Array, root: str
) -> NDArray[np.int64]:
    """Return the rows of a checkpoint that no action of a later commit supersedes."""
    return _rows_not_in(seen, canonicalize_paths(paths, root), vectors)


def require_one_vector_each(paths: pa.Array, root: str) -> None:
    """Refuse a table in which one data file is live twice, as with two vectors.

    A writer that removes a file without naming its vector leaves it so: rows would be read twice.
    """
    paths = inside_names(paths, root)
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


_NONE = pa.nulls(0, pa.string())


def _keys_of(batch: Batch, root: str) -> _Keys:
    paths = canonicalize_paths(batch.add_paths, root)
    adds = _keys(paths, batch.add_vectors)
    removes = _NONE
    if batch.remove_paths is not None and len(batch.remove_paths):
        removes = _keys(canonicalize_paths(batch.remove_paths, root), batch.remove_vectors)
        both = adds.filter(pc.is_in(adds, value_set=removes))
        if len(both):
            raise FormatError(
                "one commit adds and removes the same file with the same vector",
                path=batch.uri,
                found=repr(both[0].as_py().partition("\0")[0]),
                hint="the order inside a commit has no meaning, so nobody can tell what was meant",
            )
    return _Keys(paths, adds, removes)


def _keys(paths: pa.Array, vectors: pa.Array) -> pa.Array:
    if vectors.null_count == len(vectors):
        return paths
    return pc.binary_join_element_wise(paths, vector_ids(vectors), "\0", null_handling="skip")


def _all_keys(by_commit: Sequence[_Keys]) -> pa.Array:
    both = (keys for commit in by_commit for keys in (commit.adds, commit.removes))
    return pa.concat_arrays([_NONE, *both])


def _rows_not_in(seen: pa.Array, paths: pa.Array, vectors: pa.Array) -> NDArray[np.int64]:
    if not len(seen):
        return np.arange(len(paths))
    gone = pc.is_in(_keys(paths, vectors), value_set=seen)
    return np.flatnonzero(~gone.to_numpy(zero_copy_only=False))


def _is_first(keys: pa.Array) -> NDArray[np.bool_]:
    codes = keys.dictionary_encode().indices.to_numpy()
    first = np.empty(len(keys), dtype=np.int64)
    order = np.arange(len(keys))
    first[codes[::-1]] = order[::-1]  # the last to be written here is the newest
    is_first: NDArray[np.bool_] = first[codes] == order
    return is_first
