"""The fence of an Iceberg table: what its metadata name is looked at before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.referenced import listed_paths
from delvec.spark.conf import allowed_paths
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["require_allowed"]

# Where Iceberg, and delvec, write files of a table.
_WRITES: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path")


def require_allowed(table: LoadedTable, allow_paths: Sequence[str] | None) -> None:
    """Refuse a table that leads out of its location, if the session or the caller fences it.

    Most files are read by Iceberg itself, so all that any snapshot names are compared before that:
    metadata, then the manifests, then data and delete files. Without a fence it costs nothing.

    Raises:
        FormatError: It names a file that is not allowed.
    """
    if allow_paths is None and allowed_paths(table.spark) is None:
        return
    metadata = table.metadata
    storage = open_storage(table.spark, local_path(metadata.location), allow_paths=allow_paths)
    folders = [metadata.properties[key] for key in _WRITES if key in metadata.properties]
    for path in (*folders, *sorted(metadata.files)):
        storage.admit(local_path(path))
    for kind in ("ALL_MANIFESTS", "ALL_FILES"):  # in this order: files are read from manifests
        with explained(str(table.name)):
            paths = listed_paths(table, kind)
        for path in paths:
            storage.admit(local_path(path))
