"""The files below a table's folder that its log refers to: what a vacuum keeps.

    live add            data file, file of its deletion vector
    tombstone           the same two, until it expires
    recent commit       change files; removed files whose tombstone no checkpoint has any more

Vectors of the forms `u` (with or without a folder) and `p` (if inside the table, in any spelling)
are in files, inline ones are not. A file that several entries share is kept for any of them. Behind
links inside a local table, a file is kept by its real name as well.

All work is on Arrow columns. Memory grows with the live files of the snapshot and the largest piece
of tombstones; a `KeySet` takes 8 bytes for each file. Each distinct vector file costs some 10 µs.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.action_columns import from_json
from delvec.delta.log.paths import canonical
from delvec.delta.maintain.linked_keys import with_linked_keys
from delvec.errors import located
from delvec.storage.listed_files import folder_key, store_of
from delvec.vector import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.snapshot import Snapshot

__all__ = [
    "KeySet",
    "References",
    "Role",
    "commit_references",
    "folded",
    "keys_below",
    "references",
    "vector_keys",
]

Role: TypeAlias = Literal["data", "vector", "change"]

_ABSOLUTE: Final = r"^(/|[A-Za-z][A-Za-z0-9+.-]*://)"
_STORE: Final = r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*"
_AT_ONCE: Final = 65_536


@dataclass(frozen=True, slots=True)
class References:
    """Files that one part of the log refers to.

    Attributes:
        role: Data files, files of deletion vectors, or change files.
        is_live: Whether live adds refer to them; else tombstones do, or past commits.
        keys: Their keys below the table; a file may be there several times.
    """

    role: Role
    is_live: bool
    keys: pa.Array


class KeySet:
    """Which keys are in a set; 8 bytes of memory for each, since only hashes are held.

    Two keys with one hash of 64 bits count as the same: then a file that could go is kept.

    Args:
        arrays: The keys.
        folds: Whether keys that differ in case alone are the same; see `folds_names`.

    >>> found = KeySet([pa.array(["a", "b"]), pa.array(["b"])])
    >>> len(found), found.contains(["b", "c"]).tolist()
    (2, [True, False])
    """

    def __init__(self, arrays: Iterable[pa.Array], *, folds: bool = False) -> None:
        self._hash: Callable[[str], int] = _folded_hash if folds else hash
        hashes = [_hashes(array, self._hash) for array in arrays]
        self._hashes = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *hashes]))

    def __len__(self) -> int:
        return len(self._hashes)

    def contains(self, keys: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each key whether it is in the set."""
        if not len(self._hashes):
            return np.zeros(len(keys), dtype=np.bool_)
        wanted = np.fromiter(map(self._hash, keys), dtype=np.int64, count=len(keys))
        places = np.searchsorted(self._hashes, wanted)
        places[places == len(self._hashes)] = 0
        found: NDArray[np.bool_] = self._hashes[places] == wanted
        return found


