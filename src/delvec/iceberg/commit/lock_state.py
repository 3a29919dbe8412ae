"""The lock of a table as its metadata tell it: who has it, and who waits for it; see `lock`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Final

from delvec.documents import EPOCH, TIMES_MS, parse_json
from delvec.iceberg.client.metadata import TableMetadata

LOCK_PROPERTY: Final = "delvec.lock"
"""Table property that tells who has the lock, or had it last."""
_CLAIM: Final = "delvec.lock-claim."  # and the token of who waits
_TAG: Final = "delvec-lock-"
_TAGS: Final = re.compile(rf"{_TAG}[0-9]{{1,15}}")
GENERATIONS: Final = range(1, 10**15)
LEASES: Final = range(1_000, 24 * 3600 * 1000 + 1)
"""Milliseconds: who does not renew a lock for a day is dead."""
_LONGEST: Final = 2000  # characters of a property


@dataclass(frozen=True)
class LockState:
    """Who has the lock of a table, or waits for it.

    Attributes:
        generation: Another one after each change of the lock; of a claim, its place in the queue.
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
    def claim_property(self) -> str:
        """The table property that exists while somebody waits."""
        return f"{_CLAIM}{self.token}"

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
            and self.generation in GENERATIONS
            and self.expires_ms in TIMES_MS
            and self.lease_ms in LEASES
        )


def lock_state(metadata: TableMetadata) -> LockState | None:
    """Return who has the lock of a table, be the lease over or not; None if nobody has it.

    Who may write the table may write anything there. What delvec would not have written is no
    lock, so that nobody is kept from the table by it.
    """
    state = parse_state(metadata, LOCK_PROPERTY)
    return state if state is not None and state.tag in metadata.refs else None


def lock_claims(metadata: TableMetadata) -> list[LockState]:
    """Return who waits for the lock, in their order, be their leases over or not."""
    found = (
        claim
        for name in metadata.properties
        if name.startswith(_CLAIM)
        and (claim := parse_state(metadata, name)) is not None
        and claim.claim_property == name
    )
    return sorted(found, key=lambda each: (each.generation, each.token))


def is_lock_tag(metadata: TableMetadata, name: str) -> bool:
    """Whether a ref is the tag of a lock, which comes, changes and goes at any time."""
    return not metadata.refs[name].is_branch and _TAGS.fullmatch(name) is not None


def lock_tags(metadata: TableMetadata) -> list[str]:
    """Return the tags of locks; more than one only if somebody else made some."""
    return [name for name in metadata.refs if is_lock_tag(metadata, name)]


def parse_state(metadata: TableMetadata, name: str) -> LockState | None:
    """Return what a property says; None if there is none, or none that makes sense."""
    text = metadata.properties.get(name, "")
    if len(text) > _LONGEST:
        return None
    try:
        value = parse_json(text, name)
        state = LockState(**{each.name: value[each.name] for each in fields(LockState)})
    except (KeyError, TypeError, ValueError):
        return None
    return state if state.makes_sense else None
