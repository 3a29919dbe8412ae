"""A lock on a table, through the catalog's atomic commit, for work that only one should do.

The lock is a tag, `delvec-lock-<generation>`, and the property `delvec.lock` that names the
generation, the owner and the end of the lease. Taking the lock, renewing it and taking over that of
a dead owner are one and the same commit: it creates the tag of the next generation, which must not
be there, removes the one before, and writes the property. So of all who saw the same state one
succeeds, on REST catalogs as well, which compare refs but neither properties nor whole metadata.
A release only removes the tag: the property keeps the generation, so that the next is another.

Who waits writes a claim, a property of its own, `delvec.lock-claim.<token>`, with a generation
above all that it found. Claims go in this order, and a lock that is free is left to the first of
them, so that whoever takes it in a loop cannot starve others. A claim has a lease as the lock has.

What is assumed:

- The catalog's commit is atomic. That of a Hadoop catalog on a local disk is not, for several
  processes.
- Clocks differ by a tenth of the lease at most. A lock is taken over that long after its end, by
  the clock of whoever takes it; or when it was watched for a whole lease, by a clock that cannot be
  set, and was not renewed meanwhile, whatever other clocks say.
- The owner counts its own lease from before the commit, by a clock that cannot be set, so it knows
  that the lock may be lost before anybody can take it.

The lock saves work that would be lost to a conflict. What is committed must be right without it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import count, takewhile
from random import uniform
from threading import Event, Thread
from typing import Final
from uuid import uuid4

from py4j.protocol import Py4JError

from delvec import errors
from delvec.iceberg.client.catalog import LoadedTable, reload_table
from delvec.iceberg.client.failures import CommitStateUnknownError
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.commit.commit import Transaction, commit
from delvec.iceberg.commit.lock_state import (
    GENERATIONS,
    LEASES,
    LOCK_PROPERTY,
    LockState,
    lock_claims,
    lock_state,
    lock_tags,
    parse_state,
)
from delvec.report.format import escape_controls, format_count, nonzero
from delvec.report.hints import Wording, call, format_hint
from delvec.report.rendering import OperationReport, doc, documented, required

LEASE: Final = 300.0
"""Seconds for which a lock is taken or renewed, unless the caller says otherwise."""
_LOG: Final = logging.getLogger("delvec")
_ATTEMPTS: Final = 20  # commits of others in a row that are no loss of the lock
_LONGEST_PAUSE: Final = 2.0  # seconds between two looks at a lock that somebody has
_DAY_MS: Final = 24 * 3600 * 1000
_LONGEST_AGE: Final = 2**63 - 1
_RELEASE_PAUSES: Final = (0.2, 1.0)  # seconds before a release that failed is tried again
_UNRELEASED: Final[set[str]] = set()  # tokens of this process that nobody uses, of locks that stay


def next_state(metadata: TableMetadata, claim: LockState) -> LockState:
    """Return the lock after that which a table has or had, with a new lease."""
    last = parse_state(metadata, LOCK_PROPERTY)
    for number in count(0 if last is None else last.generation):
        state = replace(claim, generation=GENERATIONS[number % len(GENERATIONS)])
        if state.tag not in metadata.refs:  # somebody else's, of any kind
            return replace(state, expires_ms=int(time.time() * 1000) + claim.lease_ms)
    raise AssertionError("a table has fewer refs than there are generations")


@dataclass
class Held:
    """A lock that this process has, or had.

    Attributes:
        table: The name of the table.
        state: What was committed last; None if the table has no snapshot, and so no lock.
        ends: When the lease ends, by a clock that cannot be set.
        lost: Why this process has the lock no more; None as long as it has it.
    """

    table: str
    state: LockState | None = None
    ends: float = 0.0
    lost: str | None = None

    def check(self, metadata: TableMetadata | None = None) -> None:
        """Make sure that nobody else can have the lock now; costs nothing.

        Newer metadata of the table, if at hand, tell of a lost lock before the next renewal does.
        """
        if self.state is None:
            return
        found = self.state if metadata is None else lock_state(metadata)
        if self.lost is None:
            if found is None:
                self.lost = "somebody removed it"
            elif found.token != self.state.token:
                self.lost = f"{found.owner} has taken it over"
            elif time.monotonic() >= self.ends:
                self.lost = "its lease has ended, and it could not be renewed"
        if self.lost is not None:
            raise errors.LockedError(
                f"the lock of {self.table} for {self.state.operation} is lost: {self.lost}",
                hint="run it again",
            )


@contextmanager
def hold_lock(
    table: LoadedTable,
    operation: str,
    *,
    lease: float = LEASE,
    wait: float = 0.0,
    owner: str | None = None,
) -> Iterator[Held]:
    """Have the lock of a table during the block; a thread renews it.

        with hold_lock(table, "COMPACT", wait=60) as held:
            ...
            held.check()

    It takes one commit, and one more at the end and for each third of the lease; who has to wait
    needs one more. Each changes the table's metadata, but no snapshot. A table without snapshots
    has no lock.

    `operation` and `owner`, by default host and process, are shown to others. `lease` is the
    seconds after which others may take the lock over if it was not renewed, and `wait` those to
    wait for somebody else's lock.
    """
    if not LEASES[0] <= lease * 1000 <= LEASES[-1] or wait < 0:
        raise errors.InvalidArgumentError(
            f"the lock of {table.name} for {operation}: a lease is 1 second to a day and a wait is"
            f" not negative, got lease={lease!r} and wait={wait!r}",
            hint="lease=300, wait=60 wait a minute for a lock that is renewed for five",
        )
    name = owner or f"{socket.gethostname()}/{os.getpid()}"
    claim = LockState(0, name, operation, 0, int(lease * 1000), uuid4().hex)
    held = _acquire(table, claim, wait)
    if held.state is None:
        yield held
        return
    stop = Event()
    renewing = Thread(
        target=_renew, args=(table, held, held.state, stop), name="delvec-lock", daemon=True
    )
    renewing.start()
    try:
        yield held
    finally:
        stop.set()
        renewing.join()
        _release(table, claim)


def _acquire(table: LoadedTable, claim: LockState, wait: float) -> Held:
    """Return the lock when it is free or its owner is dead, and nobody waits for longer."""
    taker = _Taker(table, claim, time.monotonic() + wait)
    try:
        taker.run()
    except CommitStateUnknownError as error:
        _release(table, claim)
        _UNRELEASED.add(claim.token)  # a request that is late may still arrive
        raise CommitStateUnknownError(
            f"whether {table.name} was locked for {claim.operation} is not known: {error.message}",
            hint=format_hint(
                "nothing else was done: run it again; if it was locked, another process has to wait"
                f" {claim.lease_ms // 1000} seconds, or for {{}}",
                call("unlock", force=True),
            ),
        ) from error
    except BaseException as error:
        if taker.ends or not isinstance(error, Exception):  # interrupted: it may be locked
            _release(table, claim)
        raise
    return taker.held


@dataclass
class _Taker:
    """One who takes the lock, or waits for it behind those who came first."""

    table: LoadedTable
    claim: LockState
    deadline: float
    held: Held = field(init=False)
    ends: float = 0.0  # when its claim does; 0 as long as it has none
    _found: LockState | None = None
    _seen: dict[LockState, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = Held(str(self.table.name))

    def run(self) -> None:
        conflicts = 0
        while True:
            try:
                _advance(self.table, self.claim, self.held, self._require_turn)
            except errors.LockedError:  # noqa: PERF203
                if time.monotonic() >= self.deadline:
                    raise
                self._wait()
            except errors.ConflictError as error:
                # Soon again, unlike other commits: who waits longer than others never has its turn.
                conflicts += 1
                if conflicts == _ATTEMPTS or not error.retryable:
                    error.attempts = conflicts
                    raise
                time.sleep(uniform(0, 0.05 * conflicts))
            else:
                break
        if self._found is not None and self._found.token not in _UNRELEASED:
            owner = escape_controls(self._found.owner)
            _LOG.warning("took over the lock of %s: %s is dead", self.table.name, owner)

    def _require_turn(self, newest: LoadedTable) -> list[str]:
        """Refuse unless the lock is free and nobody is before; return claims that are done with."""
        self._found = lock_state(newest.metadata)
        if self._found is not None and not self._is_over(self._found):
            raise _locked(newest, self._found)
        claims = lock_claims(newest.metadata)
        for each in takewhile(lambda each: each.token != self.claim.token, claims):
            if not self._is_over(each):
                raise _locked(newest, each, is_waiting=True)
        return [
            each.claim_property
            for each in claims
            if each.token == self.claim.token or self._is_over(each)
        ]

    def _is_over(self, state: LockState) -> bool:
        """Whether a lease is over, by the time, or by how long it was watched without a change."""
        now = time.monotonic()
        watched = now - self._seen.setdefault(state, now)
        return is_over(state) or watched > state.lease_ms / 1000

    def _wait(self) -> None:
        """Wait a moment; a claim tells others of it until then, or is renewed as the lock is."""
        now, lease = time.monotonic(), self.claim.lease_ms / 1000
        if self.ends < self.deadline and now >= self.ends - lease * 2 / 3:
            self._put_claim(min(self.deadline, now + lease) - now)
        left = self.deadline - time.monotonic()
        time.sleep(max(0.0, min(left, uniform(0.1, min(_LONGEST_PAUSE, lease / 3)))))

    def _put_claim(self, seconds: float) -> None:
        lease, ends = max(LEASES[0], int(seconds * 1000)), time.monotonic() + seconds

        def change(newest: LoadedTable, transaction: Transaction) -> None:
            mine = parse_state(newest.metadata, self.claim.claim_property)
            last = parse_state(newest.metadata, LOCK_PROPERTY)
            before = [each.generation for each in (*lock_claims(newest.metadata), last) if each]
            number = max(before, default=0) % len(GENERATIONS)
            made = replace(
                self.claim,
                generation=mine.generation if mine else GENERATIONS[number],
                expires_ms=int(time.time() * 1000) + lease,
                lease_ms=lease,
            )
            transaction.set_properties({made.claim_property: json.dumps(asdict(made))})

        try:
            commit(reload_table(self.table), change, what=f"WAIT for {self.claim.operation}")
        except errors.ConflictError as error:  # the next look finds out whether it can be mended
            _LOG.debug("%s does not know yet who waits: %s", self.table.name, error)
        else:
            self.ends = ends


def is_over(state: LockState) -> bool:
    """Whether nobody uses a lock or waits by a claim, as far as clocks tell."""
    ended = time.time() * 1000 > state.expires_ms + state.lease_ms / 10
    return ended or state.token in _UNRELEASED


def _renew(table: LoadedTable, held: Held, claim: LockState, stop: Event) -> None:
    """Renew a lock at each third of its lease until it is given back or lost."""
    lease = claim.lease_ms / 1000
    pause = lease / 3

    def still_held(newest: LoadedTable) -> tuple[str, ...]:
        held.check(newest.metadata)
        return ()

    while not stop.wait(pause):
        pause = lease / 3
        try:
            _advance(table, claim, held, still_held)
        except (errors.DelvecError, Py4JError, OSError) as error:
            if held.lost is not None or time.monotonic() >= held.ends:
                _LOG.warning("the lock of %s was not renewed: %s", table.name, error)
                return
            # Mostly a commit of others. Tried again soon: there is time until the lease ends.
            _LOG.debug("the lock of %s is not renewed yet: %s", table.name, error)
            pause = uniform(0.1, 1.0) * lease / 12


def _advance(
    table: LoadedTable,
    claim: LockState,
    held: Held,
    require: Callable[[LoadedTable], Iterable[str]],
) -> None:
    """Commit the next generation of the lock, with a new lease, if `require` does not object.

    The properties that it returns are removed: claims that are done with.
    """
    state, ends = held.state, held.ends

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        nonlocal state, ends
        claims = require(newest)
        metadata = newest.metadata
        if not metadata.snapshots:
            return
        ends = time.monotonic() + claim.lease_ms / 1000
        state = next_state(metadata, claim)
        every = metadata.snapshots.values()
        tagged = metadata.head() or max(every, key=lambda each: each.timestamp_ms)
        # Without an age of its own, that which the table sets for all refs could remove it. With
        # this one, expiry of snapshots removes the tag of a dead owner one day.
        age = state.expires_ms + _DAY_MS - tagged.timestamp_ms
        age = min(max(age, _DAY_MS), _LONGEST_AGE)  # a snapshot may say any time
        manage = transaction.handle.manageSnapshots()
        for name in lock_tags(metadata):
            manage = manage.removeTag(name)
        manage = manage.createTag(state.tag, tagged.id)
        transaction.add(manage.setMaxRefAgeMs(state.tag, age))
        text = json.dumps(asdict(state))
        transaction.set_properties({**dict.fromkeys(claims), LOCK_PROPERTY: text})

    commit(reload_table(table), change, what=f"LOCK for {claim.operation}")
    held.state, held.ends = state, ends


def _release(table: LoadedTable, claim: LockState) -> None:
    """Remove the tag and the claim; if they cannot be removed they end with their lease.

    The next call of this process does not wait for that.
    """

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        state = lock_state(newest.metadata)
        if state is not None and state.token == claim.token:
            transaction.add(transaction.handle.manageSnapshots().removeTag(state.tag))
        if claim.claim_property in newest.metadata.properties:
            transaction.set_properties({claim.claim_property: None})

    _UNRELEASED.add(claim.token)
    for pause in (*_RELEASE_PAUSES, None):
        try:
            commit(reload_table(table), change, what="UNLOCK", attempts=_ATTEMPTS)
        except (errors.DelvecError, Py4JError, OSError) as error:  # noqa: PERF203
            if pause is None or not isinstance(error, (errors.EngineError, errors.StorageError)):
                # What was done under the lock is done: this must not hide its result, or its error.
                _LOG.warning("the lock of %s was not given back: %s", table.name, error)
                return
            time.sleep(pause)
        else:
            _UNRELEASED.discard(claim.token)
            return


@documented()
class UnlockReport(OperationReport):
    """What became of the lock of a table.

    >>> print(UnlockReport("lake.db.orders", "host/4711", "RESOLVE", claims_removed=1))
    UNLOCK of lake.db.orders: the lock of host/4711 for RESOLVE is removed
      removed claims  1
    """

    table: str = required("The name of the table.")
    owner: str | None = doc("Who had the lock; None if nobody had it.", None)
    operation: str | None = doc("What for.", None)
    expires_ms: int | None = doc(
        "When its lease ends or ended, by its owner's clock, in milliseconds since 1970.", None
    )
    claims_removed: int = doc("Claims of those who waited for it, and were removed too.", 0)
    dry_run: bool = doc("Whether nothing was written.", False)

    def _headline(self) -> str:
        if self.owner is None:
            return f"UNLOCK of {self.table}: it is not locked"
        done = "would be removed" if self.dry_run else "is removed"
        return f"UNLOCK of {self.table}: the lock of {self.owner} for {self.operation} {done}"

    def _facts(self) -> dict[str, str]:
        return {"removed claims": nonzero(self.claims_removed)}


def unlock(table: LoadedTable, *, force: bool = False, dry_run: bool = False) -> UnlockReport:
    """Remove a lock and claims whose leases are over, or by force whoever has them."""
    report = UnlockReport(str(table.name), dry_run=dry_run)

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        nonlocal report
        state = lock_state(newest.metadata)
        if state is not None:
            if not force and not is_over(state):
                raise _locked(newest, state)
            transaction.add(transaction.handle.manageSnapshots().removeTag(state.tag))
            report = replace(
                report, owner=state.owner, operation=state.operation, expires_ms=state.expires_ms
            )
        claims = [each for each in lock_claims(newest.metadata) if force or is_over(each)]
        transaction.set_properties({each.claim_property: None for each in claims})
        report = replace(report, claims_removed=len(claims))

    commit(table, change, what="UNLOCK", attempts=_ATTEMPTS, dry_run=dry_run)
    return report


def _locked(
    table: LoadedTable, state: LockState, *, is_waiting: bool = False
) -> errors.LockedError:
    until = f"{state.expires:%Y-%m-%d %H:%M:%S} UTC"
    seconds = format_count(state.lease_ms // 1000, "second")
    told = f"is locked by {state.owner} for {state.operation}, until {until} if not renewed"
    if is_waiting:
        told = f"is to be locked next by {state.owner} for {state.operation}, which waits for it"
    return errors.LockedError(
        f"{table.name} {told}",
        owner=state.owner,
        operation=state.operation,
        expires=state.expires,
        hint=format_hint(
            f"wait for it: {{}}; if its owner is dead, that ends by itself, after {seconds} of"
            " waiting at most, or now by {}",
            Wording("wait=60", "--wait 60s"),
            call("unlock", force=True),
        ),
    )
