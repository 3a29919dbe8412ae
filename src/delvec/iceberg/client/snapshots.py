"""Snapshots of a table by branch, tag, id or time, and errors that name what there is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from delvec.documents import shown_time, time_ms
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.metadata import MAIN, IcebergSnapshot, TableMetadata
from delvec.report.format import did_you_mean
from delvec.report.hints import Wording

_LISTED: Final = 8


def find_snapshot(
    metadata: TableMetadata,
    table: str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: int | None = None,
    timestamp: datetime | str | None = None,
    time_zone: str = "UTC",
) -> IcebergSnapshot | None:
    """Return the snapshot that the arguments of a read name; None for an empty `main`."""
    given = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id, "timestamp": timestamp}
    named = [key for key, value in given.items() if value is not None]
    if len(named) > 1 and set(named) != {"branch", "timestamp"}:
        raise InvalidArgumentError(
            f"{' and '.join(named)} name a snapshot of {table} twice",
            hint="give one of them; timestamp may go with branch",
        )
    if snapshot_id is not None:
        if snapshot_id not in metadata.snapshots:
            raise InvalidArgumentError(
                f"{table} has no snapshot {snapshot_id}",
                hint=Wording(
                    "it may have expired; snapshots() lists those that there are",
                    "it may have expired; `delvec history` lists those of a branch",
                ),
            )
        return metadata.snapshots[snapshot_id]
    if tag is not None:
        require_ref(metadata, table, tag, is_branch=False)
        return metadata.head(tag)
    if timestamp is not None:
        return version_at(metadata, table, branch or MAIN, time_ms(timestamp, time_zone))
    return branch_head(metadata, table, branch or MAIN)


def branch_head(metadata: TableMetadata, table: str, branch: str) -> IcebergSnapshot | None:
    """Return the newest snapshot of a branch; None for `main` of a table without any."""
    if branch == MAIN and MAIN not in metadata.refs:
        return None
    require_ref(metadata, table, branch, is_branch=True)
    return metadata.head(branch)


def version_at(metadata: TableMetadata, table: str, branch: str, moment_ms: int) -> IcebergSnapshot:
    """Return the newest snapshot of a branch that was committed at a time or before.

    Only snapshots that the branch still consists of count, not those that were rolled back.
    """
    branch_head(metadata, table, branch)
    oldest: IcebergSnapshot | None = None
    for snapshot in metadata.ancestors(branch):
        if snapshot.timestamp_ms <= moment_ms:
            return snapshot
        oldest = snapshot
    since = f"goes back to {shown_time(oldest.timestamp_ms)}" if oldest else "has no snapshots"
    raise InvalidArgumentError(
        f"branch {branch} of {table} has no snapshot as old as {shown_time(moment_ms)}: it {since}"
    )


def require_ref(metadata: TableMetadata, table: str, name: str, *, is_branch: bool) -> None:
    """Check that a ref exists and is of a kind."""
    kind, other = ("branch", "tag") if is_branch else ("tag", "branch")
    found = metadata.refs.get(name)
    if found is None:
        names = [each for each, ref in metadata.refs.items() if ref.is_branch == is_branch]
        raise InvalidArgumentError(
            f"{table} has no {kind} {name!r}", hint=suggest_name(name, names, kind)
        )
    if found.is_branch != is_branch:
        raise InvalidArgumentError(f"{name!r} of {table} is a {other}, not a {kind}")


def suggest_name(name: str, names: Iterable[str], kind: str) -> str:
    """Return a hint: the name that was meant, or those that there are.

    >>> suggest_name("mian", ["main", "audit"], "branch"), suggest_name("x", [], "tag")
    ('did you mean main?', 'there is no tag')
    """
    known = sorted(names)
    if meant := did_you_mean(name, known, 1):
        return meant
    if not known:
        return f"there is no {kind}"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"there is {', '.join(known[:_LISTED])}{more}"
