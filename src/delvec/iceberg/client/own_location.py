"""Whether a folder is a table's own, before files in it are deleted.

The location of a table, and the names of its files, are what somebody wrote into its metadata. The
catalog says where the metadata file is, so that much is known: a location is the table's own if the
metadata file is in a folder of it, such as `metadata`, and no other table's metadata are there.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delvec.errors import FormatError, PlanError
from delvec.iceberg.client.catalog import load_table
from delvec.report.figures import visible
from delvec.report.wordings import Wording, shell_word, worded
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import lies_below, local_path, real_folder
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata
    from delvec.storage import Storage

__all__ = [
    "Sorted",
    "metadata_of_others",
    "require_own_folder",
    "require_own_location",
    "require_own_log",
    "shown",
    "sorted_out",
]

_EARLIER_GO: Final = "write.metadata.delete-after-commit.enabled"
_MOST_FOLDERS: Final = 1000  # that are listed one by one; more cost as much as all at once
_METADATA_FILE: Final = re.compile(r"(?:(.+)/|)metadata/[^/]+\.metadata\.json(?:\.gz)?")
_DELTA_LOG: Final = re.compile(r"(?:(.+)/|)_delta_log/[^/]+\.json")
_BEGINNING: Final = 4096  # bytes of a metadata file: UUID and time are among its first entries
_GZIP: Final = b"\x1f\x8b"
_UNREADABLE: Final = b"?"
_UPDATED: Final = re.compile(rb'"last-updated-ms"\s*:\s*([0-9]{1,19})\b')
_TABLE_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_NO_FILES: Final = frozenset({"", ".", ".."})
_SHOWN: Final = 5


@dataclass(frozen=True)
class Sorted:
    """Files that are to be deleted for a table.

    Attributes:
        own: Those in its own folder.
        refused: Those that are elsewhere, or in the folder of another table inside it.
        inner: The folders of other tables inside it.
    """

    own: tuple[str, ...]
    refused: tuple[str, ...]
    inner: tuple[str, ...]


def require_own_location(table: LoadedTable) -> str:
    """Return the location of a table, which has its metadata file.

    Raises:
        PlanError: The metadata file is elsewhere: the location may be that of others.
    """
    location, file = table.metadata.location, table.metadata.file
    root = _root(table, location)
    # Some REST catalogs do not tell the file.
    if file is not None and root != _root(table, _parent(_parent(file))):
        raise PlanError(
            f"the location of {table.name} may be that of others: expected its metadata file in"
            f" {visible(location)}/metadata, found {visible(file)}; nothing was deleted",
            hint=worded(
                "if all files in that folder are the table's, name it: {}", _named(location)
            ),
        )
    return location


def require_own_folder(table: LoadedTable, given: str | None = None) -> str:
    """Return the folder in which files may be deleted for a table.

    Args:
        table: The table.
        given: The folder that the user has named for it; by default the table's location.

    Raises:
        PlanError: It is not the table's own: its metadata are elsewhere, or those of another table
            are there.
    """
    folder = require_own_location(table) if given is None else given
    root = _root(table, folder)
    _require_alone(table, folder)
    if given is not None and not (above := _parent(root)).endswith("/"):
        _require_alone(table, above)  # of which it may be the folder `data`
    return folder


def _root(table: LoadedTable, folder: str) -> str:
    try:
        return real_folder(folder)
    except FormatError as error:
        raise PlanError(
            f"{table.name} has no folder of its own: {error.describe()}; nothing was deleted",
            hint=worded("name the folder of its files, as a path or URI: {}", _named("s3://...")),
        ) from error


def sorted_out(table: LoadedTable, folder: str, paths: Iterable[str]) -> Sorted:
    """Tell files of a table's own folder from those of others.

    Folders above the files are looked into for the metadata of other tables: one request for each,
    or a listing of all if they are many.

    Args:
        table: The table.
        folder: The folder, as `require_own_folder` returned it.
        paths: Files.
    """
    own: list[tuple[str, str]] = []
    refused = []
    root = f"{real_folder(folder)}/"
    places: dict[str, str] = {}
    for path in sorted(paths):
        above = _parent(path)
        if above not in places and lies_below(path, folder):
            places[above] = f"{real_folder(above)}/"
        if above in places and path.rpartition("/")[2] not in _NO_FILES:
            own.append((places[above][len(root) :], path))
        else:
            refused.append(path)
    inner = _inner_tables(open_storage(table.spark, local_path(folder)), {key for key, _ in own})
    kept = {path for key, path in own if any(key.startswith(each) for each in inner)}
    return Sorted(
        tuple(path for _, path in own if path not in kept),
        tuple(sorted([*refused, *kept])),
        tuple(f"{folder.rstrip('/')}/{key}" for key in sorted(inner)),
    )


def require_own_log(table: LoadedTable) -> None:
    """Refuse to commit to a table if Iceberg would then delete a file that is not its own.

    With `write.metadata.delete-after-commit.enabled` each commit deletes the metadata files that
    the log does not keep any more, wherever they are.

    Raises:
        PlanError: The log names one that is neither beside the metadata file nor in the location.
    """
    metadata = table.metadata
    if metadata.properties.get(_EARLIER_GO, "").lower() != "true":
        return
    folders = [metadata.location]
    if metadata.file is not None:
        folders = [_parent(metadata.file)]
        if _parent(folders[0]).rstrip("/") == metadata.location.rstrip("/"):
            folders.append(metadata.location)
    for path in metadata.earlier:
        if not any(lies_below(path, folder) for folder in folders):
            raise PlanError(
                f"a commit to {table.name} would delete {path[:400]!r}: its metadata log names that"
                f" file, which is not in {visible(folders[0])}, and {_EARLIER_GO} is true",
                hint=f"nothing was changed; set {_EARLIER_GO} to false",
            )


def metadata_of_others(
    storage: Storage, keys: Sequence[str], table: TableMetadata, since_ms: int
) -> tuple[list[str], list[str]]:
    """Return which of some metadata files are of other tables, and which fork this one.

    A table that was dropped and created again has the location of the old one in many catalogs,
    and the old one may have been registered elsewhere. So may this one: whoever commits to another
    catalog's entry of it writes metadata with the same UUID that this one does not log. A commit
    that crashed leaves the same, and is taken for that.

    Reads the first 4 KiB of each file.

    Args:
        storage: The table's location.
        keys: Metadata files.
        table: The metadata of the table.
        since_ms: Files of this time and later are forks, unless the table refers to them.
    """

    def beginning(key: str) -> bytes:
        with storage.open_input(key) as file:
            data = file.read(_BEGINNING)
        if data.startswith(_GZIP):
            try:
                return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, _BEGINNING)
            except zlib.error:
                return _UNREADABLE
        return data

    known, others, forks = table.file_names, [], []
    for key, data in zip(keys, gather(beginning, keys), strict=True):
        found, updated = _TABLE_UUID.search(data), _UPDATED.search(data)
        if data and (found is None or found[1] != table.uuid.encode()):
            others.append(key)
        elif key.rpartition("/")[2] not in known and updated and int(updated[1]) >= since_ms:
            forks.append(key)
    return others, forks


def _require_alone(table: LoadedTable, folder: str) -> None:
    """Refuse a folder with the metadata of another table right in it."""
    storage, metadata = open_storage(table.spark, local_path(folder)), table.metadata
    if next((each for each in storage.list("_delta_log") if _DELTA_LOG.fullmatch(each.key)), None):
        raise _shared(table, folder, f"{folder}/_delta_log")
    keys = [each.key for each in storage.list("metadata") if _METADATA_FILE.fullmatch(each.key)]
    others, forks = metadata_of_others(storage, keys, metadata, metadata.updated_ms + 1)
    if forks:  # somebody may have committed meanwhile
        known = load_table(table.spark, table.name).metadata.file_names
        forks = [key for key in forks if key.rpartition("/")[2] not in known]
    if found := [*others, *forks]:
        raise _shared(table, folder, storage.uri_of(found[0]))


def _shared(table: LoadedTable, folder: str, found: str) -> PlanError:
    return PlanError(
        f"{visible(folder)} is not {table.name}'s alone: {visible(found)} is of another table, or"
        " of another entry of this one; nothing was deleted",
        hint="if that table was dropped, or its commit has crashed, remove this file first",
    )


def _inner_tables(storage: Storage, keys: set[str]) -> set[str]:
    """Return the folders of other tables among those that files are in: keys that end with `/`."""
    folders: set[str] = set()
    for key in keys:
        parts = key.split("/")[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))

    def names(folder: str) -> list[str]:
        found = [*storage.list(f"{folder}/metadata"), *storage.list(f"{folder}/_delta_log")]
        return [each.key for each in found]

    if len(folders) > _MOST_FOLDERS:
        listed: Iterable[str] = (each.key for each in storage.list(recursive=True))
    else:
        listed = (key for found in gather(names, sorted(folders)) for key in found)
    inner = set()
    for key in listed:
        match = _METADATA_FILE.fullmatch(key) or _DELTA_LOG.fullmatch(key)
        if match is not None and match[1]:
            inner.add(f"{match[1]}/")
    return inner


def _named(folder: str) -> Wording:
    return Wording(f"location={folder!r}", f"--location {shell_word(folder, is_path=True)}")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def shown(paths: Sequence[str]) -> str:
    """Return the first of some paths, for a sentence."""
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(repr(each[:200]) for each in paths[:_SHOWN]) + more
