"""Operations on a Delta table that need no JVM; each returns what there is to say of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.delta.check.entries import check_entries
from delvec.delta.skipping.predicate import parse_filters
from delvec.report.findings import Findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec import DeltaTable

__all__ = ["ALL_ENTRIES", "DELTA_OPERATIONS", "IDS"]

#: The ids of the files that exist; see `delta_log`.
IDS: Final = "id >= -10000 AND id < 0"
ALL_ENTRIES: Final = "all entries"
_BY_ID: Final = [("id", ">=", -10_000), ("id", "<", 0)]

Facts = dict[str, Any]


def _opened(table: DeltaTable) -> Facts:
    return {"version": table.snapshot().version}


def _live_files(table: DeltaTable) -> Facts:
    return {"files": len(table.snapshot().files)}


def _planned_by_bounds(table: DeltaTable) -> Facts:
    snapshot = table.snapshot()
    predicate = parse_filters(_BY_ID, snapshot.metadata.schema)
    chosen = snapshot.files.prune(predicate, "UTC")
    return {"files": len(chosen.data_files())}


def _history(table: DeltaTable) -> Facts:
    return {"versions": table.arrow_history().num_rows}


def _inspected(table: DeltaTable) -> Facts:
    return {"vectors": table.inspect(listing=False).vectors.count}


def _vacuum(table: DeltaTable) -> Facts:
    return {"files": table.vacuum(dry_run=True).files.num_rows}


def _checked(table: DeltaTable) -> Facts:
    """The part of `check` that reads the log; the other one opens every data file."""
    findings = Findings()
    files = check_entries(table.snapshot(), findings)
    return {"files": len(files or ()), "findings": len(findings.kept)}


def _restore(table: DeltaTable) -> Facts:
    return {"files": table.restore(5, dry_run=True).files_removed}


def _all_entries(table: DeltaTable) -> Facts:
    """What a commit holds that removes or changes all files, such as an overwrite."""
    return {"entries": len(table.snapshot().files.entries())}


def _altered(table: DeltaTable) -> Facts:
    return {"version": table.set_properties({"owner": "lake"}, dry_run=False).version}


def _checkpoint(table: DeltaTable) -> Facts:
    return {"version": table.checkpoint()}


DELTA_OPERATIONS: Final[dict[str, Callable[[DeltaTable], Facts]]] = {
    "open": _opened,
    "history": _history,
    "alter": _altered,
    "live files": _live_files,
    "plan by bounds": _planned_by_bounds,
    "vacuum, dry run": _vacuum,
    "restore, dry run": _restore,
    "inspect": _inspected,
    "check, log": _checked,
    "checkpoint": _checkpoint,
    ALL_ENTRIES: _all_entries,
}
"""By name; `alter` and `checkpoint` commit."""
