"""VACUUM: files that no version within the retention needs are deleted for good.

    plan     the newest version: which files its log refers to        references
    list     the folder, or the commits: which files it does not      listing, lite
    commit   VACUUM START, with what will be deleted
    delete   in batches, after a look at the commits since the plan   deletion
    commit   VACUUM END, with what was deleted

A process that dies before the end leaves files that the next vacuum deletes. Deleted is what was
modified before the retention began and is referred to neither by a live file nor by a tombstone of
that time or later. Time travel to versions that were current since then keeps its files.

Memory: the live files of the snapshot, 8 bytes for each file to keep, 100 for each to delete.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.maintain.references import KeySet, references
from delvec.delta.maintain.retention import HOUR_MS, Retention, retention_of
from delvec.delta.maintain.vacuum.candidates import Candidates, folds_names
from delvec.delta.maintain.vacuum.deletion import Deletion, LaterReferences, delete_files
from delvec.delta.maintain.vacuum.lite import write_vacuumed_until
from delvec.delta.maintain.vacuum.report import VacuumReport
from delvec.delta.maintain.vacuum.search import search
from delvec.delta.schema.hidden_names import NameRules
from delvec.delta.write.change import Change
from delvec.delta.write.writable import require_writable
from delvec.errors import DelvecError
from delvec.report.figures import counted
from delvec.report.phases import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import RequestCounts

__all__ = ["VacuumOptions", "vacuum"]

_LOG: Final = logging.getLogger("delvec")


@dataclass(frozen=True)
class VacuumOptions:
    """What a caller asked for; see `DeltaTable.vacuum`."""

    retention_hours: float | None = None
    dry_run: bool = False
    lite: bool = False
    force: bool = False
    commit_metadata: str | None = None
    on_progress: Callable[[str, int, int], None] | None = None


def vacuum(
    opened: Callable[[], Snapshot], put: Callable[[Change], int], options: VacuumOptions
) -> VacuumReport:
    """Delete the files below a table that nobody within the retention needs.

    Args:
        opened: Returns the newest version.
        put: Commits a change that concerns no files; returns its version.
        options: What the caller asked for.

    Raises:
        InvalidArgumentError: The retention is too short, or a lite vacuum cannot tell what to do.
        UnsupportedFeatureError: The table has a feature that delvec does not write.
        FormatError: The log is damaged; nothing was deleted.
    """
    watch = Stopwatch()
    with watch.phase("plan"):
        snapshot = opened()
        requests = snapshot.storage.requests
        require_writable(snapshot, "vacuum")
        retention = retention_of(snapshot, options.retention_hours, force=options.force)
        named = (each.keys for each in references(snapshot, retention.before_ms))
        kept = KeySet(named, folds=folds_names(snapshot.storage))
    with watch.phase("list"):
        found, last = search(
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
        if last is not None and not done.failed:
            write_vacuumed_until(snapshot.storage, last)
    except BaseException:
        _end_after_failure(put, run)
        raise
    return run.report(done, removed, put(run.end(done)))


def _end_after_failure(put: Callable[[Change], int], run: _Run) -> None:
    """Commit that the vacuum failed; what went wrong is raised by the caller."""
    try:
        put(run.end(None))
    except DelvecError:
        _LOG.warning("the end of a vacuum of %s was not committed", run.snapshot.table)


def _remove_folders(snapshot: Snapshot, found: Candidates) -> int:
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
    found: Candidates
    watch: Stopwatch

    def start(self) -> Change:
        """Return the commit before the first file is deleted; names are those of delta-spark."""
        given = self.retention.given_ms
        specified = {} if given is None else {"specifiedRetentionMillis": given}
        parameters = {
            "retentionCheckEnabled": not self.options.force,
            "defaultRetentionMillis": self.retention.table_ms,
            **specified,
        }
        metrics = {
            "numFilesToDelete": self.found.files.num_rows,
            "sizeOfDataToDelete": self.found.bytes,
        }
        return self._change("VACUUM START", parameters, metrics)

    def end(self, done: Deletion | None) -> Change:
        """Return the commit after the last file; `done` is None if something else failed."""
        failed = done is None or bool(done.failed)
        metrics = {}
        if done is not None:
            metrics = {"numDeletedFiles": done.files, "numVacuumedDirectories": self.found.folders}
        return self._change("VACUUM END", {"status": "FAILED" if failed else "COMPLETED"}, metrics)

    def _change(
        self, operation: str, parameters: dict[str, Any], metrics: dict[str, int]
    ) -> Change:
        return Change(
            operation,
            parameters,
            metrics,
            data_change=False,
            user_metadata=self.options.commit_metadata,
        )

    def report(
        self, done: Deletion | None = None, folders: int = 0, version: int | None = None
    ) -> VacuumReport:
        """Return what was done, or in a dry run what would be."""
        gone = Deletion() if done is None else done
        before = datetime.fromtimestamp(self.retention.before_ms / 1000, tz=timezone.utc)
        return VacuumReport(
            self.snapshot.table,
            self.retention.length_ms / HOUR_MS,
            before,
            dry_run=self.options.dry_run,
            lite=self.options.lite,
            version=version,
            files=self.found.files,
            files_deleted=gone.files,
            bytes_deleted=gone.bytes,
            files_kept=self.found.files_kept,
            files_young=self.found.files_young,
            files_spared=gone.spared,
            files_failed=gone.failed,
            failures=tuple(gone.reasons),
            folders_removed=folders,
            requests=self.snapshot.storage.requests - self.requests,
            phases=dict(self.watch.seconds),
            notes=tuple(self._notes(gone)),
        )

    def _notes(self, done: Deletion) -> Iterator[str]:
        if self.found.inner_tables:
            folders = ", ".join(self.found.inner_tables[:3])
            yield f"left alone, since it is of another table: {folders}"
        if self.found.unaddressable:
            what = counted(self.found.unaddressable, "file")
            yield f"{what} with names that are no valid UTF-8, or have backslashes, were left"
        if done.failed:
            yield "files that were not deleted are deleted by the next vacuum"
