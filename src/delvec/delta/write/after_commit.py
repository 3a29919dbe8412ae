"""What follows a commit: a checkpoint if one is due, the symlink manifest if it is on.

The manifest is for readers of Parquet that do not know Delta: one live file to a line.

    _symlink_format_manifest/manifest                  of a table without partitions
    _symlink_format_manifest/<name>=<value>/manifest   for each partition that has files

The layout is that of delta-spark's `GENERATE symlink_format_manifest`. Memory grows with the files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.metadata import Metadata, Property
from delvec.documents import whole_number
from delvec.errors import DelvecError, UnsupportedFeatureError
from delvec.report.hints import call, format_hint
from delvec.storage import Storage
from delvec.storage.listed_files import spark_path

_FOLDER: Final = "_symlink_format_manifest"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# What Hive escapes in the names of partitions' folders.
_ESCAPED: Final = re.compile(r"[\x01-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
_CHECKPOINT_INTERVAL: Final = 10


def write_manifests(snapshot: Snapshot) -> None:
    """Write the manifests of a version, and remove those of partitions without files.

    Each file is replaced atomically, one partition after the other.
    """
    require_plain(snapshot)
    storage = snapshot.storage
    wanted = {
        f"{_FOLDER}/{folder}manifest": names for folder, names in _by_folder(snapshot).items()
    }
    stale = [
        info.key
        for info in storage.list(_FOLDER, recursive=True)
        if info.key not in wanted and not info.key.rpartition("/")[2].startswith(".")
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
            hint=format_hint(
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
        texts = (_escaped(text) if text else _NULL for text in values)
        parts = zip((_escaped(field.name) for field in fields), texts, strict=True)
        folder = "".join(f"{column}={text}/" for column, text in parts)
        found.setdefault(folder, []).append(name)
    return found


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def after_commit(storage: Storage, version: int, metadata: Metadata) -> tuple[str, ...]:
    """Write the checkpoint and the symlink manifest that are due; return notes on failures.

    The commit is valid whatever happens here, so a failure is noted and not raised.
    """
    notes = []
    due = version > 0 and version % checkpoint_interval(metadata) == 0
    for wanted, what, write in (
        (due, "the checkpoint", write_checkpoint),
        (metadata.is_on(Property.SYMLINK_MANIFEST), "the symlink manifest", write_manifests),
    ):
        if not wanted:
            continue
        try:
            write(open_snapshot(storage, version))
        except Exception as error:  # noqa: BLE001 - noted in the report: the commit is done
            reason = error.describe() if isinstance(error, DelvecError) else repr(error)
            notes.append(f"{what} of version {version} was not written: {reason}")
    return tuple(notes)


def checkpoint_interval(metadata: Metadata) -> int:
    asked = whole_number(metadata.configuration.get(Property.CHECKPOINT_INTERVAL))
    return asked or _CHECKPOINT_INTERVAL
