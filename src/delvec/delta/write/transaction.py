"""How every operation on a table runs: attempts, retries, phases, the commit, and the report.

The engine is passed in: Spark for operations on rows, none for those on metadata alone.
`WriteOptions` are the keywords of every call that changes a table.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

from delvec.delta.log.snapshot import Snapshot
from delvec.delta.write.after_commit import after_commit
from delvec.delta.write.change import AppTransaction, Base, Change, Operation, SourceRead
from delvec.delta.write.commit import Committed, commit
from delvec.delta.write.conflicts import validate_source_read
from delvec.delta.write.report import WriteReport
from delvec.errors import ConflictError, InvalidArgumentError
from delvec.report.format import format_count, outside_note
from delvec.report.rendering import Stopwatch
from delvec.storage import RequestCounts, Storage
from delvec.storage.listed_files import outside_of
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST_WAIT: Final = 2.0
_MAX_RETRIES: Final = 10


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
        return self.snapshot.storage

    def depend_on(self, reads: Iterable[SourceRead]) -> None:
        """Note what a source of rows has read of this very table."""
        self.sources += [validate_source_read(self.snapshot, read) for read in reads]

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Time a phase, and describe its jobs in the engine's user interface."""
        describe = self.engine.described(f"{self.what}: {name}")
        return self.spent.stopwatch.phase(name, describe)


@dataclass(frozen=True)
class Outcome:
    """What an attempt has prepared: a change, or None if there is nothing to do, and a report."""

    change: Change | None
    figures: dict[str, int] = field(default_factory=dict)  # fields of the report
    notes: tuple[str, ...] = ()


def run(
    engine: Engine,
    opened: Callable[[], Snapshot],
    operation: str,
    prepare: Callable[[Attempt], Outcome],
    options: CheckedOptions,
) -> WriteReport:
    """Prepare a change and commit it; after a conflict, again from the newest version."""
    spent: Spent | None = None
    for retry in range(options.max_retries + 1):
        start = time.perf_counter()
        snapshot = opened()
        spent = spent or Spent(snapshot.storage.requests)
        spent.stopwatch.add("plan", time.perf_counter() - start)
        if (done := _already_done(snapshot, operation, options)) is not None:
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
    with UncommittedFiles(storage) as uncommitted, engine.translate_errors(snapshot.table):
        what = f"delvec {operation} on {snapshot.table}"
        attempt = Attempt(engine, snapshot, options, uncommitted, spent, what)
        outcome = prepare(attempt)
        spent.scans += outcome.figures.get("scans", 0)
        change = outcome.change
        if change is None and options.transaction is not None:
            # The identifier is committed all the same, so that the application does not try again.
            change, options = Change(Operation(operation)), replace(options, commit_metadata=None)
        if change is None or options.dry_run:
            # Files that the plan had to write are removed.
            return _report(attempt, operation, outcome, change)
        reads = replace(change.operation.reads, sources=tuple(attempt.sources))
        shown = replace(_with_times(change.operation, spent), reads=reads)
        change = _with_options(replace(change, operation=shown), options)
        with attempt.phase("commit"):
            committed = commit(Base.of(snapshot), change, uncommitted)
            spent.attempts += committed.attempts
    with attempt.phase("checkpoint"):
        notes = after_commit(storage, committed.version, change.metadata or snapshot.metadata)
    notes = (*_left(change, committed.change), *notes)
    return _report(attempt, operation, outcome, committed.change, committed, notes)


def create(
    storage: Storage,
    change: Change,
    options: CheckedOptions | None = None,
    written: Iterable[str] = (),
) -> int | None:
    """Commit version 0 of a table; return it, None in a dry run. A failure removes `written`."""
    options = options or CheckedOptions()
    if change.protocol is None or change.metadata is None:
        raise AssertionError("a new table has both")
    if options.dry_run:
        return None
    with UncommittedFiles(storage) as uncommitted:
        uncommitted.add(*written)
        base = Base(storage, -1, change.protocol, change.metadata)
        return commit(base, _with_options(change, options), uncommitted).version


def _with_options(change: Change, options: CheckedOptions) -> Change:
    shown = replace(
        change.operation, transaction=options.transaction, user_metadata=options.commit_metadata
    )
    return replace(change, operation=shown)


def _left(planned: Change, done: Change) -> Iterator[str]:
    """Yield what became of files that other writers changed while their rows were moved."""
    if left := len(planned.rewrites) - len(done.rewrites):
        yield f"{format_count(left, 'new file')} given up: others changed the old ones meanwhile"
    if carried := sum(each.deleted is not None for each in done.rewrites):
        yield (
            f"rows of {format_count(carried, 'new file')} were deleted meanwhile, and have a vector"
        )


def _with_times(operation: Operation, spent: Spent) -> Operation:
    if operation.name not in ("DELETE", "UPDATE", "MERGE"):
        return operation
    seconds = {
        "executionTimeMs": sum(spent.stopwatch.seconds.values()),
        "scanTimeMs": spent.stopwatch.seconds.get("find", 0.0),
        "rewriteTimeMs": spent.stopwatch.seconds.get("write", 0.0),
    }
    times = {name: round(1000 * each) for name, each in seconds.items()}
    return replace(operation, metrics={**operation.metrics, **times})


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


class Engine(Protocol):
    """What an operation needs of the engine that it runs on."""

    def session(self, operation: str) -> SparkSession:
        """Return the session that reads and writes rows."""

    def translate_errors(self, table: str) -> AbstractContextManager[None]:
        """Raise failures of the engine in the block as errors of delvec that name the table."""

    def described(self, what: str) -> AbstractContextManager[None]:
        """Describe the jobs of the block in the engine's user interface."""


@dataclass(frozen=True)
class NoEngine:
    """No engine: enough for operations that commit metadata only."""

    def session(self, operation: str) -> SparkSession:
        raise InvalidArgumentError(
            f"{operation} needs a Spark session, and this table was opened without one",
            hint="pass a session to for_path",
        )

    def translate_errors(self, table: str) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def described(self, what: str) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()


class WriteOptions(TypedDict, total=False):
    """Keywords of all calls that change a table.

    Attributes:
        dry_run: Plan only: the report shows what the call would do.
        max_retries: How often to start again from the newest version after a conflict.
        commit_metadata: A string for the table's history.
        txn_app_id: The id of the writing application; with `txn_version`.
        txn_version: A number that grows with each commit of that application. If the table holds
            this one or a higher one already, nothing is written.
    """

    dry_run: bool
    max_retries: int
    commit_metadata: str | None
    txn_app_id: str | None
    txn_version: int | None


@dataclass(frozen=True)
class CheckedOptions:
    """The checked `WriteOptions` of a call, with defaults for those that it omits."""

    dry_run: bool = False
    max_retries: int = _MAX_RETRIES
    commit_metadata: str | None = None
    transaction: AppTransaction | None = None

    @classmethod
    def of(
        cls,
        *,
        dry_run: bool = False,
        max_retries: int = _MAX_RETRIES,
        commit_metadata: str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> CheckedOptions:
        if (txn_app_id is None) != (txn_version is None):
            raise InvalidArgumentError(
                "txn_app_id and txn_version go together",
                hint="the version is a number that grows with each commit of the application",
            )
        if max_retries < 0:
            raise InvalidArgumentError(f"max_retries is 0 or more, got {max_retries}")
        transaction = None
        if txn_app_id is not None and txn_version is not None:
            transaction = AppTransaction(txn_app_id, int(txn_version))
        return cls(dry_run, max_retries, commit_metadata, transaction)
