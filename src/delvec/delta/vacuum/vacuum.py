"""VACUUM: files that no version within the retention needs are deleted for good.

    plan     the newest version: which files its log refers to        references
    list     the folder, or the commits: which files it does not      candidates
    commit   VACUUM START, with what will be deleted
    delete   in batches, after a look at the commits since the plan
    commit   VACUUM END, with what was deleted

A process that dies before the end leaves files that the next vacuum deletes. Deleted is what was
modified before the retention began and is referred to neither by a live file nor by a tombstone of
that time or later. Time travel to versions that were current since then keeps its files.

Files that a commit since the plan refers to again, as RESTORE does, are spared: these commits are
read before each wave of deletes. A commit that lands between that look and the delete, some seconds
at most, cannot be excluded, with any engine: no store deletes on a condition on another object.

Memory: the live files of the snapshot, 8 bytes for each file to keep, 100 for each to delete.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.paths import NameRules
from delvec.delta.log.replay import read_added_files, read_log_files
from delvec.delta.log.segment import list_commits
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.vacuum import candidates, references
from delvec.delta.vacuum.retention import HOUR_MS, Retention, retention_of
from delvec.delta.write.change import Change, Operation
from delvec.delta.write.report import format_requests
from delvec.delta.write.writable import require_writable
from delvec.errors import ConflictError, DelvecError, StorageError
from delvec.report.format import format_count, format_counts, format_list, format_size
from delvec.report.rendering import OperationReport, Stopwatch, doc, documented, required
from delvec.storage import Storage
from delvec.storage.backend import RequestCounts
from delvec.storage.listed_files import FILES
from delvec.storage.parallel import gather

_BATCH: Final = 1000  # as many as S3 deletes in a request
_WAVE: Final = 16
_REASONS: Final = 20
_LOG: Final = logging.getLogger("delvec")


@documented(eq=False)
class VacuumReport(OperationReport):
    """What a vacuum deleted, or would delete.

    >>> print(VacuumReport("/lake/orders", 168.0, version=12, files_deleted=3, bytes_deleted=4096))
    VACUUM of /lake/orders: version 12, 3 files (4.0 KiB) deleted
      retention  168 hours
    """

    _has_shares: ClassVar = True

    table: str = required("Where the table is.")
    retention_hours: float = required("Files removed or modified within so many hours stay.")
    before: datetime | None = doc("The time that is so long ago.", None)
    dry_run: bool = doc("Whether nothing was deleted and nothing was committed.", False)
    lite: bool = doc("Whether the commits told what to delete; else the folder was listed.", False)
    version: int | None = doc("The version of the commit VACUUM END; None in a dry run.", None)
    files: pa.Table = doc(
        "The files that were chosen: `path` below the table, `bytes` and `modified`.",
        FILES.empty_table,
    )
    files_deleted: int = doc("Files that were deleted.", 0)
    bytes_deleted: int = doc("Their size.", 0)
    files_kept: int = doc("Files that the log refers to, of those that were looked at.", 0)
    files_young: int = doc("Files that it does not refer to, modified within the retention.", 0)
    files_spared: int = doc("Chosen files that a concurrent commit refers to again.", 0)
    files_failed: int = doc("Files that the store did not delete.", 0)
    failures: tuple[str, ...] = doc("Why not, for the first of them.", ())
    folders_removed: int = doc("Empty folders that were removed.", 0)
    requests: RequestCounts = doc("Requests to the store.", RequestCounts)

    @property
    def bytes(self) -> int:
        """The size of the chosen files."""
        return int(pc.sum(self.files["bytes"], min_count=0).as_py())

    @property
    def kinds(self) -> dict[str, int]:
        """How many files of each kind were chosen, most first."""
        counts: Counter[str] = Counter()
        for chunk in self.files["path"].chunks:
            counts.update(map(candidates.kind_of, chunk.to_pylist()))
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs, with the number of files instead of the files."""
        before = None if self.before is None else self.before.isoformat(timespec="milliseconds")
        found = {**super().to_json(), "files": self.files.num_rows, "before": before}
        return {**found, "bytes": self.bytes, "kinds": self.kinds}

    def _headline(self) -> str:
        name = "VACUUM LITE" if self.lite else "VACUUM"
        if self.dry_run:
            chosen = f"{format_count(self.files.num_rows, 'file')} ({format_size(self.bytes)})"
            return f"{name} of {self.table}: dry run, {chosen} would be deleted"
        version = "" if self.version is None else f"version {self.version:,}, "
        gone = f"{format_count(self.files_deleted, 'file')} ({format_size(self.bytes_deleted)})"
        failed = f", {self.files_failed:,} NOT deleted" if self.files_failed else ""
        return f"{name} of {self.table}: {version}{gone} deleted{failed}"

    def _facts(self) -> dict[str, str]:
        before = f", since {self.before:%Y-%m-%d %H:%M:%S} UTC" if self.before else ""
        left = {
            "referred to": self.files_kept,
            "within the retention": self.files_young,
            "referred to again": self.files_spared,
        }
        return {
            "retention": f"{self.retention_hours:,g} hours{before}",
            "files": format_counts(self.kinds),
            "left": format_list(**left),
            "folders": self._counts("folders", "removed"),
            "requests": format_requests(self.requests),
        }

    def _details(self) -> Iterator[str]:
        return (f"not deleted: {reason}" for reason in self.failures)


