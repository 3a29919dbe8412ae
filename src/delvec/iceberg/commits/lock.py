"""A lock on a table, through the catalog's atomic commit, for work that only one should do.

The lock is a tag, `delvec-lock-<generation>`, and the property `delvec.lock` that names the
generation, the owner and the end of the lease. Taking the lock, renewing it and taking over that of
a dead owner are one and the same commit: it creates the tag of the next generation, which must not
be there, removes the one before, and writes the property. So of all who saw the same state one
succeeds, on REST catalogs as well, which compare refs but neither properties nor whole metadata.
A release only removes the tag: the property keeps the generation, and none is used again.

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

import logging
import os
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import uniform
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError

from delvec.errors import ConflictError, DelvecError, InvalidArgumentError, LockedError
from delvec.iceberg.client.catalog import reload_table
from delvec.iceberg.commits.commit import change_properties
from delvec.iceberg.commits.lock_state import (
    CLOCK,
    LOCK_PROPERTY,
    LONGEST_LEASE,
    Clock,
    LeaseWatch,
    LockState,
    lock_state,
    lock_tags,
    next_generation,
)
from delvec.iceberg.commits.ref_commit import commit_exactly
from delvec.report.figures import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["Held", "LockState", "lock_state", "locked"]

_LOG: Final = logging.getLogger("delvec")
_ATTEMPTS: Final = 20  # commits of others in a row that are no loss of the lock
_LONGEST_PAUSE: Final = 2.0  # seconds between two looks at a lock that somebody has
_SHORTEST_LEASE: Final = 1.0
_DAY_MS: Final = 24 * 3600 * 1000
_LONGEST_AGE: Final = 2**63 - 1


@dataclass
class Held:
    """A lock that this process has, or had.

    Attributes:
        table: The name of the table.
        state: What was committed last; None if the table has no snapshot, and so no lock.
        ends: When the lease ends, by the ticks of the clock.
        lost: Why this process has the lock no more; None as long as it has it.
        clock: The time.
    """

    table: str
    state: LockState | None = None
    ends: float = 0.0
    lost: str | None = None
    clock: Clock = field(default=CLOCK, repr=False, compare=False)

    def check(self, metadata: TableMetadata | None = None) -> None:
        """Make sure that nobody else can have the lock now; costs nothing.

        Args:
            metadata: Newer metadata of the table, if they are at hand: they tell of a lost lock
                before the next renewal does.

        Raises:
            LockedError: The lock was taken over, or could not be renewed in time.
        """
        if metadata is not None:
            self.look(metadata)
        if self.state is None:
            return
        if self.lost is None and self.clock.ticks() >= self.ends:
            self.lost = "its lease has ended, and it could not be renewed"
        if self.lost is not None:
            raise LockedError(
                f"the lock of {self.table} for {self.state.operation} is lost: {self.lost}",
                hint="run it again",
            )

    def look(self, metadata: TableMetadata) -> None:
        """Find out from metadata, as new as the last commit of the lock, whether it is lost."""
        if self.state is None or self.lost is not None:
            return
        found = lock_state(metadata)
        if found is None:
            self.lost = "somebody removed it"
        elif found.token != self.state.token:
            self.lost = f"{found.owner} has taken it over"


@contextmanager
def locked(
    table: LoadedTable,
    operation: str,
    *,
    lease: float = 300.0,
    wait: float = 0.0,
    owner: str | None = None,
    clock: Clock = CLOCK,
) -> Iterator[Held]:
    """Have the lock of a table during the block; a thread renews it.

        with locked(table, "COMPACT", wait=60) as held:
            ...
            held.check()

    It takes one commit, and one more at the end and for each third of the lease; each changes the
    table's metadata, but no snapshot. A table without snapshots has no lock.

    Args:
        table: The table; its newest metadata are loaded.
        operation: What it is for, to be shown to others.
        lease: Seconds after which others may take the lock over if it was not renewed.
        wait: Seconds to wait for somebody else's lock.
        owner: Who has it, to be shown to others; host and process by default.
        clock: The time.

    Raises:
        LockedError: Somebody else has the lock.
        ConflictError: Others committed to the table at the same time, again and again.
        InvalidArgumentError: The lease is shorter than a second or longer than a day, or the wait
            is negative.
        PlanError: Somebody has used up the generations of the lock.
    """
    if not _SHORTEST_LEASE <= lease <= LONGEST_LEASE or wait < 0:
        raise InvalidArgumentError(
            f"the lock of {table.name} for {operation}: a lease is {_SHORTEST_LEASE:g} second to a"
            f" day and a wait is not negative, got lease={lease!r} and wait={wait!r}",
            hint="lease=300, wait=60 wait a minute for a lock that is renewed for five",
        )
    name = owner or f"{socket.gethostname()}/{os.getpid()}"
    claim = LockState(0, name, operation, 0, int(lease * 1000), uuid4().hex)
    held = _taken(table, claim, wait, clock)
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
        _release(table, held)


def _taken(table: LoadedTable, claim: LockState, wait: float, clock: Clock = CLOCK) -> Held:
    """Return the lock when it is free or its owner is dead."""
    deadline = clock.ticks() + wait
    watched = LeaseWatch(clock)
    conflicts = 0
    while True:
        newest = reload_table(table)
        found = lock_state(newest.metadata)
        if not newest.metadata.snapshots:
            return Held(str(table.name), clock=clock)
        if found is not None and not watched.is_over(found):
            left = deadline - clock.ticks()
            if left <= 0:
                raise _locked(newest, found)
            clock.sleep(min(left, uniform(0.1, _LONGEST_PAUSE)))
            continue
        begin = clock.ticks()
        try:
            state = _advanced(newest, claim, clock)
        except ConflictError as error:
            # Somebody else has the lock now, or has committed something else.
            conflicts += 1
            if conflicts == _ATTEMPTS:
                error.attempts = conflicts
                raise
            clock.sleep(uniform(0, 0.05 * conflicts))
            continue
        if found is not None:
            _LOG.warning("took over the lock of %s: %s is dead", table.name, visible(found.owner))
        return Held(str(table.name), state, begin + claim.lease_ms / 1000, clock=clock)


def _renew(table: LoadedTable, held: Held, state: LockState, stop: Event) -> None:
    """Renew a lock at each third of its lease until it is given back or lost."""
    clock, lease = held.clock, state.lease_ms / 1000
    pause = lease / 3
    while not clock.wait(stop, pause):
        begin = clock.ticks()
        try:
            newest = reload_table(table)
            held.look(newest.metadata)
            if held.lost is None:
                state = _advanced(newest, state, clock)
        except (DelvecError, Py4JError, OSError) as error:
            # Mostly a commit of others. Tried again soon: there is time until the lease ends.
            _LOG.debug("the lock of %s is not renewed yet: %s", table.name, error)
            pause = uniform(0.1, 1.0) * lease / 12
            if clock.ticks() >= held.ends:
                _LOG.warning("the lock of %s could not be renewed: %s", table.name, error)
                return
            continue
        if held.lost is not None:
            _LOG.warning("the lock of %s is lost: %s", table.name, held.lost)
            return
        held.state, held.ends = state, begin + lease
        pause = lease / 3


def _advanced(newest: LoadedTable, claim: LockState, clock: Clock = CLOCK) -> LockState:
    """Commit the next generation of the lock, with a new lease."""
    metadata = newest.metadata
    now_ms = int(clock.time() * 1000)
    state = replace(claim, generation=next_generation(metadata), expires_ms=now_ms + claim.lease_ms)
    tagged = metadata.head() or max(metadata.snapshots.values(), key=lambda each: each.timestamp_ms)
    # Without an age of its own, that which the table sets for all refs could remove it. With this
    # one, expiry of snapshots removes the tag of a dead owner one day.
    age = max(state.expires_ms, now_ms) + _DAY_MS - tagged.timestamp_ms
    age = min(max(age, _DAY_MS), _LONGEST_AGE)  # a snapshot may say any time

    def change(_: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        manage = transaction.manageSnapshots()
        for name in lock_tags(metadata):
            manage = manage.removeTag(name)
        manage = manage.createTag(state.tag, tagged.id)
        manage.setMaxRefAgeMs(state.tag, age).commit()
        change_properties(transaction, {LOCK_PROPERTY: state.to_property()})

    commit_exactly(newest, change)
    return state


def _release(table: LoadedTable, held: Held) -> None:
    """Remove the tag; a lock that cannot be given back ends with its lease."""
    try:
        for attempt in range(_ATTEMPTS):
            newest = reload_table(table)
            state = lock_state(newest.metadata)
            if held.state is None or state is None or state.token != held.state.token:
                return
            try:
                commit_exactly(newest, partial(_remove, state.tag))
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
                held.clock.sleep(uniform(0, 0.05 * (attempt + 1)))
            else:
                return
    except (DelvecError, Py4JError, OSError) as error:
        # What was done under the lock is done: this must not hide its result, or its error.
        _LOG.warning("the lock of %s was not given back: %s", table.name, error)


def _remove(tag: str, _: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
    transaction.manageSnapshots().removeTag(tag).commit()


def _locked(table: LoadedTable, state: LockState) -> LockedError:
    until = f"{state.expires:%Y-%m-%d %H:%M:%S} UTC"
    return LockedError(
        f"{table.name} is locked by {state.owner} for {state.operation}, until {until} if not"
        " renewed",
        owner=state.owner,
        operation=state.operation,
        expires=state.expires,
        hint="wait for it: wait=60, or --wait 60s; if its owner is dead, the lock ends by itself,"
        f" after {state.lease_ms // 1000} seconds of waiting at most; drop_tag({state.tag!r}) ends"
        " it now",
    )
