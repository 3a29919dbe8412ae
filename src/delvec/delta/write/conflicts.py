"""Conflicts of a change with a concurrent commit, the winner, that took the next version.

    the winner                                   our change
    changed protocol or metadata, or committed   conflict
      a transaction of our application
    removed or rewrote a file that we change     conflict
    deleted rows of a file that we change        its vector and ours are united if they delete
                                                 different rows; else conflict
    changed a file whose rows we move            see `carry_over`
    added rows that our predicate may match      conflict, unless it is a blind append, the table
                                                 is WriteSerializable and we do not alter it
    changed a file that we read as a whole       conflict (see `ReadSet.row_wise`)
    changed rows that our source, which reads    conflict, with the same exception for blind appends
      the table itself, might have read
    took the version that we were made for       conflict (see `ReadSet.version`)
    anything else                                none

Positions in a file never change, so two sets of deleted rows of one file can be united, whoever
wrote them. After a conflict the operation starts again from the newest version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from delvec.delta.log.commits import added_files
from delvec.delta.log.file_set import FileEntry
from delvec.delta.log.paths import canonical
from delvec.delta.parquet.footer_statistics import require_row_count
from delvec.delta.read.load_vectors import entry_vector, stored_vector
from delvec.delta.schema.properties import ISOLATION_LEVEL
from delvec.delta.write.carry_over import carry_over
from delvec.delta.write.change import VectorUpdate
from delvec.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.write.change import Change, SourceRead
    from delvec.storage import Storage

__all__ = ["READ_AGAIN", "Winner", "isolation_level", "rebase", "require_same_rows"]

READ_AGAIN: Final = (
    "nothing was changed; read the table again for the source, and repeat the operation (a source"
    " that names its version, as to_df(version=3), is taken as it is)"
)
# Operations whose vectors only grow: they make no deleted row live again.
_ONLY_DELETE: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


@dataclass(frozen=True)
class Winner:
    """A commit of another writer after the version that our change was made from."""

    version: int
    root: str
    metadata: Metadata
    actions: JsonActions

    @cached_property
    def others(self) -> list[dict[str, Any]]:
        """Its actions that are not about files."""
        return list(self.actions.others())

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """Its commitInfo; empty without one."""
        return next((a["commitInfo"] for a in self.others if a.get("commitInfo")), {})

    @cached_property
    def adds(self) -> dict[str, Mapping[str, Any]]:
        """Bodies of its adds, by decoded path."""
        return self._bodies("add")

    @cached_property
    def removes(self) -> dict[str, Mapping[str, Any]]:
        """Bodies of its removes, by decoded path."""
        return self._bodies("remove")

    def _bodies(self, kind: str) -> dict[str, Mapping[str, Any]]:
        bodies = [action[kind] for action in self.actions.all_actions() if action.get(kind)]
        paths = canonical(pa.array([body["path"] for body in bodies], pa.string()), self.root)
        return dict(zip(paths.to_pylist(), bodies, strict=True))

    def has(self, kind: str) -> bool:
        """Return whether it has an action of a kind, other than adds and removes."""
        return any(action.get(kind) is not None for action in self.others)


def isolation_level(metadata: Metadata) -> str:
    """Return the isolation level of a table; Delta's default is the stricter one."""
    return metadata.configuration.get(ISOLATION_LEVEL, "Serializable")


def rebase(change: Change, winner: Winner, storage: Storage) -> tuple[Change, int]:
    """Return the change on top of a winner, and the number of vectors that were united.

    Raises:
        ConflictError: The winner conflicts with it; nothing was changed.
    """
    for read in change.reads.sources:
        # A source without a fixed version may have read the rows of a blind append already.
        if read.files is None or not _is_ignored(change, winner):
            require_same_rows(winner, read)
    _check_table(change, winner)
    change, carried = carry_over(change, winner, storage)
    updates = {each.file.path: each for each in change.vector_updates}
    removed = {each.path for each in change.removed}
    gone = sorted((set(updates) | removed) & set(winner.removes))
    lost = [path for path in gone if path in removed or path not in winner.adds]
    if lost:
        raise _conflict(winner, "removed or rewrote files that this change is about", lost)
    again = sorted((set(updates) | removed) & (set(winner.adds) - set(winner.removes)))
    if again:  # as when row tracking assigns ids to existing files
        raise _conflict(winner, "wrote new entries for files that this change is about", again)
    ours = _entered(change, winner.root)
    if both := sorted(ours & (set(winner.adds) | set(winner.removes))):
        raise _conflict(winner, "wrote entries of files that this change enters too", both)
    if not change.reads.row_wise and (touched := change.reads.files & set(winner.removes)):
        raise _conflict(winner, "changed files whose rows this change depends on", sorted(touched))
    _check_new_rows(change, winner, storage)
    united = {path: _united(updates[path], winner, storage) for path in gone}
    return _with_united(change, united, storage), len(united) + carried


def _entered(change: Change, root: str) -> set[str]:
    """Return the files that a change enters by themselves: new ones, restored ones, and anew."""
    bodies = (*change.added, *change.entered_anew)
    return set(
        canonical(pa.array([body["path"] for body in bodies], pa.string()), root).to_pylist()
    )


