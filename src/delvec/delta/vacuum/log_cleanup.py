"""Cleaning the log: what no version within the log's retention needs is deleted.

    cutoff       midnight UTC of the day that is `delta.logRetentionDuration` ago
    needed       the version that was current at the cutoff, and all after it
    base         the newest complete checkpoint at or before it; it must open
    deleted      commits, checksums and checkpoints before the base, compacted commits that begin at
                 it or before; sidecars that no checkpoint refers to any more

Nothing at the base or after it is touched, so a process that dies at any point leaves every version
that is still needed readable. Commits go before checkpoints (checkpointProtection asks for that),
oldest first, and sidecars last: a checkpoint is never there without its sidecars.

Memory grows with the names of files in the log; the base costs what opening it costs. Requests: two
listings of the log, one of the sidecars, a read of each remaining v2 checkpoint's small actions,
and one for each 1000 deleted files.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#metadata-cleanup and
https://github.com/delta-io/delta/blob/master/protocol_rfcs/checkpoint-protection.md
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from delvec.delta.log.checkpoint_reader import sidecar_keys
from delvec.delta.log.paths import LOG, SIDECARS, parse_name
from delvec.delta.log.replay import open_part
from delvec.delta.log.segment import LogListing, covering_files, list_log, read_last_checkpoint
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.metadata import Property
from delvec.delta.vacuum.retention import commits_until, property_ms
from delvec.delta.write.writable import require_writable
from delvec.documents import whole_number
from delvec.errors import DelvecError, FormatError
from delvec.report.format import format_count, format_counts, format_size
from delvec.report.rendering import Line, Rendered, doc, documented, required, summary
from delvec.storage import FileInfo, Storage
from delvec.storage.parallel import gather

_DAY: Final = 86_400_000
_ORDER: Final = ("commit", "checksum", "compacted", "checkpoint", "sidecar")
_BATCH: Final = 1000


@dataclass(frozen=True)
class ExpiredLog:
    """The files of a log that no version since a time needs."""

    base: int | None  # the version whose checkpoint is kept for all after it
    files: dict[str, list[FileInfo]]  # by kind in the order of deletion; oldest first
    notes: tuple[str, ...] = ()  # why files stay that are old enough


def clean_log(
    snapshot: Snapshot, *, before_ms: int | None = None, dry_run: bool = False
) -> LogReport:
    require_writable(snapshot, "vacuum")
    before = log_cutoff(snapshot) if before_ms is None else before_ms
    expired = expired_log(snapshot, before)
    if not dry_run:
        for infos in expired.files.values():
            keys = [info.key for info in infos]
            for start in range(0, len(keys), _BATCH):
                snapshot.storage.delete(keys[start : start + _BATCH])
    return LogReport(
        snapshot.table,
        before,
        expired.base,
        dry_run=dry_run,
        files={kind: len(infos) for kind, infos in expired.files.items()},
        bytes_deleted=sum(info.size for infos in expired.files.values() for info in infos),
        notes=expired.notes,
    )


def expired_log(snapshot: Snapshot, before_ms: int) -> ExpiredLog:
    """Return the files of a log that no version that was current at a time or later needs."""
    storage = snapshot.storage
    base, notes = _base(snapshot, before_ms)
    files: dict[str, list[FileInfo]] = {}
    remaining: list[str] = []
    for info in storage.list(LOG):
        name = parse_name(info.key.rpartition("/")[2])
        if name is None:
            continue
        limit = -1 if base is None else base - (name.kind != "compacted")
        if name.version <= limit:
            files.setdefault(name.kind, []).append(info)
        elif name.kind == "checkpoint" and info.size:
            remaining.append(info.key)
    # A checkpoint that is being written has its sidecars first.
    recent = int(time.time() * 1000) // _DAY * _DAY - _DAY
    sidecars, more = _unused_sidecars(storage, remaining, min(before_ms, recent))
    if sidecars:
        files["sidecar"] = sidecars
    ordered: dict[str, list[FileInfo]] = {kind: files[kind] for kind in _ORDER if kind in files}
    return ExpiredLog(base, ordered, (*notes, *more))


def log_cutoff(snapshot: Snapshot) -> int:
    """Return the time in milliseconds since when the log's retention keeps all versions readable.

    As in delta-spark a whole day at a time expires, at midnight UTC.
    """
    retention = property_ms(snapshot, Property.LOG_RETENTION)
    return (int(time.time() * 1000) - retention) // _DAY * _DAY


@documented()
class LogReport(Rendered):
    """What cleaning a log deleted, or would delete.

    >>> files = {"commit": 20, "checkpoint": 2}
    >>> print(LogReport("/lake/orders", 0, 20, files=files, bytes_deleted=2048))
    log of /lake/orders: 22 files (2.0 KiB) deleted, version 20 is the oldest that can be read
      deleted  20 commit files, 2 checkpoint files
    """

    table: str = required("Where the table is.")
    before_ms: int = required("All versions that were current at this time or later stay readable.")
    oldest: int | None = doc("The oldest readable version; None if nothing was deletable.", None)
    dry_run: bool = doc("Whether nothing was deleted.", False)
    files: Mapping[str, int] = doc(
        "How many files of each kind: commit, checksum, compacted, checkpoint, sidecar.", dict
    )
    bytes_deleted: int = doc("Their size.", 0)
    notes: tuple[str, ...] = doc("What users should know, in sentences.", ())

    @property
    def files_deleted(self) -> int:
        """How many files were deleted, or would be."""
        return sum(self.files.values())

    @property
    def before(self) -> datetime:
        """The time since when all versions stay readable."""
        return datetime.fromtimestamp(self.before_ms / 1000, tz=timezone.utc)

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return {**super().to_json(), "files_deleted": self.files_deleted}

    def _lines(self) -> Iterator[Line]:
        what = "nothing to delete"
        if self.files:
            files = format_count(self.files_deleted, "file")
            verb = "would be deleted" if self.dry_run else "deleted"
            what = f"{files} ({format_size(self.bytes_deleted)}) {verb}"
        if self.oldest is not None:
            would = "would be" if self.dry_run and self.files else "is"
            what += f", version {self.oldest:,} {would} the oldest that can be read"
        kinds = format_counts({f"{kind} file": count for kind, count in self.files.items()})
        return summary(f"log of {self.table}: {what}", {"deleted": kinds}, notes=self.notes)


def _base(snapshot: Snapshot, before_ms: int) -> tuple[int | None, tuple[str, ...]]:
    """Return the version whose checkpoint all kept versions are opened from, and notes."""
    storage = snapshot.storage
    listing = list_log(storage)
    commits = [commit for _, commit in sorted(listing.commits.items())]
    expired = commits_until(snapshot, before_ms, commits)
    if not expired:
        return None, ()
    hint = read_last_checkpoint(storage)
    newest = expired[-1].last if hint is None else min(hint, expired[-1].last)
    usable = [found.version for found in listing.checkpoints if found.version <= newest]
    base = max((each for each in usable if each in listing.commits), default=None)
    if base is None:
        return None, ("no checkpoint is as old as the retention, so all older commits are needed",)
    if base == min(*listing.commits, *usable):
        return base, ()  # nothing is older
    if "checkpointProtection" in snapshot.protocol.supported:
        text = snapshot.metadata.configuration.get(Property.CHECKPOINT_PROTECTION_BEFORE, "0")
        before = whole_number(text)
        if before is None or base < before:
            note = "history before it goes as a whole, or not at all"
            return None, (f"{Property.CHECKPOINT_PROTECTION_BEFORE} is {text[:40]}: {note}",)
    _require_readable(snapshot, listing, base)
    return base, ()


def _require_readable(snapshot: Snapshot, listing: LogListing, base: int) -> None:
    """Refuse to delete what comes before a checkpoint that cannot stand in for it."""
    storage, newest = snapshot.storage, snapshot.version
    if covering_files(listing, base + 1, newest)[1] <= newest:
        raise FormatError(
            f"the log lacks commits between versions {base} and {newest}",
            path=storage.uri_of(LOG),
            hint="nothing was deleted; restore them from a copy",
        )
    opened = open_snapshot(storage, base)
    checkpoint = opened.segment.checkpoint
    if checkpoint is None or checkpoint.version != base:
        raise FormatError("a checkpoint is gone", path=storage.uri_of(LOG), expected=base)
    _ = opened.files  # reads all parts and sidecars


def _unused_sidecars(
    storage: Storage, checkpoints: Sequence[str], before_ms: int
) -> tuple[list[FileInfo], tuple[str, ...]]:
    """Return the sidecars of no checkpoint that are old enough, and notes."""
    old = [info for info in storage.list(SIDECARS) if info.modified_ms < before_ms]
    if not old:
        return [], ()
    try:
        named = gather(lambda key: set(sidecar_keys(open_part(storage, key))), checkpoints)
    except DelvecError as error:
        return [], (f"sidecars were left, since a checkpoint cannot be read: {error.describe()}",)
    used = set().union(*named)
    return [info for info in old if info.key not in used], ()
