"""The report of a conversion, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delvec.report.figures import counted, listed, size, visible
from delvec.report.rendered import ChangeReport, Summary
from delvec.storage.counts import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.report.rendered import Line

__all__ = ["ConversionReport"]


@dataclass(frozen=True)
class ConversionReport(ChangeReport):
    """What a conversion did; prints as a summary, also on terminals and in notebooks.

    >>> print(ConversionReport("/lake/orders", "ice.db.orders", 3, 12, 7, files_added=2))
    /lake/orders -> ice.db.orders: version 12 (from 3)
      files  2 added

    Attributes, beside those of all reports (`ChangeReport`):
        source: The Delta table.
        target: The Iceberg table.
        start_version: The version that the target held before; None if it held none.
        version: The version that it holds now.
        snapshot_id: The snapshot of the target with that version; None if there was nothing to do.
        mode: `full` or `incremental`; `none` if there was nothing to do.
        format_version: Of the target.
        vectors: `repack`, `reference`, or `position-deletes` in a target of format 2.
        versions: How many versions of the source became a snapshot each.
        files_added: Data files that are new in the target.
        files_removed: Data files that are no longer in the target.
        files_kept: Data files that were compared and had not changed, nor their vectors.
        files_copied: Data files that were copied, since Iceberg cannot read them as they are.
        vectors_added: Vectors of files that had none, new files included.
        vectors_replaced: Vectors that replace older ones.
        vectors_dropped: Vectors that were removed while their data file stayed.
        rows: Live rows of the target.
        deleted_rows: Deleted rows in its files.
        verified: How the result was verified: `counts`, `rows` or `none`.
        properties_set: Table properties that were set again, since others had changed them.
        requests: Requests of the driver itself; not those of Spark and Iceberg.
    """

    source: str
    target: str
    start_version: int | None
    version: int
    snapshot_id: int | None = None
    mode: str = "none"
    format_version: int = 3
    vectors: str = "repack"
    versions: int = 0
    files_added: int = 0
    files_removed: int = 0
    files_kept: int = 0
    files_copied: int = 0
    vectors_added: int = 0
    vectors_replaced: int = 0
    vectors_dropped: int = 0
    rows: int = 0
    deleted_rows: int = 0
    verified: str = "none"
    properties_set: tuple[str, ...] = ()
    requests: RequestCounts = field(default_factory=RequestCounts)

    def brief(self) -> str:
        """Return what happened in one line.

        >>> ConversionReport("/lake/orders", "ice.db.orders", 3, 4, 1, vectors_replaced=2).brief()
        'version 4 (from 3): 2 vectors replaced'
        """
        if self.snapshot_id is None:
            return f"version {self.version:,} is there already"
        counts = {
            "file added": self.files_added,
            "file removed": self.files_removed,
            "vector added": self.vectors_added,
            "vector replaced": self.vectors_replaced,
            "vector dropped": self.vectors_dropped,
        }
        what = ", ".join(
            f"{counted(count, noun)} {verb}"
            for (noun, verb), count in zip(map(str.split, counts), counts.values(), strict=True)
            if count
        )
        return f"{_version(self)}: {what or 'no file changed'}"

    def _lines(self) -> Iterator[Line]:
        return Summary(_headline(self), _facts(self), self.phases, notes=self.notes).lines()


def _headline(report: ConversionReport) -> str:
    where = f"{visible(report.source)} -> {visible(report.target)}"
    if report.snapshot_id is None:
        written = "no file" if report.properties_set else "nothing"
        return f"{where}: version {report.version:,} is there already, {written} was written"
    return f"{where}: {_version(report)}"


def _version(report: ConversionReport) -> str:
    before = "new" if report.start_version is None else f"from {report.start_version:,}"
    return f"version {report.version:,} ({before})"


def _facts(report: ConversionReport) -> dict[str, str]:
    """Return the figures by what they are about; empty where they are zero."""
    vectors = listed(
        added=report.vectors_added,
        replaced=report.vectors_replaced,
        dropped=report.vectors_dropped,
    )
    if report.vector_files:
        written = counted(report.vector_files, "file")
        vectors += f" ({size(report.vector_bytes)} in {written})"
    rows = ""
    if report.rows or report.deleted_rows:
        rows = f"{report.rows:,} live, {report.deleted_rows:,} deleted"
    return {
        "files": listed(
            added=report.files_added,
            removed=report.files_removed,
            kept=report.files_kept,
            copied=report.files_copied,
        ),
        "vectors": vectors,
        "rows": rows,
        "versions": f"{report.versions:,}" if report.versions > 1 else "",
        "verified": report.verified if report.verified != "none" else "",
    }
