"""Conflicts of a change with a concurrent commit, the winner, that took the next version.

    the winner                                   our change
    changed protocol or metadata, or committed   conflict
      a transaction of our application
    removed or rewrote a file that we change     conflict
    deleted rows of a file that we change        its vector and ours are united if they delete
                                                 different rows; else conflict
    changed a file whose rows we move            see `rebase_rewrite`
    added rows that our predicate may match      conflict, unless it is a blind append, the table
                                                 is WriteSerializable and we do not alter it
    changed a file that we read as a whole       conflict (see `ReadSet.row_wise`)
    changed rows that our source, which reads    conflict, with the same exception for blind appends
      the table itself, might have read
    took the version that we were made for       conflict (see `ReadSet.version`)
    anything else                                none

Positions in a file never change, so two sets of deleted rows of one file can be united, whoever
wrote them. After a conflict the operation starts again from the newest version.

Where our change moves rows of a file to a new one:

    the winner                                our rewrite of the file
    deleted rows of it                        these rows are deleted in the new file too, if it is
                                              known where they went
    removed it, made deleted rows live again  given up: the old files stay, the new one is deleted
      or wrote a new entry for it

The log does not know the order of rows in a file. So it is the rewriter that tells where they went,
and it may say that it does not know.

A source that reads the table which it is written to is read at some version, and the operation
starts from the newest one, in each attempt again. If rows changed between the two, writing would
undo that change: a lost update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.actions import JsonActions
from delvec.delta.log.file_set import FileEntry, FileSet
from delvec.delta.log.history import read_commit_info
from delvec.delta.log.paths import canonicalize_paths
from delvec.delta.log.replay import read_added_files, read_log_file
from delvec.delta.log.segment import list_commits
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.footer_statistics import require_row_count
from delvec.delta.read.vectors import entry_vector, load_vector
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.skipping.clustering import DOMAIN
from delvec.delta.skipping.predicate import Predicate
from delvec.delta.write.change import Change, PlainListing, Rewrite, SourceRead, VectorUpdate
from delvec.errors import ConflictError
from delvec.storage import Storage
from delvec.storage.backend import is_absolute
from delvec.storage.listed_files import full_name, local_path, store_of
from delvec.vector import Bitmap

READ_AGAIN: Final = (
    "nothing was changed; read the table again for the source, and repeat the operation (a source"
    " that names its version, as to_df(version=3), is taken as it is)"
)
# Operations whose vectors only grow: they make no deleted row live again.
_ONLY_DELETE: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


def rebase_rewrite(change: Change, winner: Winner, storage: Storage) -> tuple[Change, int]:
    """Return a change whose rewrites know of a winner, and of how many files it deleted rows."""
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


@dataclass(frozen=True)
class Winner:
    """A commit of another writer after the version that our change was made from."""

    version: int
    root: str
    metadata: Metadata
    actions: JsonActions

    @cached_property
    def others(self) -> list[dict[str, Any]]:
        return list(self.actions.others())

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """Its commitInfo; empty without one."""
        return read_commit_info(self.actions)

    @cached_property
    def adds(self) -> dict[str, Mapping[str, Any]]:
        return self._bodies("add")

    @cached_property
    def removes(self) -> dict[str, Mapping[str, Any]]:
        return self._bodies("remove")

    def _bodies(self, kind: str) -> dict[str, Mapping[str, Any]]:
        bodies = [action[kind] for action in self.actions.all_actions() if action.get(kind)]
        return dict(zip(paths_of(bodies, self.root), bodies, strict=True))

    def has(self, kind: str) -> bool:
        """Return whether it has an action of a kind, other than adds and removes."""
        return any(action.get(kind) is not None for action in self.others)


def paths_of(bodies: Iterable[Mapping[str, Any]], root: str) -> list[str]:
    paths = pa.array([body["path"] for body in bodies], pa.string())
    found: list[str] = canonicalize_paths(paths, root).to_pylist()
    return found


def isolation_level(metadata: Metadata) -> str:
    """Return the isolation level of a table; Delta's default is the stricter one."""
    return metadata.configuration.get(Property.ISOLATION_LEVEL, "Serializable")


def rebase(change: Change, winner: Winner, storage: Storage) -> tuple[Change, int]:
    """Return the change on top of a winner, and the number of vectors that were united."""
    for read in change.operation.reads.sources:
        # A source without a fixed version may have read the rows of a blind append already.
        if read.files is None or not _is_ignored(change, winner):
            require_same_rows(winner, read)
    _check_table(change, winner)
    change, carried = rebase_rewrite(change, winner, storage)
    updates = {each.file.path: each for each in change.vector_updates}
    removed = {each.path for each in change.removed}
    gone = sorted((set(updates) | removed) & set(winner.removes))
    lost = [path for path in gone if path in removed or path not in winner.adds]
    if lost:
        raise _conflict(winner, "removed or rewrote files that this change is about", lost)
    again = sorted((set(updates) | removed) & (set(winner.adds) - set(winner.removes)))
    if again:  # as when row tracking assigns ids to existing files
        raise _conflict(winner, "wrote new entries for files that this change is about", again)
    ours = set(paths_of((*change.added, *change.re_added), winner.root))
    if both := sorted(ours & (set(winner.adds) | set(winner.removes))):
        raise _conflict(winner, "wrote entries of files that this change enters too", both)
    reads = change.operation.reads
    if not reads.row_wise and (touched := reads.files & set(winner.removes)):
        raise _conflict(winner, "changed files whose rows this change depends on", sorted(touched))
    _check_new_rows(change, winner, storage)
    united = {path: _united(updates[path], winner, storage) for path in gone}
    return _with_united(change, united, storage), len(united) + carried