@dataclass
class Deletion:
    """What was deleted, and what was not; fields of the report."""

    files_deleted: int = 0
    bytes_deleted: int = 0
    files_spared: int = 0
    files_failed: int = 0
    failures: tuple[str, ...] = ()


class LaterReferences:
    """The files that commits after a version refer to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._storage, self._metadata = snapshot.storage, snapshot.metadata
        self._version = snapshot.version
        self._keys: set[str] = set()
        #: How a key is spelled in the set.
        folds = candidates.folds_names(snapshot.storage)
        self.name: Callable[[str], str] = references.folded if folds else str

    def refreshed(self) -> set[str]:
        """Read the commits since the last call; return the files that any of them names."""
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
            added = read_added_files(self._metadata, root, actions)
            named = [references.keys_below(added.paths, root)]
            named += [references.vector_keys(added.vectors, root)]
            # New tombstones protect files that older versions need, such as those of vectors.
            named += [each.keys for each in references.commit_references(actions, root)]
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
    """
    done = Deletion()
    for start in range(0, files.num_rows, _BATCH * _WAVE):
        wave = files.slice(start, _BATCH * _WAVE)
        pairs = list(zip(wave["path"].to_pylist(), wave["bytes"].to_pylist(), strict=True))
        spared = later.refreshed()
        wanted = [pair for pair in pairs if later.name(pair[0]) not in spared]
        done.files_spared += len(pairs) - len(wanted)
        batches = [wanted[at : at + _BATCH] for at in range(0, len(wanted), _BATCH)]
        failures = gather(lambda batch: _delete(storage, batch), batches)
        failed = {path: why for each in failures for path, why in each.items()}
        done.files_deleted += len(wanted) - len(failed)
        done.bytes_deleted += sum(size for path, size in wanted if path not in failed)
        done.files_failed += len(failed)
        done.failures = (*done.failures, *failed.values())[:_REASONS]
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


@dataclass(frozen=True)
class VacuumOptions:
    """What a caller asked for; see `DeltaTable.vacuum`."""

    retention_hours: float | None = None
    dry_run: bool = False
    lite: bool = False
    force: bool = False
    on_progress: Callable[[str, int, int], None] | None = None


