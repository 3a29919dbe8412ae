"""The files below a table's folder that its log refers to: what a vacuum keeps.

    live add            data file, file of its deletion vector
    tombstone           the same two, until it expires
    recent commit       change files; removed files whose tombstone no checkpoint has any more

Vectors of the forms `u` (with or without a folder) and `p` (if inside the table, in any spelling)
are in files, inline ones are not. A file that several entries share is kept for any of them. Behind
links inside a local table, which a listing does not follow, a file is kept by its real name too;
that costs a look at each distinct folder.

All work is on Arrow columns. Memory grows with the live files of the snapshot and the largest piece
of tombstones; a `KeySet` takes 8 bytes for each file. Each distinct vector file costs some 10 µs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.actions import JsonActions, from_json
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import canonicalize_paths
from delvec.delta.log.snapshot import Snapshot
from delvec.errors import add_location
from delvec.storage.listed_files import folder_key, linked_files, store_of
from delvec.vector import Descriptor

_ABSOLUTE: Final = r"^(/|[A-Za-z][A-Za-z0-9+.-]*://)"
_STORE: Final = r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*"
_AT_ONCE: Final = 65_536


@dataclass(frozen=True, slots=True)
class References:
    """Files that one part of the log refers to."""

    role: Literal["data", "vector", "change"]
    is_live: bool  # whether live adds refer to them; else tombstones do, or past commits
    keys: pa.Array  # below the table; a file may be there several times


def references(
    snapshot: Snapshot, removed_since_ms: int | None = None, *, files: FileSet | None = None
) -> Iterator[References]:
    """Yield the files that a version refers to: those of live adds, then those of tombstones."""
    live, root = snapshot.files if files is None else files, snapshot.table
    yield References("data", True, keys_below(live.paths, root))
    yield References("vector", True, vector_keys(live.vectors, root))
    for removes in snapshot.tombstones():
        yield from _removed(removes, root, removed_since_ms)


def commit_references(
    actions: JsonActions,
    root: str,
    removed_since_ms: int | None = None,
    *,
    same_store: bool = False,
) -> Iterator[References]:
    """Yield the files that one commit removes, with their vectors, and its change files."""
    if b'"remove"' in actions.data:
        removes, _ = from_json(actions, "remove", ())
        yield from _removed(removes, root, removed_since_ms, same_store=same_store)
    if b'"cdc"' in actions.data:
        paths = canonicalize_paths(pc.struct_field(from_json(actions, "cdc", ())[0], "path"), root)
        yield References("change", False, keys_below(paths, root, same_store=same_store))


def keys_below(paths: pa.Array, root: str, *, same_store: bool = False) -> pa.Array:
    """Return the keys of the files that are below the table, of decoded paths in one spelling.

    Absolute paths are those of clones, mostly; but some writers name a table's own files so. A file
    behind a link inside a local table has two keys. The table's own folder is none.
    """
    absolute = pc.match_substring_regex(paths, _ABSOLUTE)
    if pc.any(absolute).as_py():
        inside = _inside(paths.filter(absolute), root, same_store=same_store)
        paths = pa.concat_arrays([paths.filter(pc.invert(absolute)), inside])
        paths = paths.filter(pc.greater(pc.binary_length(paths), 0))
    keys = _plain(paths)
    return keys if same_store else with_linked_keys(keys, root)


def vector_keys(vectors: pa.StructArray, root: str, *, same_store: bool = False) -> pa.Array:
    """Return the keys of the files that hold vectors, each once; inline vectors have none."""
    vectors = vectors.filter(vectors.is_valid())
    kinds, texts = (pc.struct_field(vectors, [name]) for name in ("storageType", "pathOrInlineDv"))
    found = [pa.array([], pa.string())]
    for kind in kinds.unique().to_pylist():
        chosen = kinds.is_null() if kind is None else pc.fill_null(pc.equal(kinds, kind), False)
        named = texts.filter(chosen).unique()
        if kind == "p":
            found.append(keys_below(canonicalize_paths(named, root), root, same_store=same_store))
        elif kind != "i":
            with add_location(root):
                names = [_relative_path(kind, text) for text in named.to_pylist()]
            keys = pa.array(names, pa.string())
            found.append(keys if same_store else with_linked_keys(keys, root))
    return pa.concat_arrays(found)


class KeySet:
    """Which keys are in a set; 8 bytes of memory for each, since only hashes are held.

    Two keys with one hash of 64 bits count as the same: then a file that could go is kept.

    >>> found = KeySet([pa.array(["a", "b"]), pa.array(["b"])])
    >>> len(found), found.contains(["b", "c"]).tolist()
    (2, [True, False])
    """

    def __init__(self, arrays: Iterable[pa.Array], *, folds: bool = False) -> None:
        self._hash: Callable[[str], int] = hash
        if folds:
            self._hash = lambda key: hash(folded(key))
        hashes = [_hashes(array, self._hash) for array in arrays]
        self._hashes = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *hashes]))

    def __len__(self) -> int:
        return len(self._hashes)

    def contains(self, keys: Sequence[str]) -> NDArray[np.bool_]:
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


def with_linked_keys(keys: pa.Array, root: str) -> pa.Array:
    """Return keys, and after them the real keys of files that have another one behind links."""
    _, targets = linked_keys(keys, root)
    return pa.concat_arrays([keys, targets]) if len(targets) else keys


def linked_keys(keys: pa.Array, root: str) -> tuple[NDArray[np.int64], pa.Array]:
    """Return which files are behind links that end inside the table, and their real keys."""
    numbers: list[int] = []
    targets: list[str] = []
    if "://" not in root and len(keys):
        has_folder = pc.match_substring(keys, "/")
        folders = pc.if_else(has_folder, pc.replace_substring_regex(keys, "/[^/]*$", ""), "")
        encoded = folders.dictionary_encode()
        linked = {
            number: found
            for number, folder in enumerate(encoded.dictionary.to_pylist())
            if (found := _linked(root, folder)) is not None
        }
        places = encoded.indices.to_numpy()
        rows: list[int] = np.flatnonzero(np.isin(places, list(linked))).tolist() if linked else []
        for row in rows:
            key, (real, links) = keys[row].as_py(), linked[int(places[row])]
            name = key.rpartition("/")[2]
            target = links.get(name, None if real is None else f"{real}/{name}".lstrip("/"))
            if target and target != key:
                numbers.append(row)
                targets.append(target)
    return np.array(numbers, dtype=np.int64), pa.array(targets, pa.string())


def _linked(root: str, folder: str) -> tuple[str | None, dict[str, str | None]] | None:
    """Return the real key of a folder, and the links in it; None if it is an ordinary one."""
    found = folder_key(root, f"{root}/{folder}"), linked_files(root, folder)
    return None if found == (folder, {}) else found


def _hashes(keys: pa.Array, hash_of: Callable[[str], int]) -> NDArray[np.int64]:
    found = np.empty(len(keys), dtype=np.int64)
    for start in range(0, len(keys), _AT_ONCE):
        piece = keys.slice(start, _AT_ONCE).to_pylist()
        found[start : start + len(piece)] = np.fromiter(map(hash_of, piece), dtype=np.int64)
    return found


def _removed(
    removes: pa.StructArray, root: str, since_ms: int | None = None, *, same_store: bool = False
) -> Iterator[References]:
    if since_ms is not None:
        when = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
        removes = removes.filter(pc.greater_equal(when, since_ms))
    if len(removes):
        paths, vectors = (pc.struct_field(removes, [name]) for name in ("path", "deletionVector"))
        paths = canonicalize_paths(paths, root)
        yield References("data", False, keys_below(paths, root, same_store=same_store))
        yield References("vector", False, vector_keys(vectors, root, same_store=same_store))


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


def _relative_path(kind: str | None, text: str | None) -> str:
    value = {"storageType": kind, "pathOrInlineDv": text, "sizeInBytes": 0, "cardinality": 0}
    return str(Descriptor.from_json(value).file_path)
