"""The public class `IcebergTable`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from delvec.calls import explained_class
from delvec.iceberg.commit.marks import staging_branches
from delvec.iceberg.table.branches import TableBranches
from delvec.iceberg.table.detail import format_branches
from delvec.iceberg.table.inspection import TableInspection
from delvec.iceberg.table.maintenance import TableMaintenance, TableResolving
from delvec.iceberg.table.reads import TableArrowReads
from delvec.iceberg.table.writes import TableDeletes, TableWrites
from delvec.report.format import escape_controls, format_count
from delvec.report.rendering import summary


@explained_class()
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
        branches = sorted(name for name, ref in metadata.refs.items() if ref.is_branch)
        lines = summary(
            f"Iceberg table {self.name}",
            {
                "location": escape_controls(metadata.location),
                "format": f"version {metadata.format_version}",
                "main": "empty" if head is None else f"snapshot {head.id}",
                "data files": "" if head is None else f"{head.data_file_count or 0:,}",
                "snapshots": format_count(len(metadata.snapshots), "snapshot"),
                "branches": format_branches(branches, staging_branches(metadata)),
            },
        )
        text = "\n".join(line for line, _ in lines)
        return f"<pre>{escape(text)}</pre>"
