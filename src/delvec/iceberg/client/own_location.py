"""Whether files are a table's own, before any is deleted, and in a fence before any is read.

The location of a table, and the names of its files, are what somebody wrote into its metadata. The
catalog says where the metadata file is, so that much is known: a location is the table's own if the
metadata file is in a folder of it, such as `metadata`, and no other table's metadata are there.

Folders are looked into by the same means by which files in them are deleted. On a local disk that
is delvec's own storage, which descends into no links. In a store it is the table's FileIO: it alone
has credentials that a catalog vends, and it knows file systems of Hadoop that delvec does not, such
as HDFS. By other credentials, or at another endpoint, a folder that is full may seem to be empty.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from delvec.errors import FormatError, PlanError
from delvec.iceberg.client.catalog import LoadedTable, is_instance, load_table
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import listed_paths
from delvec.iceberg.client.metadata import TableMetadata
from delvec.identifiers import quote_if_needed
from delvec.report.format import escape_controls
from delvec.report.hints import Wording, format_hint, shell_word
from delvec.spark import jvm
from delvec.spark.engine import allowed_paths, open_storage
from delvec.storage import Storage
from delvec.storage.listed_files import lies_below, local_path, real_folder
from delvec.storage.parallel import gather

DELTA_LOG: Final = "_delta_log"
PLACES: Final = (DELTA_LOG, "metadata")
"""The folders in which tables have their metadata."""

_METADATA_FILE: Final = re.compile(
    r"(?:.+/|)(?:metadata/[^/]+\.metadata\.json(?:\.gz)?|_delta_log/[^/]+\.json)", re.DOTALL
)
_BEGINNING: Final = 4096  # bytes of a metadata file: UUID and time are among its first entries
_DISK: Final = "file:///"
_NAME: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(/.*)", re.DOTALL)


def default_store(table: LoadedTable) -> str:
    """Return where paths without a scheme are: `fs.defaultFS`, if Hadoop reads the table."""
    io = table.handle.io()
    if not is_instance(table.spark, io, "org.apache.iceberg.hadoop.HadoopConfigurable"):
        return _DISK
    file_system = jvm.java_class(table.spark, "org.apache.hadoop.fs.FileSystem")
    with translate_errors(str(table.name)):
        return str(file_system.getDefaultUri(io.getConf()).toString())


def in_full(path: str, default: str) -> str:
    """Return a path with the scheme and the host that Hadoop takes if it has none.

    >>> in_full("/lake/t", "hdfs://node:8020"), in_full("hdfs:/lake/t", "hdfs://node:8020/")
    ('hdfs://node:8020/lake/t', 'hdfs://node:8020/lake/t')
    >>> in_full("/lake/t", "file:///"), in_full("viewfs:/lake/t", "file:///")
    ('/lake/t', 'viewfs:///lake/t')
    """
    match = _NAME.fullmatch(path)
    if match is None:
        return path
    given, host, rest = match.groups()
    home, _, default_host = default.partition("://")
    scheme = (given or home).lower()
    if scheme == "file":
        return f"{scheme}{path[len(given) :]}" if given else path
    if not host and scheme == home:
        host = default_host.rstrip("/")
    return f"{scheme}://{host or ''}{rest}"


def is_on_disk(table: LoadedTable, folder: str) -> bool:
    return real_folder(in_full(folder, default_store(table))).startswith(_DISK)


@dataclass(frozen=True)
class TableFolder:
    """A folder that a table has, or that was named for it; `storage` is None in a store."""

    table: LoadedTable
    root: str
    storage: Storage | None

    @classmethod
    def opened(cls, table: LoadedTable, folder: str) -> TableFolder:
        """Open a folder; nothing is read."""
        if is_on_disk(table, folder):
            return cls(table, folder, open_storage(table.spark, local_path(folder)))
        io = table.handle.io()
        if not _folders(table.spark).canList(io):
            raise PlanError(
                f"{table.name} has a FileIO that cannot list {escape_controls(folder)}, so that"
                " metadata of other tables there would not be seen: expected one with"
                f" SupportsPrefixOperations, found {io.getClass().getName()}; nothing was deleted",
                hint="if all files in that folder are the table's, call a procedure of Iceberg's:"
                f" CALL {quote_if_needed(table.name.catalog)}.system.expire_snapshots(...)",
            )
        return cls(table, folder.rstrip("/"), None)

    def metadata_files(self, folders: Sequence[str]) -> list[str]:
        """Return the metadata files in some folders of this one, by their paths from here.

        Those of Iceberg tables, and commits of Delta tables. With the folder "" all that are
        anywhere inside; otherwise some of those further inside may be among them.
        """

        def listed(folder: str) -> list[str]:
            if self.storage is not None:
                found = (each.key for each in self.storage.list(folder, recursive=not folder))
                return [key for key in found if _METADATA_FILE.fullmatch(key)]
            inside = f"{folder}/" if folder else ""
            with translate_errors(str(self.table.name)):
                text = _folders(self.table.spark).metadata(self._io, f"{self.root}/{inside}")
            return [f"{inside}{each}" for each in text.split("\0")[:-1]]

        return [key for keys in gather(listed, folders) for key in keys]

    @property
    def _io(self) -> Any:  # noqa: ANN401
        return self.table.handle.io()

    def beginning(self, key: str) -> bytes:
        if self.storage is not None:
            return first_bytes(self.storage, key)
        with translate_errors(str(self.table.name)):
            folders = _folders(self.table.spark)
            return bytes(folders.beginning(self._io, f"{self.root}/{key}", _BEGINNING))


def first_bytes(storage: Storage, key: str) -> bytes:
    with storage.open_input(key) as file:
        return file.read(_BEGINNING)


def _folders(spark: SparkSession) -> Any:  # noqa: ANN401
    return jvm.load_java(spark, "delvec.iceberg.client", "TableFolders")


_EARLIER_GO: Final = "write.metadata.delete-after-commit.enabled"
_MOST_FOLDERS: Final = 1000  # that are listed one by one; more cost as much as all at once
_MOST_UNPACKED: Final = 4096
_GZIP: Final = b"\x1f\x8b"
_UNREADABLE: Final = b"?"
_UPDATED: Final = re.compile(rb'"last-updated-ms"\s*:\s*([0-9]{1,19})\b')
_TABLE_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_NO_FILES: Final = frozenset({"", ".", ".."})
_SHOWN: Final = 5
# Where Iceberg, and delvec, write files of a table.
_WRITES: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path")


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
    """Return the location of a table, which has its metadata file."""
    location, file = table.metadata.location, table.metadata.file
    root = _root(table, location)
    # Some REST catalogs do not tell the file.
    if file is not None and root != _root(table, _table_of(file)):
        hint = "if all files in that folder are the table's, name it: {}"
        raise PlanError(
            f"the location of {table.name} may be that of others: expected its metadata file in"
            f" {escape_controls(location)}/metadata, found {escape_controls(file)}; nothing"
            " was deleted",
            hint=format_hint(hint, _named(location)),
        )
    return location


def require_own_folder(table: LoadedTable, given: str | None = None) -> str:
    """Return the folder in which files may be deleted for a table."""
    folder = require_own_location(table) if given is None else given
    root = _root(table, folder)
    _require_alone(table, folder)
    if given is not None and not (above := _parent(root)).endswith("/"):
        if not is_on_disk(table, folder):  # there are no links, and a FileIO knows its scheme alone
            above = _parent(folder.rstrip("/")) or "/"
        _require_alone(table, above)  # of which it may be the folder `data`
    return folder


def sorted_out(table: LoadedTable, folder: str, paths: Iterable[str]) -> Sorted:
    """Tell files of a table's own folder from those of others.

    Folders above the files are looked into for the metadata of other tables: one request for each,
    or a listing of all if they are many.
    """
    own: list[tuple[str, str]] = []
    refused = []
    default = default_store(table)
    home = in_full(folder, default)
    root = f"{real_folder(home)}/"
    places: dict[str, str] = {}
    for path in sorted(paths):
        above = _parent(path)
        if above not in places and lies_below(full := in_full(path, default), home):
            places[above] = f"{real_folder(_parent(full))}/"
        key = places.get(above, "")[len(root) :]
        # Two slashes are one to some stores.
        if above in places and path.rpartition("/")[2] not in _NO_FILES and "//" not in f"/{key}":
            own.append((key, path))
        else:
            refused.append(path)
    inner = _inner_tables(TableFolder.opened(table, folder), {key for key, _ in own})
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
    """
    metadata = table.metadata
    if metadata.properties.get(_EARLIER_GO, "").lower() != "true":
        return
    default = default_store(table)
    location = in_full(metadata.location, default)
    folders = [location]
    if metadata.file is not None:
        folders = [_parent(in_full(metadata.file, default))]
        if _parent(folders[0]).rstrip("/") == location.rstrip("/"):
            folders.append(location)
    for path in metadata.earlier:
        if not any(lies_below(in_full(path, default), folder) for folder in folders):
            raise PlanError(
                f"a commit to {table.name} would delete {path[:400]!r}: its metadata log names that"
                f" file, which is not in {escape_controls(folders[0])}, and {_EARLIER_GO} is true",
                hint=f"nothing was changed; set {_EARLIER_GO} to false",
            )


