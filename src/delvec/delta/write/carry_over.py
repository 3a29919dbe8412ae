"""Files whose rows we move to new ones, while another writer changes them.

    the winner                                our rewrite of the file
    deleted rows of it                        these rows are deleted in the new file too, if it is
                                              known where they went
    removed it, made deleted rows live again  given up: the old files stay, the new one is deleted
      or wrote a new entry for it

The log does not know the order of rows in a file. So it is the rewriter that tells where they went,
and it may say that it does not know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delvec.delta.log.file_set import FileEntry
from delvec.delta.read.load_vectors import entry_vector
from delvec.delta.write.change import VectorUpdate
from delvec.errors import ConflictError
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from delvec.delta.write.change import Change, Rewrite
    from delvec.delta.write.conflicts import Winner
    from delvec.storage import Storage

__all__ = ["carry_over"]


def carry_over(change: Change, winner: Winner, storage: Storage) -> tuple[Change, int]:
    """Return a change whose rewrites know of a winner, and of how many files it deleted rows.

    Raises:
        ConflictError: All rewrites had to be given up.
    """
    if not change.rewrites:
        return change, 0
    touched = set(winner.adds) | set(winner.removes)
    kept, carried = [], 0
    for each in change.rewrites:
        changed = [file for file in each.files if file.path in touched]
        now = _rewritten_on(each, changed, winner, storage) if changed else each
        if now is not None:
            kept.append(now)
            carried += len(changed)
    if not kept:
        raise ConflictError(
            f"version {winner.version} of {winner.root} changed all files that were rewritten",
            version=winner.version,
            files=[file.path for each in change.rewrites for file in each.files],
            hint="nothing was changed; run the operation again, or allow more retries",
        )
    return replace(change, rewrites=tuple(kept)), carried


def _rewritten_on(
    rewrite: Rewrite, changed: list[FileEntry], winner: Winner, storage: Storage
) -> Rewrite | None:
    """Return a rewrite with the deletes of a winner, None if it has to be given up."""
    entries = {file.path: file for file in rewrite.files}
    gone = Bitmap()
    if rewrite.deleted is not None and rewrite.deleted.vector is not None:
        gone = rewrite.deleted.vector
    for file in changed:
        moved = _moved(rewrite, file, winner, storage)
        # Two rows cannot have gone to one place.
        if moved is None or not gone.isdisjoint(moved):
            return None
        gone = gone | moved
        entries[file.path] = FileEntry(file.path, winner.adds[file.path])
    files = tuple(entries.values())
    if rewrite.added is None or not gone.cardinality:
        return replace(rewrite, files=files)
    if gone.cardinality >= rewrite.rows:
        return replace(rewrite, files=files, added=None, deleted=None)
    return replace(rewrite, files=files, deleted=VectorUpdate(rewrite.added, rewrite.rows, gone))


def _moved(rewrite: Rewrite, file: FileEntry, winner: Winner, storage: Storage) -> Bitmap | None:
    """Return where the rows went that a winner deleted of a file; None if that is not known."""
    now = winner.adds.get(file.path)
    if now is None or file.path not in winner.removes or rewrite.places is None:
        return None
    before, after = (entry_vector(storage, file.path, each) for each in (file.add, now))
    return rewrite.places.moved(file.path, after - before) if before.issubset(after) else None
