"""The history of an Iceberg table, for `delvec history`: the snapshots of a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.output import Column, used_columns, visible
from delvec.report.figures import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output
    from delvec.iceberg.table import IcebergTable

__all__ = ["show_snapshots"]

_COLUMNS: Final = [
    Column("snapshot", "snapshot", "bold", is_unbroken=True),
    Column("when", "when (UTC)", "dim", is_unbroken=True),
    Column("operation", "operation", "cyan", is_unbroken=True, omitted=1),
    Column("rows", "rows"),
    Column("deletes", "deletes", "bold"),
    Column("refs", "refs", name_width=30, omitted=2),
]


def show_snapshots(output: Output, target: IcebergTable, limit: int | None, branch: str) -> None:
    """Show the snapshots of a branch, newest first."""
    found = target.history(limit, branch=branch).toArrow().to_pylist()
    snapshots = [_document(each) for each in found]
    count = counted(len(snapshots), "snapshot")
    output.note((visible(target.name), "bold"), f": {count} of {visible(branch)}")
    rows = [_row(each) for each in snapshots]
    if rows:
        output.table(used_columns(_COLUMNS, rows), rows)
    if snapshots and len(snapshots) == limit:
        output.note(("Older snapshots are left out; without --limit all are shown.", "dim"))
    output.result({"table": target.name, "branch": branch, "snapshots": snapshots})


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON document of a snapshot: every field that it has."""
    made = row | {"summary": dict(row["summary"] or ())}
    made["timestamp"] = row["timestamp"].isoformat(timespec="milliseconds")
    return {name: value for name, value in made.items() if value is not None}


def _row(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table row of a snapshot."""
    return {
        "snapshot": str(snapshot["snapshot_id"]),
        "when": snapshot["timestamp"][:19].replace("T", " "),
        "operation": snapshot.get("operation"),
        "rows": listed(
            added=snapshot.get("added_rows", 0), removed=snapshot.get("removed_rows", 0)
        ),
        "deletes": listed(
            positions=snapshot.get("added_position_deletes", 0),
            keys=snapshot.get("added_equality_deletes", 0),
        ),
        "refs": ", ".join(snapshot.get("refs", ())),
    }
