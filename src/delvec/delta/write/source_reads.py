"""Sources that read the table which they are written to: are their rows still those of the table?

Such a source is read at some version, and the operation starts from the newest one, in each attempt
anew. If rows changed between the two, writing would undo that change: a lost update.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.paths import canonical
from delvec.delta.log.segment import list_commits
from delvec.delta.write.conflicts import READ_AGAIN, Winner, require_same_rows
from delvec.errors import ConflictError
from delvec.storage.listed_files import full_name, is_absolute, local_path, store_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.change import PlainListing, SourceRead

__all__ = ["still_read"]


def still_read(snapshot: Snapshot, read: SourceRead) -> SourceRead:
    """Return what a source has read, if its rows are still those of a version.

    Reads the commits in between; of a source that lists files by itself, compares all files of the
    table.

    Returns:
        The read, to be compared with commits after this version.

    Raises:
        ConflictError: Rows have changed; trying again does not help, the source must be read again.
    """
    if read.listing is not None:
        _require_rows_of_files(snapshot, read.listing)
        return read
    storage, version, read_version = snapshot.storage, snapshot.version, read.version
    if read_version == version:
        return read
    between = [file for file in list_commits(storage, read_version + 1) if file.first <= version]
    if len(between) != version - read_version:  # cleaned up, or another table in its place
        raise ConflictError(
            f"the source of this operation has read version {read_version} of {storage.root}, which"
            f" is at version {version}, and the log does not tell what has changed",
            version=version,
            retryable=False,
            hint=READ_AGAIN,
        )
    for file in between:
        actions = JsonActions(storage.uri_of(file.key), storage.read(file.key))
        winner = Winner(file.first, storage.root, snapshot.metadata, actions)
        if winner.has("metaData"):
            # Columns may have other names from here on: the rows that it uses cannot be told.
            read = replace(read, files=None)
        try:
            require_same_rows(winner, read)
        except ConflictError as error:
            error.retryable = False
            raise
    return read


def _require_rows_of_files(snapshot: Snapshot, listing: PlainListing) -> None:
    """Refuse files that are not, row by row, what a version has below the same folders."""
    files = snapshot.files
    live = _names(files.paths.to_pylist(), listing.table)
    removed = {
        name
        for piece in snapshot.tombstones()
        for name in _names(
            canonical(pc.struct_field(piece, "path"), snapshot.table).to_pylist(), listing.table
        )
    }.difference(live)
    known = listing.names & removed.union(live)
    if not known:
        return  # other files in the folder of the table
    with_vectors = _names(
        files.select(np.flatnonzero(files.deleted_rows)).paths.to_pylist(), listing.table
    )
    below = tuple(f"{root}/" for root in listing.roots)
    missing = {name for name in live if f"{name}/".startswith(below)} - known
    for what, names in (
        ("it reads removed files", known & removed),
        ("it reads deleted rows of files with deletion vectors", known.intersection(with_vectors)),
        ("it does not read new files", missing),
    ):
        if names:
            shown = sorted(names)
            more = ", ..." if len(shown) > 3 else ""
            raise ConflictError(
                f"the source of this operation reads files of {snapshot.table} as plain files, and"
                f" its rows are not those of version {snapshot.version}: {what}:"
                f" {', '.join(shown[:3])}{more}",
                version=snapshot.version,
                files=shown,
                retryable=False,
                hint="read the table by to_df(); rows that are meant as they are can be copied"
                " first, by localCheckpoint() or to another folder",
            )


def _names(paths: Iterable[str], table: str) -> frozenset[str]:
    """Return the full names of files of a table, in the spelling of a listing."""
    return frozenset(
        store_of(local_path(path)) if is_absolute(path) else full_name(table, path)
        for path in paths
    )
