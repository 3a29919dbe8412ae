"""How far the changes of a staging branch were taken over by a target branch.

Each snapshot that takes some over says so in its summary. The newest of these is found by going
back from the head of the target, so a rollback of the target takes the progress back as well. A
property of the table, set in the same commit, is for when that snapshot has expired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delvec.documents import whole_number
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = [
    "Resolved",
    "resolved_after_rollback",
    "resolved_properties",
    "resolved_property",
    "resolved_until",
]

_BRANCH: Final = "delvec.resolved-branch"
_SNAPSHOT: Final = "delvec.resolved-snapshot"
_SEQUENCE: Final = "delvec.resolved-sequence"
_FILES: Final = "delvec.resolved-files"
_PROPERTY: Final = "delvec.resolved."
_PARTS: Final = 5
_SHOWN: Final = 40


@dataclass(frozen=True)
class Resolved:
    """What was taken over of a staging branch: all up to one of its snapshots.

    Attributes:
        staging: The branch.
        snapshot_id: The snapshot.
        sequence_number: That of the snapshot; later changes have higher ones.
        data_files: How many data files the snapshot has.
    """

    staging: str
    snapshot_id: int
    sequence_number: int
    data_files: int

    @property
    def summary(self) -> Mapping[str, str]:
        """Entries of the summary of the snapshot that takes it over."""
        return {
            _BRANCH: self.staging,
            _SNAPSHOT: str(self.snapshot_id),
            _SEQUENCE: str(self.sequence_number),
            _FILES: str(self.data_files),
        }

    def committed_as(self, snapshot_id: int, sequence_number: int) -> str:
        """Return the value of the table property, given the snapshot that takes it over."""
        own = (self.snapshot_id, self.sequence_number, self.data_files)
        return " ".join(map(str, (*own, snapshot_id, sequence_number)))


def resolved_property(target: str, staging: str) -> str:
    """Return the name of the table property; dots of the target are escaped."""
    return f"{_PROPERTY}{target.replace('%', '%25').replace('.', '%2E')}.{staging}"


def resolved_properties(metadata: TableMetadata, staging: str) -> tuple[str, ...]:
    """Return the properties of a staging branch, one for each target."""
    found = (key for key in metadata.properties if key.startswith(_PROPERTY))
    # The target is escaped: the first dot ends it.
    return tuple(key for key in found if key[len(_PROPERTY) :].partition(".")[1:] == (".", staging))


def resolved_until(metadata: TableMetadata, target: str, staging: str) -> Resolved | None:
    """Return what a target has taken over of a staging branch; None if nothing is known."""
    for snapshot in metadata.ancestors(target):
        own = _of_summary(snapshot)
        if own is not None and own.staging == staging:
            return own
    parts = metadata.properties.get(resolved_property(target, staging), "").split()
    numbers = [number for part in parts if (number := whole_number(part, signed=True)) is not None]
    if not len(parts) == len(numbers) == _PARTS:
        return None
    *found, committed, sequence = numbers
    # A snapshot that the target certainly does not come from was rolled back.
    if metadata.is_ancestor(target, sequence, committed) is False:
        return None
    return Resolved(staging, *found)


def _of_summary(snapshot: IcebergSnapshot) -> Resolved | None:
    summary = snapshot.summary
    if _BRANCH not in summary:
        return None
    numbers = [snapshot.count(name) for name in (_SNAPSHOT, _SEQUENCE, _FILES)]
    known = [each for each in numbers if each is not None]
    if len(known) != len(numbers):
        raise FormatError(
            f"the summary of snapshot {snapshot.id} does not say what was taken over of branch"
            f" {summary[_BRANCH][:_SHOWN]!r}",
            expected=f"numbers as {_SNAPSHOT}, {_SEQUENCE} and {_FILES}",
            found=repr([summary.get(name, "")[:_SHOWN] for name in (_SNAPSHOT, _SEQUENCE, _FILES)]),
            hint="roll the target back to a snapshot before it, or drop the staging branch",
        )
    return Resolved(summary[_BRANCH], *known)


def resolved_after_rollback(
    metadata: TableMetadata, target: str, kept: Iterable[IcebergSnapshot]
) -> Mapping[str, str | None]:
    """Return the properties that a rollback of a target changes; None for those to be removed.

    A property that outlives its snapshot counts: if the snapshot was rolled back and expires later,
    the staged changes would seem to be taken over, and would never be.

    Args:
        metadata: The metadata before the rollback.
        target: The branch.
        kept: The snapshots that are left of it, newest first.
    """
    left: dict[str, str] = {}
    ids = set()
    for snapshot in kept:
        ids.add(snapshot.id)
        found = _of_summary(snapshot)
        if found is not None:
            entry = found.committed_as(snapshot.id, snapshot.sequence_number)
            left.setdefault(resolved_property(target, found.staging), entry)
    changed: dict[str, str | None] = {}
    for key, value in metadata.properties.items():
        if not key.startswith(resolved_property(target, "")):
            continue
        committed = whole_number("".join(value.split()[-2:-1]), signed=True)
        if committed in metadata.snapshots and committed not in ids:
            changed[key] = left.get(key)
    return changed
