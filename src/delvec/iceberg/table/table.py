"""The public class `IcebergTable`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from delvec.iceberg.commits.marks import staging_branches
from delvec.iceberg.table.arrow_reads import TableArrowReads
from delvec.iceberg.table.branches import TableBranches
from delvec.iceberg.table.deletes import TableDeletes
from delvec.iceberg.table.inspecting import TableInspection
from delvec.iceberg.table.maintenance import TableMaintenance
from delvec.iceberg.table.resolving import TableResolving
from delvec.iceberg.table.writes import TableWrites
from delvec.report.figures import counted
from delvec.report.rendered import Summary

__all__ = ["IcebergTable"]


@dataclass(frozen=True, repr=False)
class IcebergTable(
    TableArrowReads,
    TableWrites,
    TableDeletes,
    TableBranches,
    TableResolving,
    TableInspection,
    TableMaintenance,
):
    """A handle on an Iceberg table; each call sees its newest metadata.

    t = delvec.IcebergTable.for_name(spark, "lake.db.orders")
    t.create_branch("audit")
    t.files().show()
    t.rollback(timestamp="2026-01-31 10:00:00")
    """

    def __repr__(self) -> str:
        return f"IcebergTable({self.name!r})"

    def _repr_html_(self) -> str:
        metadata = self._load().metadata
        head = metadata.head()
        branches = [name for name, ref in metadata.refs.items() if ref.is_branch]
        staging = staging_branches(metadata)
        named = [f"{name} (staging)" if name in staging else name for name in sorted(branches)]
        summary = Summary(
            f"Iceberg table {self.name}",
            {
                "location": metadata.location,
                "format": f"version {metadata.format_version}",
                "main": "empty" if head is None else f"snapshot {head.id}",
                "data files": "" if head is None else f"{head.data_file_count or 0:,}",
                "snapshots": counted(len(metadata.snapshots), "snapshot"),
                "branches": ", ".join(named),
            },
        )
        text = "\n".join(line for line, _ in summary.lines())
        return f"<pre>{escape(text)}</pre>"
