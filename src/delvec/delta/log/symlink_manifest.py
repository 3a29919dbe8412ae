"""Symlink manifests, for readers of Parquet that do not know Delta: one live file to a line.

    _symlink_format_manifest/manifest                  of a table without partitions
    _symlink_format_manifest/<name>=<value>/manifest   for each partition that has files

The layout is that of delta-spark's `GENERATE symlink_format_manifest`. Memory grows with the files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from delvec.errors import UnsupportedFeatureError
from delvec.report.wordings import call, worded
from delvec.storage.listed_files import spark_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.delta.log.snapshot import Snapshot

__all__ = ["require_plain", "write_manifests"]

_FOLDER: Final = "_symlink_format_manifest"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# What Hive escapes in the names of partitions' folders.
_ESCAPED: Final = re.compile(r"[\x01-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def write_manifests(snapshot: Snapshot) -> None:
    """Write the manifests of a version, and remove those of partitions without files.

    Each file is replaced atomically, one partition after the other.

    Raises:
        UnsupportedFeatureError: A file has a deletion vector, or columns are mapped: readers of
            manifests would see deleted rows, or no columns.
        StorageError: The store refused or failed.
    """
    require_plain(snapshot)
    storage = snapshot.storage
    wanted = {
        f"{_FOLDER}/{folder}manifest": names for folder, names in _by_folder(snapshot).items()
    }
    stale = [
        info.key
        for info in storage.list(_FOLDER, recursive=True)
        if info.key not in wanted and not _is_hidden(info.key)
    ]
    for key, names in wanted.items():
        storage.write(key, "".join(f"{name}\n" for name in names).encode())
    storage.delete(stale)


def require_plain(snapshot: Snapshot) -> None:
    """Refuse a version that readers of manifests would read wrong; see `write_manifests`."""
    files = snapshot.files
    vectored = np.flatnonzero(files.has_vector)
    if len(vectored):
        raise UnsupportedFeatureError(
            f"{len(vectored)} files of {snapshot.table} have deletion vectors, such as"
            f" {files.paths[int(vectored[0])].as_py()}; readers of a manifest would see the"
            " deleted rows",
            feature="deletionVectors",
            needed_by=snapshot.table,
            hint=worded(
                "rewrite these files without the deleted rows first, by {}; setting"
                " delta.enableDeletionVectors to false does not help",
                call("purge"),
            ),
        )
    if snapshot.metadata.mapping_mode != "none":
        raise UnsupportedFeatureError(
            f"the columns of {snapshot.table} have other names in its files; readers of a"
            " manifest would not find them",
            feature="columnMapping",
            needed_by=snapshot.table,
            hint="copy the table to one without column mapping",
        )


def _by_folder(snapshot: Snapshot) -> Mapping[str, Sequence[str]]:
    """Return the full names of files by the folder of their partition, which ends in a slash."""
    files, fields = snapshot.files, snapshot.metadata.partition_fields
    names = [spark_path(snapshot.table, path) for path in files.paths.to_pylist()]
    if not fields:
        return {"": names}
    columns = [files.partition_strings(field.physical_name).to_pylist() for field in fields]
    found: dict[str, list[str]] = {}
    for name, values in zip(names, zip(*columns, strict=True), strict=True):
        parts = zip((field.name for field in fields), values, strict=True)
        folder = "".join(f"{_escaped(column)}={_value(text)}/" for column, text in parts)
        found.setdefault(folder, []).append(name)
    return found


def _value(text: str | None) -> str:
    return _escaped(text) if text else _NULL


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _is_hidden(key: str) -> bool:
    return key.rpartition("/")[2].startswith(".")
