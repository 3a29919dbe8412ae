"""Snapshots of a table by branch, tag, id or time, and errors that name what there is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.metadata import MAIN
from delvec.report.wordings import Wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = ["branch_head", "near", "require_ref", "snapshot_of", "time_ms", "version_at"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LISTED: Final = 8


def snapshot_of(
    metadata: TableMetadata,
    table: str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: int | None = None,
    timestamp: datetime | str | None = None,
    time_zone: str = "UTC",
) -> IcebergSnapshot | None:
    """Return the snapshot that the arguments of a read name; None for an empty `main`.

    Args:
        metadata: The metadata of the table.
        table: Its name, for errors.
        branch: A branch; `main` by default. Its newest snapshot, or with `timestamp` the one that
            was its newest then.
        tag: Instead: a tag.
        snapshot_id: Instead: a snapshot by its id.
        timestamp: A time, of `branch`; cut to milliseconds.
        time_zone: The zone of a timestamp that names none.

    Raises:
        InvalidArgumentError: There is no such ref or snapshot, or more than one is named.
    """
    given = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id, "timestamp": timestamp}
    named = [key for key, value in given.items() if value is not None]
    if len(named) > 1 and set(named) != {"branch", "timestamp"}:
        raise InvalidArgumentError(
            f"{' and '.join(named)} name a snapshot of {table} twice",
            hint="give one of them; timestamp may go with branch",
        )
    if snapshot_id is not None:
        return _by_id(metadata, table, snapshot_id)
    if tag is not None:
        require_ref(metadata, table, tag, is_branch=False)
        return metadata.head(tag)
    if timestamp is not None:
        moment = time_ms(timestamp, time_zone)
        return version_at(metadata, table, branch or MAIN, moment)
    return branch_head(metadata, table, branch or MAIN)


def branch_head(metadata: TableMetadata, table: str, branch: str) -> IcebergSnapshot | None:
    """Return the newest snapshot of a branch; None for `main` of a table without any.

    Raises:
        InvalidArgumentError: There is no such branch, or it is a tag.
    """
    if branch == MAIN and MAIN not in metadata.refs:
        return None
    require_ref(metadata, table, branch, is_branch=True)
    return metadata.head(branch)


def version_at(metadata: TableMetadata, table: str, branch: str, moment_ms: int) -> IcebergSnapshot:
    """Return the newest snapshot of a branch that was committed at a time or before.

    Only snapshots that the branch still consists of count, not those that were rolled back.

    Raises:
        InvalidArgumentError: There is no such branch, or none of its snapshots is that old.
    """
    branch_head(metadata, table, branch)
    oldest: IcebergSnapshot | None = None
    for snapshot in metadata.ancestors(branch):
        if snapshot.timestamp_ms <= moment_ms:
            return snapshot
        oldest = snapshot
    since = "it has no snapshots" if oldest is None else f"it goes back to {_shown(oldest)}"
    raise InvalidArgumentError(
        f"branch {branch} of {table} has no snapshot as old as {_moment(moment_ms)}: {since}"
    )


def require_ref(metadata: TableMetadata, table: str, name: str, *, is_branch: bool) -> None:
    """Check that a ref exists and is of a kind.

    Raises:
        InvalidArgumentError: There is none of that name, or it is of the other kind.
    """
    kind, other = ("branch", "tag") if is_branch else ("tag", "branch")
    found = metadata.refs.get(name)
    if found is None:
        names = [each for each, ref in metadata.refs.items() if ref.is_branch == is_branch]
        raise InvalidArgumentError(f"{table} has no {kind} {name!r}", hint=near(name, names, kind))
    if found.is_branch != is_branch:
        raise InvalidArgumentError(f"{name!r} of {table} is a {other}, not a {kind}")


def near(name: str, names: Iterable[str], kind: str) -> str:
    """Return a hint: the name that was meant, or those that there are.

    >>> near("mian", ["main", "audit"], "branch"), near("x", [], "tag")
    ('did you mean main?', 'there is no tag')
    """
    known = sorted(names)
    if meant := get_close_matches(name, known, 1):
        return f"did you mean {meant[0]}?"
    if not known:
        return f"there is no {kind}"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"there is {', '.join(known[:_LISTED])}{more}"


def time_ms(timestamp: datetime | str, time_zone: str = "UTC") -> int:
    """Return a time in milliseconds since 1970.

    >>> time_ms("1970-01-01 00:00:01"), time_ms("1970-01-01T01:00:00+01:00")
    (1000, 0)

    Raises:
        InvalidArgumentError: It is neither a datetime nor an ISO 8601 string.
    """
    try:
        moment = timestamp
        if isinstance(moment, str):
            text = moment.strip()  # Python 3.10 does not know the Z
            moment = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in "zZ" else text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=ZoneInfo(time_zone))
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{timestamp!r} is no timestamp",
            hint="give a datetime, or a string such as '2024-01-31 10:00:00'",
        ) from error


def _by_id(metadata: TableMetadata, table: str, snapshot_id: int) -> IcebergSnapshot:
    found = metadata.snapshots.get(snapshot_id)
    if found is None:
        raise InvalidArgumentError(
            f"{table} has no snapshot {snapshot_id}",
            hint=Wording(
                "it may have expired; snapshots() lists those that there are",
                "it may have expired; `delvec history` lists those of a branch",
            ),
        )
    return found


def _shown(snapshot: IcebergSnapshot) -> str:
    return _moment(snapshot.timestamp_ms)


def _moment(milliseconds: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:  # whatever the metadata of a table say
        return f"{milliseconds} ms after 1970"
    return moment.isoformat(" ", timespec="milliseconds")