def require_same_rows(winner: Winner, read: SourceRead) -> None:
    """Refuse a commit that changed rows after a source has read them.

    Raises:
        ConflictError: It did; the source has to be read again.
    """
    before, after = (
        {path for path, body in side.items() if body.get("dataChange", True)}
        for side in (winner.removes, winner.adds)
    )
    changed = before | after
    if changed and read.files is not None and not winner.has("metaData"):
        added = added_files(winner.metadata, winner.root, winner.actions)
        changed = _matching(added, after, read) | _matching(read.files, before, read)
    if changed:
        what = f"changed rows after the source of this operation had read version {read.version}"
        error = _conflict(winner, what, sorted(changed), READ_AGAIN)
        error.retryable = not read.is_fixed
        raise error


def _matching(files: FileSet, paths: set[str], read: SourceRead) -> set[str]:
    """Return those of some files that a source reads, by their statistics."""
    chosen = files.select(np.isin(np.array(files.paths.to_pylist()), sorted(paths)))
    matching = chosen.may_match(read.predicate(), read.time_zone)
    return set(chosen.paths.filter(pa.array(matching)).to_pylist())


def _check_table(change: Change, winner: Winner) -> None:
    if change.reads.version:
        raise _conflict(winner, "took the version that this change was made for", ())
    for kind, what in (("protocol", "protocol"), ("metaData", "metadata")):
        if winner.has(kind):
            raise _conflict(winner, f"changed the {what} of the table", ())
    if change.protocol is not None and not change.protocol.has_vectors:
        vectored = sorted(path for path, body in winner.adds.items() if body.get("deletionVector"))
        if vectored:
            raise _conflict(
                winner, "gave vectors to files of a table that is to have none", vectored
            )
    ours = change.transaction
    if ours is not None and any(
        (action.get("txn") or {}).get("appId") == ours.app_id for action in winner.others
    ):
        raise _conflict(winner, f"committed a transaction of {ours.app_id} too", ())


def _check_new_rows(change: Change, winner: Winner, storage: Storage) -> None:
    reads = change.reads
    if reads.predicate is None or not winner.adds:
        return
    if _is_ignored(change, winner):
        return
    candidates = [
        path
        for path, body in winner.adds.items()
        if (
            _resurrects(path, winner, storage)
            if path in winner.removes
            else body.get("dataChange", True)
        )
    ]
    if not candidates:
        return
    files = added_files(winner.metadata, winner.root, winner.actions)
    chosen = files.select(np.isin(np.array(files.paths.to_pylist()), candidates))
    matching = chosen.may_match(reads.predicate, reads.time_zone)
    if matching.any():
        paths = chosen.paths.filter(pa.array(matching)).to_pylist()
        raise _conflict(winner, "added rows that this change might be about", paths)


def _is_ignored(change: Change, winner: Winner) -> bool:
    """Return whether a winner's rows may be taken as added after our change."""
    is_blind = winner.info.get("isBlindAppend") is True
    # A change of the metadata, such as a new constraint, must hold for these rows too.
    may_ignore = is_blind and change.metadata is None
    return may_ignore and isolation_level(winner.metadata) == "WriteSerializable"


def _resurrects(path: str, winner: Winner, storage: Storage) -> bool:
    """Return whether deleted rows of a file are live again, as after a restore."""
    if winner.info.get("operation") in _ONLY_DELETE:
        return False
    before, after = (
        entry_vector(storage, path, side[path]) for side in (winner.removes, winner.adds)
    )
    return not before.issubset(after)


def _united(ours: VectorUpdate, winner: Winner, storage: Storage) -> VectorUpdate:
    """Return the union of our vector and the winner's, if both deleted different rows."""
    path, entry = ours.file.path, winner.adds[ours.file.path]
    base, theirs = (entry_vector(storage, path, each) for each in (ours.file.add, entry))
    mine = stored_vector(storage, path, ours.descriptor) if ours.vector is None else ours.vector
    if not base.issubset(theirs):
        raise _conflict(winner, "restored deleted rows in files that this change is about", [path])
    if not (theirs - base).isdisjoint(mine - base):
        raise _conflict(winner, "deleted rows that this change deletes too", [path])
    return VectorUpdate(FileEntry(path, entry), ours.rows, mine | theirs)


def _with_united(change: Change, united: Mapping[str, VectorUpdate], storage: Storage) -> Change:
    """Return the change with united vectors; files without live rows are removed instead."""
    updates = [united.get(each.file.path, each) for each in change.vector_updates]
    empty = [each for each in updates if each.cardinality == each.rows]
    for each in empty:
        require_row_count(storage, each.file.path, each.file.add, each.rows)
    if any(each.cardinality > each.rows for each in updates):
        raise AssertionError("a vector deletes rows that a file does not have")
    return replace(
        change,
        vector_updates=tuple(each for each in updates if each.cardinality < each.rows),
        removed=(*change.removed, *(each.file for each in empty)),
    )


def _conflict(
    winner: Winner,
    what: str,
    files: Sequence[str],
    hint: str = "nothing was changed; run the operation again, or allow more retries",
) -> ConflictError:
    by = winner.info.get("operation", "another writer")
    names = f": {', '.join(files[:3])}{', ...' if len(files) > 3 else ''}" if files else ""
    return ConflictError(
        f"version {winner.version} of {winner.root} ({by}) {what}{names}",
        version=winner.version,
        files=files,
        hint=hint,
    )
