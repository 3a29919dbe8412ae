"""Sources that read the table which they are written to: are their rows still those of the table?

Such a source is read at some version, and the operation starts from the newest one, in each attempt
anew. If rows changed between the two, writing would undo that change: a lost update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.segment import list_commits
from delvec.delta.write.conflicts import READ_AGAIN, Winner, require_same_rows
from delvec.errors import ConflictError

if TYPE_CHECKING:
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.change import SourceRead

__all__ = ["require_rows_of"]


def require_rows_of(snapshot: Snapshot, read: SourceRead) -> None:
    """Refuse a source that has read another version, unless no commit since changed its rows.

    Reads the commits in between.

    Raises:
        ConflictError: Rows have changed; trying again does not help, the source must be read again.
    """
    storage, version, read_version = snapshot.storage, snapshot.version, read.version
    if read_version == version:
        return
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
        try:
            require_same_rows(winner, read)
        except ConflictError as error:
            error.retryable = False
            raise