def folded(key: str) -> str:
    """Return a key as a disk that does not tell cases and compositions apart compares it."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def _folded_hash(key: str) -> int:
    return hash(folded(key))


def _hashes(keys: pa.Array, hash_of: Callable[[str], int]) -> NDArray[np.int64]:
    found = np.empty(len(keys), dtype=np.int64)
    for start in range(0, len(keys), _AT_ONCE):
        piece = keys.slice(start, _AT_ONCE).to_pylist()
        found[start : start + len(piece)] = np.fromiter(map(hash_of, piece), dtype=np.int64)
    return found


def references(
    snapshot: Snapshot, removed_since_ms: int | None = None, *, files: FileSet | None = None
) -> Iterator[References]:
    """Yield the files that a version refers to: those of live adds, then those of tombstones.

    Args:
        snapshot: The version.
        removed_since_ms: Omit tombstones of files that were removed before this time; without a
            time, a file counts as removed in 1970, as in delta-spark.
        files: The live files, if not those of the snapshot.

    Raises:
        FormatError: A path or a vector cannot be located, so nobody knows what to keep.
    """
    live, root = snapshot.files if files is None else files, snapshot.table
    yield References("data", True, keys_below(live.paths, root))
    yield References("vector", True, vector_keys(live.vectors, root))
    for removes in snapshot.tombstones():
        yield from _removed(removes, root, removed_since_ms)


def _removed(
    removes: pa.StructArray, root: str, since_ms: int | None = None, *, same_store: bool = False
) -> Iterator[References]:
    if since_ms is not None:
        when = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
        removes = removes.filter(pc.greater_equal(when, since_ms))
    if len(removes):
        paths, vectors = (pc.struct_field(removes, [name]) for name in ("path", "deletionVector"))
        paths = canonical(paths, root)
        yield References("data", False, keys_below(paths, root, same_store=same_store))
        yield References("vector", False, vector_keys(vectors, root, same_store=same_store))


def commit_references(
    actions: JsonActions,
    root: str,
    removed_since_ms: int | None = None,
    *,
    same_store: bool = False,
) -> Iterator[References]:
    """Yield the files that one commit removes, with their vectors, and its change files.

    Args:
        actions: The commit.
        root: The table.
        removed_since_ms: Omit files that were removed before this time.
        same_store: See `keys_below`.
    """
    if b'"remove"' in actions.data:
        removes, _ = from_json(actions, "remove", ())
        yield from _removed(removes, root, removed_since_ms, same_store=same_store)
    if b'"cdc"' in actions.data:
        paths = canonical(pc.struct_field(from_json(actions, "cdc", ())[0], "path"), root)
        yield References("change", False, keys_below(paths, root, same_store=same_store))


def keys_below(paths: pa.Array, root: str, *, same_store: bool = False) -> pa.Array:
    """Return the keys of the files that are below the table, of decoded paths in one spelling.

    Absolute paths are those of clones, mostly; but some writers name a table's own files so. A file
    behind a link inside a local table has two keys. The table's own folder is none.

    Args:
        paths: See `canonical`.
        root: The table.
        same_store: Whether an absolute path must be on the table's own store. If not, the same
            folder on another store or in another bucket counts too, since one place may have
            several names, and files are found behind links; right for files to keep, wrong for
            files to delete.
    """
    absolute = pc.match_substring_regex(paths, _ABSOLUTE)
    if pc.any(absolute).as_py():
        inside = _inside(paths.filter(absolute), root, same_store=same_store)
        paths = pa.concat_arrays([paths.filter(pc.invert(absolute)), inside])
        paths = paths.filter(pc.greater(pc.binary_length(paths), 0))
    keys = _plain(paths)
    return keys if same_store else with_linked_keys(keys, root)


def _inside(paths: pa.Array, root: str, *, same_store: bool) -> pa.Array:
    if same_store:
        home = f"{store_of(root)}/"
        paths = pa.array(
            [each for each in paths.to_pylist() if store_of(each).startswith(home)], pa.string()
        )
    names = _plain(pc.replace_substring_regex(paths, _STORE, ""))
    [home] = pc.replace_substring_regex(pa.array([root.rstrip("/")]), _STORE, "").to_pylist()
    below = pc.starts_with(names, f"{home}/")
    found = pc.utf8_slice_codeunits(names.filter(below), len(home) + 1)
    if "://" in root or same_store:
        return found
    return pa.concat_arrays([found, _behind_links(names.filter(pc.invert(below)), root)])


def _behind_links(names: pa.Array, root: str) -> pa.Array:
    """Return the keys of local files that are below the root by another name of a folder."""
    folders = pc.replace_substring_regex(names, "/[^/]*$", "").dictionary_encode()
    keys = [folder_key(root, folder or "/") for folder in folders.dictionary.to_pylist()]
    found = pa.array(keys, pa.string()).take(folders.indices)
    inside = found.is_valid()
    files = pc.replace_substring_regex(names.filter(inside), "^.*/", "")
    joined = pc.binary_join_element_wise(found.filter(inside), files, "/")
    return pc.replace_substring_regex(joined, "^/", "")


def _plain(paths: pa.Array) -> pa.Array:
    """Write several slashes as one, as Hadoop does."""
    if pc.any(pc.match_substring(paths, "//")).as_py():
        return pc.replace_substring_regex(paths, "/{2,}", "/")
    return paths


def vector_keys(vectors: pa.StructArray, root: str, *, same_store: bool = False) -> pa.Array:
    """Return the keys of the files that hold vectors, each once; inline vectors have none.

    Args:
        vectors: Descriptors, null where there is no vector.
        root: The table.
        same_store: See `keys_below`.

    Raises:
        FormatError: A vector cannot be located.
    """
    vectors = vectors.filter(vectors.is_valid())
    kinds, texts = (pc.struct_field(vectors, [name]) for name in ("storageType", "pathOrInlineDv"))
    found = [pa.array([], pa.string())]
    for kind in kinds.unique().to_pylist():
        chosen = kinds.is_null() if kind is None else pc.fill_null(pc.equal(kinds, kind), False)
        named = texts.filter(chosen).unique()
        if kind == "p":
            found.append(keys_below(canonical(named, root), root, same_store=same_store))
        elif kind != "i":
            with located(root):
                names = [_relative_path(kind, text) for text in named.to_pylist()]
            keys = pa.array(names, pa.string())
            found.append(keys if same_store else with_linked_keys(keys, root))
    return pa.concat_arrays(found)


def _relative_path(kind: str | None, text: str | None) -> str:
    value = {"storageType": kind, "pathOrInlineDv": text, "sizeInBytes": 0, "cardinality": 0}
    return str(Descriptor.from_json(value).file_path)
