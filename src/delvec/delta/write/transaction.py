"""How every operation on a table runs: attempts, retries, phases, the commit, and the report.

The engine is passed in: Spark for operations on rows, none for those on metadata alone.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.write.after_commit import after_commit
from delvec.delta.write.base import Base
from delvec.delta.write.change import Change
from delvec.delta.write.commit import commit
from delvec.delta.write.report import WriteReport
from delvec.delta.write.source_reads import still_read
from delvec.errors import ConflictError
from delvec.report.figures import counted, outside_note
from delvec.report.phases import Stopwatch
from delvec.storage.listed_files import outside_of
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.change import SourceRead
    from delvec.delta.write.commit import Committed
    from delvec.delta.write.engine import Engine
    from delvec.delta.write.options import CheckedOptions
    from delvec.storage import RequestCounts, Storage

__all__ = ["Attempt", "Outcome", "run"]

_LONGEST_WAIT: Final = 2.0


@dataclass
class Spent:
    """What an operation has cost so far, attempts that ended in a conflict included."""

    before: RequestCounts
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    scans: int = 0
    attempts: int = 0


@dataclass
class Attempt:
    """One attempt at an operation, on one version of the table."""

    engine: Engine
    snapshot: Snapshot
    options: CheckedOptions
    uncommitted: UncommittedFiles
    spent: Spent
    what: str
    sources: list[SourceRead] = field(default_factory=list)

    @property
    def spark(self) -> SparkSession:
        """The session; raises if there is none, since only Spark reads and writes rows."""
        return self.engine.session(self.what)

    @property
    def storage(self) -> Storage:
        """The table."""
        return self.snapshot.storage

    def depend_on(self, reads: Iterable[SourceRead]) -> None:
        """Note what a source of rows has read of this very table.

        Raises:
            ConflictError: These rows have changed since.
        """
        self.sources += [still_read(self.snapshot, read) for read in reads]

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Time a phase, and describe its jobs in the engine's user interface."""
        describe = self.engine.described(f"{self.what}: {name}")
        return self.spent.stopwatch.phase(name, describe)


@dataclass(frozen=True)
class Outcome:
    """What an attempt has prepared.

    Attributes:
        change: What to commit; None if there is nothing to do.
        figures: Fields of the report.
        notes: Remarks for the report.
    """

    change: Change | None
    figures: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def run(
    engine: Engine,
    opened: Callable[[], Snapshot],
    operation: str,
    prepare: Callable[[Attempt], Outcome],
    options: CheckedOptions,
) -> WriteReport:
    """Prepare a change and commit it; after a conflict, again from the newest version.

    Args:
        engine: What reads and writes rows.
        opened: Returns the newest version.
        operation: The name of the operation in the history.
        prepare: Returns the change of a version; it may write data files, but commits nothing.
        options: The keywords of the call.

    Raises:
        ConflictError: Every attempt met a conflict, or the source was read from the table before
            its rows changed; nothing was changed.
    """
    spent: Spent | None = None
    for retry in range(options.max_retries + 1):
        start = time.perf_counter()
        snapshot = opened()
        spent = spent or Spent(snapshot.storage.requests)
        spent.stopwatch.add("plan", time.perf_counter() - start)
        done = _already_done(snapshot, operation, options)
        if done is not None:
            return done
        try:
            return _attempt(engine, snapshot, operation, prepare, options, spent)
        except ConflictError as error:
            spent.attempts += error.attempts
            if retry == options.max_retries or not error.retryable:
                if retry and error.retryable:
                    error.message += f" (after {options.max_retries} retries)"
                raise
            # Writers that retry at the same moment would only conflict again.
            time.sleep(random.uniform(0, min(_LONGEST_WAIT, 0.05 * 2**retry)))
    raise AssertionError("the last attempt returns or raises")


def _already_done(
    snapshot: Snapshot, operation: str, options: CheckedOptions
) -> WriteReport | None:
    ours = options.transaction
    if ours is None or snapshot.transactions.get(ours.app_id, -1) < ours.version:
        return None
    seen = snapshot.transactions[ours.app_id]
    note = f"transaction {ours.version} of {ours.app_id} is in already (the table has {seen})"
    return WriteReport(operation, snapshot.table, dry_run=options.dry_run, notes=(note,))