def require_allowed(table: LoadedTable, allow_paths: Sequence[str] | None) -> None:
    """Refuse a table that leads out of its location, if the session or the caller fences it.

    Most files are read by Iceberg itself, so all that any snapshot names are compared before that:
    metadata, then the manifests, then data and delete files. Without a fence it costs nothing.
    """
    if allow_paths is None and allowed_paths(table.spark) is None:
        return
    metadata = table.metadata
    storage = open_storage(table.spark, local_path(metadata.location), allow_paths=allow_paths)
    folders = [metadata.properties[key] for key in _WRITES if key in metadata.properties]
    for path in (*folders, *sorted(metadata.files)):
        storage.admit(local_path(path))
    for kind in ("ALL_MANIFESTS", "ALL_FILES"):  # in this order: files are read from manifests
        with translate_errors(str(table.name)):
            paths = listed_paths(table, kind)
        for path in paths:
            storage.admit(local_path(path))


def metadata_of_others(
    read: Callable[[str], bytes], keys: Sequence[str], table: TableMetadata, since_ms: int
) -> tuple[list[str], list[str]]:
    """Return which of some metadata files are of other tables, and which fork this one.

    A table that was dropped and created again has the location of the old one in many catalogs,
    and the old one may have been registered elsewhere. So may this one: whoever commits to another
    catalog's entry of it writes metadata with the same UUID that this one does not log. A commit
    that crashed leaves the same, and is taken for that.
    """

    def beginning(key: str) -> bytes:
        data = read(key)
        if data.startswith(_GZIP):
            try:
                return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, _MOST_UNPACKED)
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


