"""Deleting files of a table, in batches side by side, with a look at the log before each wave.

Between a vacuum's plan and its deletes other writers commit. A commit may refer again to a file
that was removed long ago: RESTORE does. Such files are spared, since the commits that came since
are read before each wave of deletes. What cannot be excluded is a commit that lands after that
look and before the delete, some seconds at most: no store deletes on a condition on another
object. A commit that refers to files that were removed longer ago than the retention is what takes
that risk, with every engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delvec.delta.log.commits import added_files, read_log_files
from delvec.delta.log.segment import list_commits
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.maintain.references import commit_references, folded, keys_below, vector_keys
from delvec.delta.maintain.vacuum.candidates import folds_names
from delvec.delta.write.writable import require_writable
from delvec.errors import ConflictError, StorageError
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import Storage

__all__ = ["Deletion", "LaterReferences", "delete_files"]

_BATCH: Final = 1000  # as many as S3 deletes in a request
_WAVE: Final = 16
_REASONS: Final = 20


@dataclass
class Deletion:
    """What was deleted, and what was not.

    Attributes:
        files: Files that are gone now.
        bytes: Their size.
        spared: Files that the log refers to again.
        failed: Files that the store did not delete.
        reasons: Why not, for the first of them.
    """

    files: int = 0
    bytes: int = 0
    spared: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)


class LaterReferences:
    """The files that commits after a version refer to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._storage, self._metadata = snapshot.storage, snapshot.metadata
        self._version = snapshot.version
        self._keys: set[str] = set()
        #: How a key is spelled in the set.
        self.name: Callable[[str], str] = folded if folds_names(snapshot.storage) else str

    def refreshed(self) -> set[str]:
        """Read the commits since the last call; return the files that any of them names.

        Raises:
            ConflictError: Commits are missing.
            UnsupportedFeatureError: The table has got a feature that delvec does not write.
        """
        commits = list_commits(self._storage, self._version + 1)
        expected = range(self._version + 1, self._version + 1 + len(commits))
        if [commit.first for commit in commits] != list(expected):
            raise ConflictError(
                f"commits of {self._storage.root} after version {self._version} are missing",
                version=self._version,
                hint="was the table dropped? Files that are left are deleted by the next vacuum",
            )
        root = self._storage.root
        for actions in read_log_files(self._storage, [commit.key for commit in commits]):
            if any("protocol" in action for action in actions.others()):
                require_writable(open_snapshot(self._storage), "vacuum")
            added = added_files(self._metadata, root, actions)
            named = [keys_below(added.paths, root), vector_keys(added.vectors, root)]
            # New tombstones protect files that older versions need, such as those of vectors.
            named += [each.keys for each in commit_references(actions, root)]
            self._keys.update(self.name(key) for keys in named for key in keys.to_pylist())
        self._version += len(commits)
        return self._keys


def delete_files(
    storage: Storage,
    files: pa.Table,
    later: LaterReferences,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Deletion:
    """Delete files; those that a later commit refers to are spared.

    A failure of the store is recorded and the other files are deleted all the same.

    Args:
        storage: The table.
        files: The columns of `FILES`.
        later: The commits since the files were chosen.
        on_progress: Is called with the number of files that were dealt with, and of all.
    """
    done = Deletion()
    for start in range(0, files.num_rows, _BATCH * _WAVE):
        wave = files.slice(start, _BATCH * _WAVE)
        pairs = list(zip(wave["path"].to_pylist(), wave["bytes"].to_pylist(), strict=True))
        spared = later.refreshed()
        wanted = [pair for pair in pairs if later.name(pair[0]) not in spared]
        done.spared += len(pairs) - len(wanted)
        batches = [wanted[at : at + _BATCH] for at in range(0, len(wanted), _BATCH)]
        failures = gather(lambda batch: _delete(storage, batch), batches)
        failed = {path: why for each in failures for path, why in each.items()}
        done.files += len(wanted) - len(failed)
        done.bytes += sum(size for path, size in wanted if path not in failed)
        done.failed += len(failed)
        done.reasons += list(failed.values())[: _REASONS - len(done.reasons)]
        if on_progress is not None:
            on_progress("deleting", start + len(pairs), files.num_rows)
    return done


def _delete(storage: Storage, batch: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Delete files; return those that could not be, with the reason."""
    paths = [path for path, _ in batch]
    try:
        storage.delete(paths)
    except StorageError:
        return {path: why for path in paths if (why := _failure(storage, path)) is not None}
    return {}


def _failure(storage: Storage, path: str) -> str | None:
    try:
        storage.delete([path])
    except StorageError as error:
        return error.describe()
    return None
