"""The report of a vacuum, for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from delvec.delta.maintain.vacuum.candidates import FILES, kind_of
from delvec.report.figures import counted, listed, size, visible
from delvec.report.rendered import Rendered, Summary, document
from delvec.storage.counts import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    import pyarrow as pa

    from delvec.report.rendered import Line

__all__ = ["VacuumReport"]


@dataclass(frozen=True, eq=False)
class VacuumReport(Rendered):
    """What a vacuum deleted, or would delete.

    >>> print(VacuumReport("/lake/orders", 168.0, version=12, files_deleted=3, bytes_deleted=4096))
    VACUUM of /lake/orders: version 12, 3 files (4.0 KiB) deleted
      retention  168 hours

    Attributes:
        table: Where the table is.
        retention_hours: Files that were removed or modified within so many hours stay.
        before: The time that is so long ago.
        dry_run: Whether nothing was deleted and nothing was committed.
        lite: Whether the commits told what to delete; else the folder was listed.
        version: The version of the commit VACUUM END; None in a dry run.
        files: The files that were chosen: `path` below the table, `bytes` and `modified`.
        files_deleted: Files that were deleted.
        bytes_deleted: Their size.
        files_kept: Files that the log refers to, of those that were looked at.
        files_young: Files that it does not refer to, modified within the retention.
        files_spared: Files that were chosen, and that a concurrent commit refers to again.
        files_failed: Files that the store did not delete.
        failures: Why not, for the first of them.
        folders_removed: Empty folders that were removed.
        requests: Requests to the store.
        phases: Seconds by phase, in order.
        notes: What users should know, in sentences.
    """

    table: str
    retention_hours: float
    before: datetime | None = None
    dry_run: bool = False
    lite: bool = False
    version: int | None = None
    files: pa.Table = field(default_factory=FILES.empty_table, repr=False)
    files_deleted: int = 0
    bytes_deleted: int = 0
    files_kept: int = 0
    files_young: int = 0
    files_spared: int = 0
    files_failed: int = 0
    failures: tuple[str, ...] = ()
    folders_removed: int = 0
    requests: RequestCounts = field(default_factory=RequestCounts)
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the chosen files."""
        return int(pc.sum(self.files["bytes"], min_count=0).as_py())

    @property
    def kinds(self) -> dict[str, int]:
        """How many files of each kind were chosen, most first."""
        counts: Counter[str] = Counter()
        for chunk in self.files["path"].chunks:
            counts.update(map(kind_of, chunk.to_pylist()))
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs, with the number of files instead of the files."""
        found = document(self)
        found["files"] = self.files.num_rows
        before = None if self.before is None else self.before.isoformat(timespec="milliseconds")
        return {**found, "before": before, "bytes": self.bytes, "kinds": self.kinds}

    def _lines(self) -> Iterator[Line]:
        yield from Summary(
            _headline(self),
            _facts(self),
            self.phases,
            has_shares=True,
            details=tuple(f"not deleted: {visible(reason)}" for reason in self.failures),
            notes=self.notes,
        ).lines()


def _headline(report: VacuumReport) -> str:
    name = "VACUUM LITE" if report.lite else "VACUUM"
    if report.dry_run:
        chosen = f"{counted(report.files.num_rows, 'file')} ({size(report.bytes)})"
        what = f"dry run, {chosen} would be deleted"
    else:
        gone = f"{counted(report.files_deleted, 'file')} ({size(report.bytes_deleted)}) deleted"
        what = f"version {report.version:,}, {gone}" if report.version is not None else gone
        if report.files_failed:
            what += f", {report.files_failed:,} NOT deleted"
    return f"{name} of {visible(report.table)}: {what}"


def _facts(report: VacuumReport) -> dict[str, str]:
    requests = report.requests
    before = f", since {report.before:%Y-%m-%d %H:%M:%S} UTC" if report.before else ""
    return {
        "retention": f"{report.retention_hours:,g} hours{before}",
        "files": ", ".join(counted(count, kind) for kind, count in report.kinds.items()),
        "left": listed(
            **{
                "referred to": report.files_kept,
                "within the retention": report.files_young,
                "referred to again": report.files_spared,
            }
        ),
        "folders": listed(removed=report.folders_removed),
        "requests": listed(
            GET=requests.gets,
            HEAD=requests.heads,
            PUT=requests.puts,
            LIST=requests.lists,
            DELETE=requests.deletes,
        ),
    }
