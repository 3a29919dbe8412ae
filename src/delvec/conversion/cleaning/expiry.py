"""Which snapshots, tags and branches of a target expire; by its metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delvec.conversion.planning.progress import SOURCE_ID, find_progress
from delvec.conversion.planning.target_refs import (
    is_staging_branch,
    is_version_tag,
    stale_branches,
)
from delvec.documents import whole_number
from delvec.errors import PlanError
from delvec.iceberg.client.metadata import MAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.iceberg.client.metadata import IcebergSnapshot, Ref, TableMetadata

__all__ = ["Expiry", "Retention", "plan_expiry"]

_MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"


@dataclass(frozen=True)
class Retention:
    """What is retained, in milliseconds since the epoch.

    Attributes:
        now_ms: The present.
        older_than_ms: Snapshots older than this may expire; None for any age.
        retain_last: So many of the newest snapshots of each branch do not; None for the number
            that the table sets, else 1.
        orphans_before_ms: Files, and snapshots that no branch leads to, are touched only if they
            are older than this.
    """

    now_ms: int
    older_than_ms: int | None
    retain_last: int | None
    orphans_before_ms: int

    @property
    def expires(self) -> bool:
        """Whether any snapshot may expire but those of stale branches."""
        return self.older_than_ms is not None or self.retain_last is not None


@dataclass(frozen=True)
class Expiry:
    """What is removed from the metadata of a target.

    Attributes:
        snapshot_ids: Snapshots, oldest first.
        tags: Tags of versions, which go with their snapshots, in the same order.
        branches: Staging branches of conversions that died.
    """

    snapshot_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshot_ids or self.tags or self.branches)


def plan_expiry(metadata: TableMetadata, retention: Retention) -> Expiry:
    """Choose what expires.

    Always retained: what other people's tags and branches point to, the current snapshot, the
    snapshots from it back to the last converted one, by which the next conversion finds how far
    the target is, one by which it knows the current schema for its own, and all that a conversion
    that runs has staged. Costs one pass over the snapshots for each branch.

    Raises:
        PlanError: The number of snapshots that the table is to keep is not a number.
    """
    stale = stale_branches(metadata, retention.now_ms)
    own_tags = {name for name in metadata.refs if is_version_tag(metadata, name)}
    retained = _progress_ids(metadata)
    on_branches: set[int] = set()
    of_main = {each.id for each in metadata.ancestors(MAIN)}
    for name, ref in metadata.refs.items():
        if not ref.is_branch:
            if name not in own_tags:
                retained.add(ref.snapshot_id)
        elif name not in stale:
            ancestors = list(metadata.ancestors(name))
            on_branches.update(each.id for each in ancestors)
            if is_staging_branch(metadata, name):
                kept = sum(each.id not in of_main for each in ancestors)
            else:
                kept = _retained(ancestors, ref, metadata, retention)
            retained.update(each.id for each in ancestors[:kept])
    staged = {each.id for name in stale for each in metadata.ancestors(name)} - on_branches
    staged -= {metadata.refs[name].snapshot_id for name in own_tags}
    retained |= _with_schema(metadata, retained, staged)

    def expires(snapshot: IcebergSnapshot) -> bool:
        if snapshot.id in retained:
            return False
        if snapshot.id in staged:
            return True
        if snapshot.id in on_branches:
            return retention.expires
        limits = (retention.orphans_before_ms, retention.older_than_ms or retention.now_ms)
        return retention.expires and snapshot.timestamp_ms < min(limits)

    gone = sorted(
        (each for each in metadata.snapshots.values() if expires(each)),
        key=lambda each: (each.timestamp_ms, each.id),
    )
    ids = {each.id: at for at, each in enumerate(gone)}
    tags = [name for name in own_tags if metadata.refs[name].snapshot_id in ids]
    tags.sort(key=lambda name: ids[metadata.refs[name].snapshot_id])
    return Expiry(tuple(ids), tuple(tags), tuple(stale))


def _progress_ids(metadata: TableMetadata) -> set[int]:
    """Return the current snapshot and those back to the last converted one."""
    progress = find_progress(metadata)
    found: set[int] = set()
    for snapshot in metadata.ancestors(MAIN):
        found.add(snapshot.id)
        if progress is None or snapshot.id == progress.snapshot.id:
            break
    return found


def _with_schema(metadata: TableMetadata, retained: set[int], staged: set[int]) -> set[int]:
    """Return a snapshot of a conversion with the current schema, if none such is retained.

    After a rollback to an older schema it is on no branch.
    """
    current = metadata.schema.get("schema-id")
    made = {
        each.id: each.timestamp_ms
        for each in metadata.snapshots.values()
        if SOURCE_ID in each.summary and each.schema_id == current and each.id not in staged
    }
    return set() if not made or made.keys() & retained else {max(made, key=lambda id_: made[id_])}


def _retained(
    ancestors: Sequence[IcebergSnapshot], ref: Ref, metadata: TableMetadata, retention: Retention
) -> int:
    """Return how many of the newest snapshots of a branch are retained, without gaps."""
    if not retention.expires:
        return len(ancestors)
    last = retention.retain_last
    if last is None:
        last = _least_snapshots(metadata.properties.get(_MIN_SNAPSHOTS, "1"))
    limit = retention.now_ms if retention.older_than_ms is None else retention.older_than_ms
    if ref.max_age_ms is not None:
        limit = min(limit, retention.now_ms - ref.max_age_ms)
    young = [at for at, each in enumerate(ancestors, 1) if each.timestamp_ms >= limit]
    return max(last, ref.min_snapshots or 1, *young)


def _least_snapshots(value: str) -> int:
    found = whole_number(value, signed=True)
    if found is None:
        raise PlanError(
            f"{_MIN_SNAPSHOTS} of the target is {value[:40]!r}, not a number",
            hint="set the property to a number, or pass retain_last",
        )
    return found