def _attempt(
    engine: Engine,
    snapshot: Snapshot,
    operation: str,
    prepare: Callable[[Attempt], Outcome],
    options: CheckedOptions,
    spent: Spent,
) -> WriteReport:
    storage = snapshot.storage
    with UncommittedFiles(storage) as uncommitted, engine.explained(snapshot.table):
        what = f"delvec {operation} on {snapshot.table}"
        attempt = Attempt(engine, snapshot, options, uncommitted, spent, what)
        outcome = prepare(attempt)
        spent.scans += outcome.figures.get("scans", 0)
        change = outcome.change
        if change is None and options.transaction is not None:
            # The identifier is committed all the same, so that the application does not try again.
            change = Change(operation, transaction=options.transaction)
        if change is None or options.dry_run:
            # Files that the plan had to write are removed.
            return _report(attempt, operation, outcome, change)
        reads = replace(change.reads, sources=tuple(attempt.sources))
        change = _with_times(replace(change, reads=reads), spent)
        with attempt.phase("commit"):
            committed = commit(Base.of(snapshot), change, uncommitted)
            spent.attempts += committed.attempts
    with attempt.phase("checkpoint"):
        notes = after_commit(storage, committed.version, change.metadata or snapshot.metadata)
    notes = (*_left(change, committed.change), *notes)
    return _report(attempt, operation, outcome, committed.change, committed, notes)


def _left(planned: Change, done: Change) -> Iterator[str]:
    """Yield what became of files that other writers changed while their rows were moved."""
    if left := len(planned.rewrites) - len(done.rewrites):
        yield f"{counted(left, 'new file')} given up: others changed the old ones meanwhile"
    if carried := sum(each.deleted is not None for each in done.rewrites):
        yield f"rows of {counted(carried, 'new file')} were deleted meanwhile, and have a vector"


def _with_times(change: Change, spent: Spent) -> Change:
    """Add the times of scan and rewrite to the metrics of the history."""
    if change.operation not in ("DELETE", "UPDATE", "MERGE"):
        return change
    seconds = {
        "executionTimeMs": sum(spent.stopwatch.seconds.values()),
        "scanTimeMs": spent.stopwatch.seconds.get("find", 0.0),
        "rewriteTimeMs": spent.stopwatch.seconds.get("write", 0.0),
    }
    times = {name: round(1000 * each) for name, each in seconds.items()}
    return replace(change, metrics={**change.metrics, **times})


def _report(
    attempt: Attempt,
    operation: str,
    outcome: Outcome,
    change: Change | None,
    committed: Committed | None = None,
    notes: tuple[str, ...] = (),
) -> WriteReport:
    spent = attempt.spent
    facts: dict[str, Any] = {**outcome.figures, "scans": spent.scans}
    if change is not None:
        updated = sum(each.file.descriptor is not None for each in change.vector_updates)
        vectors = len(change.all_vectors)
        facts |= {
            "files_added": len(change.new_files),
            "files_removed": len(change.gone_files),
            "vectors_added": vectors - updated,
            "vectors_updated": updated,
            "vectors_removed": sum(file.descriptor is not None for file in change.gone_files),
            "bytes_added": sum(int(body["size"]) for body in change.new_files),
            "bytes_removed": sum(int(file.add.get("size") or 0) for file in change.gone_files),
            "vector_bytes": sum(change.vector_files.values()),
            "vector_files": len(change.vector_files),
            "change_files": len(change.change_files),
        }
        gone = (each.path for each in change.gone_files)
        notes = (*notes, *outside_note(outside_of(attempt.snapshot.table, gone)))
    return WriteReport(
        operation,
        attempt.snapshot.table,
        committed.version if committed else None,
        dry_run=attempt.options.dry_run,
        requests=attempt.storage.requests - spent.before,
        phases=dict(spent.stopwatch.seconds),
        attempts=spent.attempts,
        reconciled=committed.reconciled if committed else 0,
        notes=(*outcome.notes, *notes),
        **facts,
    )