def vacuum(
    opened: Callable[[], Snapshot], put: Callable[[Change], int], options: VacuumOptions
) -> VacuumReport:
    watch = Stopwatch()
    with watch.phase("plan"):
        snapshot = opened()
        requests = snapshot.storage.requests
        require_writable(snapshot, "vacuum")
        retention = retention_of(snapshot, options.retention_hours, force=options.force)
        named = (each.keys for each in references.references(snapshot, retention.before_ms))
        kept = references.KeySet(named, folds=candidates.folds_names(snapshot.storage))
    with watch.phase("list"):
        found, last = candidates.search(
            snapshot, kept, retention, lite=options.lite, on_progress=options.on_progress
        )
    run = _Run(snapshot, retention, options, requests, found, watch)
    if options.dry_run:
        return run.report()
    put(run.start())
    try:
        with watch.phase("delete"):
            later = LaterReferences(snapshot)
            done = delete_files(snapshot.storage, found.files, later, options.on_progress)
            removed = 0 if options.lite else _remove_folders(snapshot, found)
        if last is not None and not done.files_failed:
            try:  # without it, the next `lite` vacuum begins where this one did
                candidates.write_vacuumed_until(snapshot.storage, last)
            except StorageError as error:
                _LOG.warning("a vacuum deleted its files, but its mark was not written: %s", error)
    except BaseException:
        try:  # what went wrong is raised, not that the end was not committed
            put(run.end(None))
        except DelvecError:
            _LOG.warning("the end of a vacuum of %s was not committed", run.snapshot.table)
        raise
    return run.report(done, removed, put(run.end(done)))


def _remove_folders(snapshot: Snapshot, found: candidates.Candidates) -> int:
    rules = NameRules.of(snapshot.metadata)
    inner = tuple(f"{folder}/" for folder in found.inner_tables)

    def is_kept(folder: str) -> bool:
        return rules.is_hidden(folder) or f"{folder}/".startswith(inner)

    return len(snapshot.storage.remove_empty_folders(is_kept))


@dataclass(frozen=True)
class _Run:
    """A vacuum that has found what to delete."""

    snapshot: Snapshot
    retention: Retention
    options: VacuumOptions
    requests: RequestCounts
    found: candidates.Candidates
    watch: Stopwatch

    def start(self) -> Change:
        """Return the commit before the first file is deleted; names are those of delta-spark."""
        given = self.retention.given_ms
        parameters = {
            "retentionCheckEnabled": not self.options.force,
            "defaultRetentionMillis": self.retention.table_ms,
            **({} if given is None else {"specifiedRetentionMillis": given}),
        }
        metrics = {
            "numFilesToDelete": self.found.files.num_rows,
            "sizeOfDataToDelete": self.found.bytes,
        }
        return Change(Operation("VACUUM START", parameters, metrics), data_change=False)

    def end(self, done: Deletion | None) -> Change:
        """Return the commit after the last file; `done` is None if something else failed."""
        metrics, status = {}, "FAILED"
        if done is not None:
            folders = self.found.folders
            metrics = {"numDeletedFiles": done.files_deleted, "numVacuumedDirectories": folders}
            status = "FAILED" if done.files_failed else "COMPLETED"
        return Change(Operation("VACUUM END", {"status": status}, metrics), data_change=False)

    def report(
        self, done: Deletion | None = None, folders: int = 0, version: int | None = None
    ) -> VacuumReport:
        done = done or Deletion()
        before = datetime.fromtimestamp(self.retention.before_ms / 1000, tz=timezone.utc)
        return VacuumReport(
            self.snapshot.table,
            self.retention.length_ms / HOUR_MS,
            before,
            dry_run=self.options.dry_run,
            lite=self.options.lite,
            version=version,
            files=self.found.files,
            files_kept=self.found.files_kept,
            files_young=self.found.files_young,
            folders_removed=folders,
            requests=self.snapshot.storage.requests - self.requests,
            phases=dict(self.watch.seconds),
            notes=tuple(self._notes(done)),
            **vars(done),
        )

    def _notes(self, done: Deletion) -> Iterator[str]:
        if self.found.inner_tables:
            folders = ", ".join(self.found.inner_tables[:3])
            yield f"left alone, since it is of another table: {folders}"
        if self.found.unaddressable:
            what = format_count(self.found.unaddressable, "file")
            yield f"{what} with names that are no valid UTF-8, or have backslashes, were left"
        if done.files_failed:
            yield "files that were not deleted are deleted by the next vacuum"
