"""Folders of a table, looked into by the same means by which files in them are deleted.

On a local disk that is delvec's own storage, which descends into no links. In a store it is the
table's FileIO: it alone has credentials that a catalog vends, and it knows file systems of Hadoop
that delvec does not, such as HDFS. By other credentials, or at another endpoint, a folder that is
full may seem to be empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable, is_instance
from delvec.iceberg.client.failures import translate_errors
from delvec.identifiers import quote_if_needed
from delvec.report.format import escape_controls
from delvec.spark import jvm
from delvec.spark.engine import open_storage
from delvec.storage import Storage
from delvec.storage.listed_files import local_path, real_folder
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
        """Return the first 4 KiB of a file."""
        if self.storage is not None:
            return first_bytes(self.storage, key)
        with translate_errors(str(self.table.name)):
            folders = _folders(self.table.spark)
            return bytes(folders.beginning(self._io, f"{self.root}/{key}", _BEGINNING))


def first_bytes(storage: Storage, key: str) -> bytes:
    """Return the first 4 KiB of a file."""
    with storage.open_input(key) as file:
        return file.read(_BEGINNING)


def _folders(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return an object of `TableFolders.java`."""
    return jvm.load_java(spark, "delvec.iceberg.client", "TableFolders")