def shown(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(repr(each[:200]) for each in paths[:_SHOWN]) + more


def _root(table: LoadedTable, folder: str) -> str:
    try:
        return real_folder(in_full(folder, default_store(table)))
    except FormatError as error:
        hint = "name the folder of its files, as a path or URI: {}"
        raise PlanError(
            f"{table.name} has no folder of its own: {error.describe()}; nothing was deleted",
            hint=format_hint(hint, _named("s3://...")),
        ) from error


def _require_alone(table: LoadedTable, folder: str) -> None:
    """Refuse a folder with the metadata of another table right in it."""
    opened, metadata = TableFolder.opened(table, folder), table.metadata
    keys = [key for key in opened.metadata_files(PLACES) if not _table_of(key)]
    if any(key.startswith(f"{DELTA_LOG}/") for key in keys):
        raise _shared(table, folder, f"{folder}/{DELTA_LOG}")
    others, forks = metadata_of_others(opened.beginning, keys, metadata, metadata.updated_ms + 1)
    if forks:  # somebody may have committed meanwhile
        known = load_table(table.spark, table.name).metadata.file_names
        forks = [key for key in forks if key.rpartition("/")[2] not in known]
    if found := [*others, *forks]:
        raise _shared(table, folder, f"{opened.root}/{found[0]}")


def _shared(table: LoadedTable, folder: str, found: str) -> PlanError:
    return PlanError(
        f"{escape_controls(folder)} is not {table.name}'s alone: {escape_controls(found)} is of"
        " another table, or of another entry of this one; nothing was deleted",
        hint="if that table was dropped, or its commit has crashed, remove this file first",
    )


def _inner_tables(folder: TableFolder, keys: set[str]) -> set[str]:
    """Return the folders of other tables among those that files are in: keys that end with `/`."""
    folders: set[str] = set()
    for key in keys:
        parts = key.split("/")[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    looked = [""]
    if len(folders) <= _MOST_FOLDERS:
        looked = [f"{each}/{name}" for each in sorted(folders) for name in PLACES]
    return {f"{inner}/" for key in folder.metadata_files(looked) if (inner := _table_of(key))}


def _table_of(metadata_file: str) -> str:
    return _parent(_parent(metadata_file))


def _named(folder: str) -> Wording:
    return Wording(f"location={folder!r}", f"--location {shell_word(folder, is_path=True)}")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