def require_same_rows(winner: Winner, read: SourceRead) -> None:
    """Refuse a commit that changed rows after a source has read them."""
    before, after = (
        {path for path, body in side.items() if body.get("dataChange", True)}
        for side in (winner.removes, winner.adds)
    )
    changed = before | after
    if changed and read.files is not None and not winner.has("metaData"):
        added = read_added_files(winner.metadata, winner.root, winner.actions)
        rows = read.predicate(), read.time_zone
        changed = {*_matching(added, after, *rows), *_matching(read.files, before, *rows)}
    if changed:
        what = f"changed rows after the source of this operation had read version {read.version}"
        error = _conflict(winner, what, sorted(changed), READ_AGAIN)
        error.retryable = not read.is_fixed
        raise error


def _matching(files: FileSet, paths: Iterable[str], predicate: Predicate, zone: str) -> list[str]:
    """Return those of some files that may have rows of a predicate, by their statistics."""
    chosen = files.select(np.isin(np.array(files.paths.to_pylist()), list(paths)))
    found: list[str] = chosen.paths.filter(pa.array(chosen.may_match(predicate, zone))).to_pylist()
    return found


def _check_table(change: Change, winner: Winner) -> None:
    if change.operation.reads.version:
        raise _conflict(winner, "took the version that this change was made for", ())
    for kind, what in (("protocol", "protocol"), ("metaData", "metadata")):
        if winner.has(kind):
            raise _conflict(winner, f"changed the {what} of the table", ())
    if (change.metadata is not None or DOMAIN in change.domains) and any(
        (action.get("domainMetadata") or {}).get("domain") == DOMAIN for action in winner.others
    ):
        raise _conflict(winner, "changed the columns by which the table is clustered", ())
    if change.protocol is not None and not change.protocol.has_vectors:
        vectored = sorted(path for path, body in winner.adds.items() if body.get("deletionVector"))
        if vectored:
            raise _conflict(
                winner, "gave vectors to files of a table that is to have none", vectored
            )
    ours = change.operation.transaction
    if ours is not None and any(
        (action.get("txn") or {}).get("appId") == ours.app_id for action in winner.others
    ):
        raise _conflict(winner, f"committed a transaction of {ours.app_id} too", ())


def _check_new_rows(change: Change, winner: Winner, storage: Storage) -> None:
    reads = change.operation.reads
    if reads.predicate is None or not winner.adds or _is_ignored(change, winner):
        return
    candidates = [path for path in winner.adds if _adds_rows(path, winner, storage)]
    if not candidates:
        return
    added = read_added_files(winner.metadata, winner.root, winner.actions)
    if found := _matching(added, candidates, reads.predicate, reads.time_zone):
        raise _conflict(winner, "added rows that this change might be about", found)


def _is_ignored(change: Change, winner: Winner) -> bool:
    """Return whether a winner's rows may be taken as added after our change."""
    is_blind = winner.info.get("isBlindAppend") is True
    # A change of the metadata, such as a new constraint, must hold for these rows too.
    may_ignore = is_blind and change.metadata is None
    return may_ignore and isolation_level(winner.metadata) == "WriteSerializable"


def _adds_rows(path: str, winner: Winner, storage: Storage) -> bool:
    """Return whether a file brings rows: new ones, or deleted ones again, as after a restore."""
    if path not in winner.removes:
        return bool(winner.adds[path].get("dataChange", True))
    if winner.info.get("operation") in _ONLY_DELETE:
        return False
    sides = winner.removes, winner.adds
    before, after = (entry_vector(storage, path, side[path]) for side in sides)
    return not before.issubset(after)


def _united(ours: VectorUpdate, winner: Winner, storage: Storage) -> VectorUpdate:
    """Return the union of our vector and the winner's, if both deleted different rows."""
    path, entry = ours.file.path, winner.adds[ours.file.path]
    base, theirs = (entry_vector(storage, path, each) for each in (ours.file.add, entry))
    mine = load_vector(storage, path, ours.descriptor) if ours.vector is None else ours.vector
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


def validate_source_read(snapshot: Snapshot, read: SourceRead) -> SourceRead:
    """Return what a source has read, if its rows are still those of a version.

    Reads the commits in between; of a source that lists files by itself, compares all files of the
    table. What is returned is to be compared with commits after this version.
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
        actions = read_log_file(storage, file.key)
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
            canonicalize_paths(pc.struct_field(piece, "path"), snapshot.table).to_pylist(),
            listing.table,
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
