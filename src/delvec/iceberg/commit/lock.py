"""A lock on a table, through the catalog's atomic commit, for work that only one should do.

The lock is a tag, `delvec-lock-<generation>`, and the property `delvec.lock` that names the
generation, the owner and the end of the lease. Taking the lock, renewing it and taking over that of
a dead owner are one and the same commit: it creates the tag of the next generation, which must not
be there, removes the one before, and writes the property. So of all who saw the same state one
succeeds, on REST catalogs as well, which compare refs but neither properties nor whole metadata.
A release only removes the tag: the property keeps the generation, so that the next is another.

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
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from itertools import count
from random import uniform
from threading import Event, Thread
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from py4j.protocol import Py4JError

from delvec.documents import EPOCH, TIMES_MS, parse_json
from delvec.errors import ConflictError, DelvecError, InvalidArgumentError, LockedError
from delvec.iceberg.client.catalog import LoadedTable, reload_table
from delvec.iceberg.commit.commit import Transaction, commit
from delvec.report.format import escape_controls

if TYPE_CHECKING:
    from delvec.iceberg.client.metadata import TableMetadata

LOCK_PROPERTY: Final = "delvec.lock"
"""Table property that tells who has the lock, or had it last."""
_TAG: Final = "delvec-lock-"
_TAGS: Final = re.compile(rf"{_TAG}[0-9]{{1,15}}")
_GENERATIONS: Final = range(1, 10**15)
_LEASES: Final = range(1_000, 24 * 3600 * 1000 + 1)  # who does not renew a lock for a day is dead
_LONGEST: Final = 2000  # characters of the property
_LOG: Final = logging.getLogger("delvec")
_ATTEMPTS: Final = 20  # commits of others in a row that are no loss of the lock
_LONGEST_PAUSE: Final = 2.0  # seconds between two looks at a lock that somebody has
_DAY_MS: Final = 24 * 3600 * 1000
_LONGEST_AGE: Final = 2**63 - 1


@dataclass(frozen=True)
class LockState:
    """Who has the lock of a table.

    Attributes:
        generation: Another one after each change of the lock.
        owner: Who has it, such as `host/4711`.
        expires_ms: When the lease ends, by the owner's clock.
        lease_ms: How long it is, from the last renewal.
        token: Tells apart the locks of one owner.
    """

    generation: int
    owner: str
    operation: str
    expires_ms: int
    lease_ms: int
    token: str

    @property
    def tag(self) -> str:
        """The tag that exists while somebody has it."""
        return f"{_TAG}{self.generation}"

    @property
    def expires(self) -> datetime:
        """When the lease ends, in UTC."""
        return EPOCH + timedelta(milliseconds=self.expires_ms)

    @property
    def makes_sense(self) -> bool:
        """Whether delvec could have written it."""
        numbers: tuple[object, ...] = (self.generation, self.expires_ms, self.lease_ms)
        texts: tuple[object, ...] = (self.owner, self.operation, self.token)
        return (
            all(type(each) is int for each in numbers)
            and all(isinstance(each, str) and each.isprintable() for each in texts)
            and self.generation in _GENERATIONS
            and self.expires_ms in TIMES_MS
            and self.lease_ms in _LEASES
        )


def lock_state(metadata: TableMetadata) -> LockState | None:
    """Return who has the lock of a table, be the lease over or not; None if nobody has it.

    Who may write the table may write anything there. What delvec would not have written is no
    lock, so that nobody is kept from the table by it.
    """
    state = _last_state(metadata)
    return state if state is not None and state.tag in metadata.refs else None


def is_lock_tag(metadata: TableMetadata, name: str) -> bool:
    """Whether a ref is the tag of a lock, which comes, changes and goes at any time."""
    return not metadata.refs[name].is_branch and _TAGS.fullmatch(name) is not None


def lock_tags(metadata: TableMetadata) -> list[str]:
    """Return the tags of locks; more than one only if somebody else made some."""
    return [name for name in metadata.refs if is_lock_tag(metadata, name)]


def next_state(metadata: TableMetadata, claim: LockState) -> LockState:
    """Return the lock after that which a table has or had, with a new lease."""
    last = _last_state(metadata)
    for number in count(0 if last is None else last.generation):
        state = replace(claim, generation=_GENERATIONS[number % len(_GENERATIONS)])
        if state.tag not in metadata.refs:  # somebody else's, of any kind
            return replace(state, expires_ms=int(time.time() * 1000) + claim.lease_ms)
    raise AssertionError("a table has fewer refs than there are generations")


def _last_state(metadata: TableMetadata) -> LockState | None:
    """Return what the property says; None if there is none, or none that makes sense."""
    text = metadata.properties.get(LOCK_PROPERTY, "")
    if len(text) > _LONGEST:
        return None
    try:
        value = parse_json(text, LOCK_PROPERTY)
        state = LockState(**{each.name: value[each.name] for each in fields(LockState)})
    except (KeyError, TypeError, ValueError):
        return None
    return state if state.makes_sense else None


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
            raise LockedError(
                f"the lock of {self.table} for {self.state.operation} is lost: {self.lost}",
                hint="run it again",
            )


@contextmanager
def hold_lock(
    table: LoadedTable,
    operation: str,
    *,
    lease: float = 300.0,
    wait: float = 0.0,
    owner: str | None = None,
) -> Iterator[Held]:
    """Have the lock of a table during the block; a thread renews it.

        with hold_lock(table, "COMPACT", wait=60) as held:
            ...
            held.check()

    It takes one commit, and one more at the end and for each third of the lease; each changes the
    table's metadata, but no snapshot. A table without snapshots has no lock.

    `operation` and `owner`, by default host and process, are shown to others. `lease` is the
    seconds after which others may take the lock over if it was not renewed, and `wait` those to
    wait for somebody else's lock.
    """
    if not _LEASES[0] <= lease * 1000 <= _LEASES[-1] or wait < 0:
        raise InvalidArgumentError(
            f"the lock of {table.name} for {operation}: a lease is 1 second to a day and a wait is"
            f" not negative, got lease={lease!r} and wait={wait!r}",
            hint="lease=300, wait=60 wait a minute for a lock that is renewed for five",
        )
    name = owner or f"{socket.gethostname()}/{os.getpid()}"
    held = _acquire(table, LockState(0, name, operation, 0, int(lease * 1000), uuid4().hex), wait)
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


def _acquire(table: LoadedTable, claim: LockState, wait: float) -> Held:
    """Return the lock when it is free or its owner is dead."""
    deadline = time.monotonic() + wait
    held = Held(str(table.name))
    watched: LockState | None = None
    since = 0.0

    def require_free(newest: LoadedTable) -> None:
        nonlocal watched, since
        found, now = lock_state(newest.metadata), time.monotonic()
        if found != watched:
            watched, since = found, now
        if found is not None and not _is_over(found, now - since):
            raise _locked(newest, found)

    conflicts = 0
    while True:
        try:
            _advance(table, claim, held, require_free)
        except LockedError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(left, uniform(0.1, _LONGEST_PAUSE)))
            continue
        except ConflictError as error:
            # Soon again, unlike other commits: whoever waits longer than others never has its turn.
            conflicts += 1
            if conflicts == _ATTEMPTS or not error.retryable:
                error.attempts = conflicts
                raise
            time.sleep(uniform(0, 0.05 * conflicts))
            continue
        if watched is not None:
            _LOG.warning(
                "took over the lock of %s: %s is dead", table.name, escape_controls(watched.owner)
            )
        return held


def _is_over(state: LockState, watched: float) -> bool:
    """Whether a lease is over, by the time, or by the seconds in which it was not renewed."""
    ended = time.time() * 1000 > state.expires_ms + state.lease_ms / 10
    return ended or watched > state.lease_ms / 1000


def _renew(table: LoadedTable, held: Held, claim: LockState, stop: Event) -> None:
    """Renew a lock at each third of its lease until it is given back or lost."""
    lease = claim.lease_ms / 1000
    pause = lease / 3
    while not stop.wait(pause):
        pause = lease / 3
        try:
            _advance(table, claim, held, lambda newest: held.check(newest.metadata))
        except (DelvecError, Py4JError, OSError) as error:
            if held.lost is not None or time.monotonic() >= held.ends:
                _LOG.warning("the lock of %s was not renewed: %s", table.name, error)
                return
            # Mostly a commit of others. Tried again soon: there is time until the lease ends.
            _LOG.debug("the lock of %s is not renewed yet: %s", table.name, error)
            pause = uniform(0.1, 1.0) * lease / 12


def _advance(
    table: LoadedTable, claim: LockState, held: Held, require: Callable[[LoadedTable], None]
) -> None:
    """Commit the next generation of the lock, with a new lease, if `require` does not object."""
    state, ends = held.state, held.ends

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        nonlocal state, ends
        require(newest)
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
        transaction.set_properties({LOCK_PROPERTY: json.dumps(asdict(state))})

    commit(reload_table(table), change, what=f"LOCK for {claim.operation}")
    held.state, held.ends = state, ends


def _release(table: LoadedTable, held: Held) -> None:
    """Remove the tag; a lock that cannot be given back ends with its lease."""

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        state = lock_state(newest.metadata)
        if held.state is not None and state is not None and state.token == held.state.token:
            transaction.add(transaction.handle.manageSnapshots().removeTag(state.tag))

    try:
        commit(reload_table(table), change, what="UNLOCK", attempts=_ATTEMPTS)
    except (DelvecError, Py4JError, OSError) as error:
        # What was done under the lock is done: this must not hide its result, or its error.
        _LOG.warning("the lock of %s was not given back: %s", table.name, error)


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
