"""The lock of a table as its metadata tell of it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from delvec.documents import parse_json, whole_number
from delvec.errors import PlanError

if TYPE_CHECKING:
    from threading import Event

    from delvec.iceberg.client.metadata import TableMetadata

__all__ = [
    "CLOCK",
    "LOCK_PROPERTY",
    "LOCK_TAG",
    "LONGEST_LEASE",
    "Clock",
    "LeaseWatch",
    "LockState",
    "is_lock_tag",
    "lock_state",
    "lock_tags",
    "next_generation",
]

LOCK_PROPERTY: Final = "delvec.lock"
"""Table property that tells who has the lock, or had it last."""
LOCK_TAG: Final = "delvec-lock-"
"""How the tag begins that is there while somebody has the lock; its generation follows."""
LONGEST_LEASE: Final = 24 * 3600.0
"""Seconds: who does not renew a lock for longer is dead."""

_LONGEST: Final = 2000  # characters of the property
_GENERATIONS: Final = range(1, 10**15)
_LEASES: Final = range(1, int(LONGEST_LEASE * 1000) + 1)
_TIMES: Final = range(253_402_300_800_000)  # up to the year 9999, the last that Python has


@dataclass(frozen=True)
class LockState:
    """Who has the lock of a table.

    Attributes:
        generation: Grows with each change of the lock.
        owner: Who has it, such as `host/4711`.
        operation: What for.
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
        return f"{LOCK_TAG}{self.generation}"

    @property
    def expires(self) -> datetime:
        """When the lease ends, in UTC."""
        return datetime.fromtimestamp(self.expires_ms / 1000, timezone.utc)

    def to_property(self) -> str:
        """Return the value of the table property."""
        return json.dumps(asdict(self))


_FIELDS: Final = tuple(each.name for each in fields(LockState))


class Clock:
    """The time, and waiting for it."""

    def time(self) -> float:
        """Return the seconds since 1970, by a clock that can be set."""
        return time.time()

    def ticks(self) -> float:
        """Return seconds by a clock that cannot be set."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def wait(self, event: Event, seconds: float) -> bool:
        """Wait for an event at most so long; return whether it is set."""
        return event.wait(seconds)


CLOCK: Final = Clock()
"""That of this machine."""


class LeaseWatch:
    """Tells whether a lease is over, by the time and by how long it was not renewed."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._seen: LockState | None = None
        self._since = 0.0

    def is_over(self, state: LockState) -> bool:
        """Return whether others may take over a lock that was loaded just now."""
        now = self._clock.ticks()
        if state != self._seen:
            self._seen, self._since = state, now
        ended = self._clock.time() * 1000 > state.expires_ms + state.lease_ms / 10
        return ended or now - self._since > state.lease_ms / 1000


def lock_state(metadata: TableMetadata) -> LockState | None:
    """Return who has the lock of a table, be the lease over or not; None if nobody has it.

    Who may write the table may write anything there. What delvec would not have written is no
    lock, so that nobody is kept from the table by it.
    """
    state = _written(metadata)
    return state if state is not None and state.tag in metadata.refs else None


def is_lock_tag(metadata: TableMetadata, name: str) -> bool:
    """Whether a ref is the tag of a lock, which comes, changes and goes at any time."""
    return not metadata.refs[name].is_branch and _generation(name) is not None


def lock_tags(metadata: TableMetadata) -> list[str]:
    """Return the tags of locks; more than one only if somebody else made some."""
    return [name for name in metadata.refs if is_lock_tag(metadata, name)]


def next_generation(metadata: TableMetadata) -> int:
    """Return a generation that was not used yet.

    Raises:
        PlanError: Somebody has used up all of them.
    """
    written = _written(metadata)
    # Whoever has made them, branches too: their names are taken.
    taken = [found for name in metadata.refs if (found := _generation(name)) is not None]
    found = 1 + max([0 if written is None else written.generation, *taken])
    if found in _GENERATIONS:
        return found
    raise PlanError(
        f"{metadata.location} has no next lock: its property {LOCK_PROPERTY}, or a tag, has the"
        f" generation {found - 1}, which is the last",
        hint=f"no delvec wrote that: drop the branches and tags {LOCK_TAG}*, and remove the"
        f" property {LOCK_PROPERTY}",
    )


def _generation(ref: str) -> int | None:
    """Return the generation of the lock whose tag has a name; None for other names."""
    number = ref.removeprefix(LOCK_TAG)
    found = None if number == ref else whole_number(number)
    return found if found is not None and found in _GENERATIONS else None


def _written(metadata: TableMetadata) -> LockState | None:
    """Return what the property says; None if there is none, or none that makes sense."""
    text = metadata.properties.get(LOCK_PROPERTY, "")
    if len(text) > _LONGEST:
        return None
    try:
        value = parse_json(text, LOCK_PROPERTY)
        state = LockState(**{name: value[name] for name in _FIELDS})
    except (KeyError, TypeError, ValueError):
        return None
    numbers: tuple[object, ...] = (state.generation, state.expires_ms, state.lease_ms)
    texts: tuple[object, ...] = (state.owner, state.operation, state.token)
    makes_sense = (
        all(type(each) is int for each in numbers)
        and all(isinstance(each, str) and each.isprintable() for each in texts)
        and state.generation in _GENERATIONS
        and state.lease_ms in _LEASES
        and state.expires_ms in _TIMES
    )
    return state if makes_sense else None
