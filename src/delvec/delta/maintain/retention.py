"""How long the files of removed rows stay: the table's word, or a caller's."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

from delvec.delta.schema.properties import DELETED_FILE_RETENTION, retention_ms
from delvec.errors import FormatError, InvalidArgumentError

if TYPE_CHECKING:
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["HOUR_MS", "Retention", "property_ms", "retention_of"]

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long removed files stay.

    Attributes:
        table_ms: What the table says, in milliseconds.
        given_ms: What the caller says; None to take the table's.
        now_ms: The present.
    """

    table_ms: int
    given_ms: int | None
    now_ms: int

    @property
    def length_ms(self) -> int:
        """The retention that holds."""
        return self.table_ms if self.given_ms is None else self.given_ms

    @property
    def before_ms(self) -> int:
        """The time before which files must have been removed and modified to be deleted."""
        return self.now_ms - self.length_ms


def retention_of(
    snapshot: Snapshot, hours: float | None = None, *, force: bool = False
) -> Retention:
    """Return the retention of a table, or a caller's.

    Raises:
        InvalidArgumentError: It is shorter than the table's, and not forced.
        FormatError: The table's is no interval.
    """
    length = property_ms(snapshot, DELETED_FILE_RETENTION)
    if hours is not None and not (isfinite(hours) and hours >= 0):
        raise InvalidArgumentError(f"retention_hours is 0 or more, got {hours}")
    given = None if hours is None else round(hours * HOUR_MS)
    if given is not None and given < length and not force:
        raise InvalidArgumentError(
            f"{snapshot.table} keeps removed files for {length / HOUR_MS:,g} hours; a vacuum with"
            f" {given / HOUR_MS:,g} would delete some earlier, and fail readers and writers that"
            " still use them, and time travel",
            hint=f"omit retention_hours, set {DELETED_FILE_RETENTION} of the table, or pass"
            " force=True if nobody uses the table now",
        )
    return Retention(length, given, int(time.time() * 1000))


def property_ms(snapshot: Snapshot, name: str) -> int:
    """Return a retention of a table in milliseconds, see `retention_ms`.

    Raises:
        FormatError: It is no interval of fixed length.
    """
    properties = snapshot.metadata.configuration
    length = retention_ms(properties, name)
    if length is None or length < 0:
        raise FormatError(
            f"{name} is no interval",
            path=snapshot.table,
            expected="an interval such as `interval 1 week`",
            found=repr(properties.get(name)),
            hint=f"set {name} to one",
        )
    return length
