"""All files that are physically below a table's folder, by what they are.

One listing of the whole folder: a LIST for each thousand files of an object store, for each folder
of a disk. Memory grows with the files, by their names and 16 bytes each. Folders without files are
not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.names import SIDECARS
from delvec.delta.log.segment import LOG
from delvec.storage.listed_files import is_absolute, store_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from delvec.storage import Storage

__all__ = [
    "CHANGE_DATA",
    "FileKind",
    "StoredFiles",
    "behind_links",
    "inside_names",
    "joined",
    "stored_files",
]

FileKind = Literal["log", "change", "vector", "checksum", "hidden", "data"]
CHANGE_DATA: Final = "_change_data"

_PIECE: Final = 10_000
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# Where files are that no action names by its path.
_USUAL: Final = (LOG, SIDECARS, f"{LOG}/_staged_commits", CHANGE_DATA)
# The first that fits is the kind of a file; what fits none is `data`.
_KINDS: Final[tuple[tuple[FileKind, str], ...]] = (
    # Hadoop's checksums of the bytes of another file, which hold none of its values.
    ("checksum", r"(^|/)\.[^/]+\.crc$"),
    ("log", rf"^{LOG}/"),
    ("change", rf"^{CHANGE_DATA}/"),
    ("vector", rf"^([^/_.][^/]*/)?deletion_vector_{_UUID}\.bin$"),
    # What VACUUM does not look at. A partition column may begin with an underscore.
    ("hidden", r"(^|/)[_.][^/=]*(/|$)"),
)


@dataclass(frozen=True)
class StoredFiles:
    """Files as they were listed, one row each in every column.

    Attributes:
        paths: Relative to the table's folder.
        sizes: Their bytes.
        modified: Their modification times, in milliseconds since 1970.
        kinds: The number of each one's kind, in `_KINDS`; see `of`.
    """

    paths: pa.Array
    sizes: NDArray[np.int64]
    modified: NDArray[np.int64]
    kinds: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.paths)

    def of(self, *kinds: FileKind) -> StoredFiles:
        """Return the files of some kinds."""
        return self.select(self.are(*kinds))

    def are(self, *kinds: FileKind) -> NDArray[np.bool_]:
        """Return which files are of some kinds."""
        names = [name for name, _ in _KINDS] + ["data"]
        return np.isin(self.kinds, [names.index(each) for each in kinds])

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> StoredFiles:
        """Return the files of a mask, or of row numbers."""
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return StoredFiles(
            self.paths.take(pa.array(rows)), self.sizes[rows], self.modified[rows], self.kinds[rows]
        )

    def entries(self) -> Iterator[tuple[str, int, int]]:
        """Yield path, size and modification time of each file."""
        return zip(self.paths.to_pylist(), self.sizes.tolist(), self.modified.tolist(), strict=True)


def stored_files(storage: Storage) -> StoredFiles:
    """List all files below the table's folder, hidden ones included."""
    return _stored(_listed(storage, ""))


def behind_links(storage: Storage, stored: StoredFiles, names: pa.Array) -> StoredFiles | None:
    """Return files in folders that a listing of a disk skips, since links lead to them.

    Looked at are folders of which nothing was listed: of the log, and of files that it names.
    None if there are no such files.

    Args:
        storage: The table.
        stored: What was listed.
        names: The files that the log names.
    """
    if is_absolute(storage.root) and not storage.root.startswith("/"):
        return None  # object stores have no links
    unlisted = names.filter(pc.invert(pc.is_in(names, value_set=stored.paths)))
    inside = [path for path in _folders(unlisted) if not is_absolute(path)]
    listed = {above for path in _folders(stored.paths) for above in _down_to(path)}
    skipped = {
        next((each for each in _down_to(path) if each not in listed), None)
        for path in (*inside, *_USUAL)
    }
    found: dict[str, tuple[str, int, int]] = {}
    for folder in sorted(each for each in skipped if each):
        found |= {each[0]: each for each in _listed(storage, f"{folder}/")}
    known = pc.is_in(pa.array(list(found), pa.string()), value_set=stored.paths).to_pylist()
    new = [each for each, is_known in zip(found.values(), known, strict=True) if not is_known]
    return _stored(iter(new)) if new else None


def _folders(paths: pa.Array) -> list[str]:
    """Return the folders of files, without that of the table."""
    folders = pc.replace_substring_regex(paths, "/?[^/]*$", "").unique().to_pylist()
    return [each for each in folders if each]


def _down_to(folder: str) -> Iterator[str]:
    """Yield the folders that lead to one, and that one.

    >>> list(_down_to("a/b"))
    ['a', 'a/b']
    """
    parts = folder.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def joined(first: StoredFiles, second: StoredFiles) -> StoredFiles:
    """Return the files of both."""
    return StoredFiles(
        pa.concat_arrays([first.paths, second.paths]),
        np.concatenate([first.sizes, second.sizes]),
        np.concatenate([first.modified, second.modified]),
        np.concatenate([first.kinds, second.kinds]),
    )


def _listed(storage: Storage, prefix: str) -> Iterator[tuple[str, int, int]]:
    listing = storage.list(prefix, recursive=True)
    # A name that is not UTF-8 becomes one that no file has, so that its file is found unreadable.
    return (
        (info.key.encode(errors="backslashreplace").decode(), info.size, info.modified_ms)
        for info in listing
    )


def _stored(entries: Iterator[tuple[str, int, int]]) -> StoredFiles:
    table = pa.concat_tables(list(_pieces(entries)))
    paths = table["path"].combine_chunks()
    kinds = np.full(len(paths), len(_KINDS), dtype=np.int8)
    for number, (_, pattern) in reversed(list(enumerate(_KINDS))):
        fits = pc.match_substring_regex(paths, pattern).to_numpy(zero_copy_only=False)
        kinds[fits] = number
    sizes, modified = (table[name].to_numpy() for name in ("size", "modified"))
    return StoredFiles(paths, sizes, modified, kinds)


def _pieces(entries: Iterator[tuple[str, int, int]]) -> Iterator[pa.Table]:
    """Yield the entries of a listing as columns, so that no object for each is kept."""
    schema = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.int64())])
    yield schema.empty_table()
    while piece := list(islice(entries, _PIECE)):
        columns = [list(column) for column in zip(*piece, strict=True)]
        yield pa.table(columns, schema=schema)


def inside_names(paths: pa.Array, root: str) -> pa.Array:
    """Return decoded paths of a log, relative where they lead below the table's folder.

    A log may name its own files by their full names too.
    """
    absolute = pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, "://"))
    if not pc.any(absolute).as_py():
        return paths
    inside = f"{store_of(root)}/"

    def relative(path: str) -> str:
        place = store_of(path)
        return place[len(inside) :] if place.startswith(inside) else path

    pairs = zip(paths.to_pylist(), absolute.to_pylist(), strict=True)
    return pa.array([relative(path) if is_full else path for path, is_full in pairs], pa.string())
