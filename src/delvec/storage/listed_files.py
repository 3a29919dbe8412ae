"""Files that a table lists: below its root, or elsewhere on the same kind of store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.errors import FormatError
from delvec.storage.backend import ABSOLUTE, is_absolute, kind_of

if TYPE_CHECKING:
    from delvec.storage import FileInfo, Storage

_UPWARDS: Final = frozenset({".", ".."})
_AT_ONCE: Final = 10_000
FILES: Final = pa.schema(
    {"path": pa.string(), "bytes": pa.int64(), "modified": pa.timestamp("ms", "UTC")}
)
"""The columns of files of a listing; paths are keys."""


def file_columns(infos: Iterable[FileInfo]) -> pa.Table:
    """Return the files of a listing as columns; no object for each is kept."""
    left, pieces = iter(infos), [FILES.empty_table()]
    while piece := list(islice(left, _AT_ONCE)):
        keys, sizes, times, _ = map(list, zip(*piece, strict=True))
        pieces.append(pa.table([keys, sizes, times], schema=FILES))
    return pa.concat_tables(pieces)


def local_path(location: str) -> str:
    """Return a `file:` location as a plain path, any other location as it is.

    Metadata of tables and catalogs hold such locations unescaped; `Storage.open` takes URIs.

    >>> local_path("file:/lake/a b"), local_path("file:///lake"), local_path("s3://bucket/x")
    ('/lake/a b', '/lake', 's3://bucket/x')
    """
    scheme, _, name = location.partition(":")
    if scheme != "file":
        return location
    if name.startswith("//"):
        host, _, name = name[2:].partition("/")
        if host not in ("", "localhost"):
            raise FormatError("the table names a file on another host", found=repr(location))
    return "/" + name.lstrip("/")


def open_listed_file(storage: Storage, path: str) -> tuple[Storage, str]:
    """Return the storage and the key of a file that the table lists.

    Absolute paths are part of the format: shallow clones share the files of their source. They are
    followed on the same kind of store only: a table in a bucket cannot make a reader open local
    files. `Storage.admit` tells what else is refused.
    """
    return storage.open_elsewhere(path) if is_absolute(path) else (storage, path)


def are_absolute(paths: pa.Array) -> pa.Array:
    """Tell of each decoded path whether it is absolute, see `is_absolute`."""
    return pc.match_substring_regex(paths, ABSOLUTE)


def outside_of(root: str, paths: Iterable[str]) -> list[str]:
    """Return those of some decoded paths that do not lie in a table's folder, in order.

    Both may be spelt as locations of Iceberg are, see `local_path`.

    >>> outside_of("s3://lake/t", ["x", "s3a://lake/t/y", "s3a://lake/t2/z"])
    ['s3a://lake/t2/z']
    """
    home = f"{store_of(local_path(root))}/"
    plain = ((each, local_path(each)) for each in paths)
    return [
        each for each, path in plain if is_absolute(path) and not store_of(path).startswith(home)
    ]


def full_name(root: str, path: str) -> str:
    """Return the full name of a file, unescaped, as `Storage.uri_of` does."""
    return path if is_absolute(path) else f"{root.rstrip('/')}/{path}"


def spark_path(root: str, path: str) -> str:
    """Return the full name of a file, unescaped, as Hadoop's `Path` takes it.

    On the table's own store the table's scheme is used: the session may support `s3a` only.
    """
    name = full_name(root, path).rstrip("/")
    if "://" not in root:
        return f"file:{name}"
    scheme, sign, rest = name.partition("://")
    return root.partition("://")[0] + sign + rest if _kind(root) == _kind(scheme + sign) else name


def store_of(uri: str) -> str:
    """Return a path or URI with one scheme for each kind of store, to compare locations.

    >>> store_of("s3a://bucket/x/"), store_of("/lake")
    ('s3://bucket/x', 'file:///lake')
    """
    return f"{_kind(uri)}://{uri.partition('://')[2] if '://' in uri else uri}".rstrip("/")


def overlap(first: str, second: str) -> bool:
    """Tell whether one of two locations is the other or inside it, also behind symbolic links.

    >>> overlap("s3://bucket/lake/t", "s3a://bucket/lake"), overlap("/lake/t", "/lake/t2")
    (True, False)
    """
    names = []
    for location in map(local_path, (first, second)):
        is_local = "://" not in location
        names.append(f"{store_of(os.path.realpath(location) if is_local else location)}/")
    return names[0].startswith(names[1]) or names[1].startswith(names[0])


def lies_below(path: str, root: str) -> bool:
    """Tell whether a file is inside a folder, by its name and on local disk by where it really is.

    A path with `..`, and one through a link that leads out of the folder, is not.

    >>> lies_below("s3a://bucket/t/x", "s3://bucket/t"), lies_below("/lake/t2/x", "/lake/t")
    (True, False)
    >>> lies_below("/lake/t/../u/x", "/lake/t"), lies_below("file:///lake/t/x", "file:/lake/t/")
    (False, True)
    """
    try:
        folder, _, name = local_path(path).rpartition("/")
        inside, outside = (real_folder(each) for each in (folder, root))
    except FormatError:
        return False
    return bool(name) and name not in _UPWARDS and f"{inside}/".startswith(f"{outside}/")


def real_folder(folder: str) -> str:
    """Return a folder in the one form that names of it have in common; links are resolved.

    >>> real_folder("s3a://bucket/x/"), real_folder("file:/lake")
    ('s3://bucket/x', 'file:///lake')
    """
    found = local_path(folder) or "/"
    if not is_absolute(found) or "\0" in found or not _UPWARDS.isdisjoint(found.split("/")):
        raise FormatError("the name of a folder leads somewhere else", found=repr(folder[:200]))
    return store_of(found if "://" in found else os.path.realpath(found))


def folder_key(root: str, folder: str) -> str | None:
    """Return the key of a local folder below a local root, also if links lead there.

    Empty for the root itself, None for a folder that is elsewhere.
    """
    real_root, real = (f"{os.path.realpath(each)}/".replace("//", "/") for each in (root, folder))
    return real[len(real_root) :].rstrip("/") if real.startswith(real_root) else None


def linked_files(root: str, folder: str) -> dict[str, str | None]:
    """Return the links in a folder of a local root by name, with the keys of what they lead to.

    None for one that leads elsewhere. Empty for a folder that cannot be listed.
    """
    try:
        with os.scandir(f"{root}/{folder}") as scan:
            names = [each.name for each in scan if each.is_symlink()]
    except OSError:
        return {}
    return {name: folder_key(root, f"{root}/{folder}/{name}") for name in names}


def _kind(uri: str) -> str:
    return kind_of(uri.partition("://")[0] if "://" in uri else "file")
