"""What a purge and a vacuum of a Delta table would free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.paths import canonical
from delvec.delta.maintain.compaction import live_bytes
from delvec.delta.maintain.retention import retention_of
from delvec.delta.maintain.vacuum.vacuum import VacuumOptions, vacuum
from delvec.errors import UnsupportedFeatureError
from delvec.inspection.figures import Freed

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.change import Change

__all__ = ["LISTED", "freed"]

LISTED: Final = 100_000
"""The live files of a table whose folder is listed without being asked for it."""


def freed(
    snapshot: Snapshot,
    *,
    is_newest: bool,
    listing: bool | None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Freed:
    """Return what a purge would free, by the log, and what a vacuum would, by a listing.

    Args:
        snapshot: The version.
        is_newest: Whether it is the newest, which alone a vacuum looks at.
        listing: Whether to list the folder; None to do so if the table has few live files.
        on_progress: See `DeltaTable.vacuum`.
    """
    files = snapshot.files
    purge = int((files.sizes - live_bytes(files))[files.has_vector].sum())
    found = Freed(purge=purge)
    if not is_newest:
        return replace(found, why_unknown="it is about the newest version")
    if listing is None and len(files) > LISTED:
        return replace(
            found, why_unknown=f"over {LISTED:,} files; listing=True, or --listing, lists them"
        )
    if listing is False:
        return replace(found, why_unknown="the folder was not to be listed")
    try:
        plan = vacuum(
            lambda: snapshot, _never, VacuumOptions(dry_run=True, on_progress=on_progress)
        )
    except UnsupportedFeatureError as error:
        return replace(found, why_unknown=error.message)
    return replace(
        found,
        vacuum=plan.bytes,
        vacuum_files=plan.files.num_rows,
        later=_retained(snapshot),
        retention_hours=plan.retention_hours,
    )


def _never(change: Change) -> NoReturn:
    raise AssertionError(f"a dry run commits nothing: {change.operation}")


def _retained(snapshot: Snapshot) -> int:
    """Return the bytes of files that were removed within the retention, as far as the log says."""
    retention = retention_of(snapshot)
    live = snapshot.files.paths
    found: list[pa.Table] = []
    for removes in snapshot.tombstones():
        when = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
        young = removes.filter(pc.greater_equal(when, retention.before_ms))
        if not len(young):
            continue
        paths = canonical(pc.struct_field(young, "path"), snapshot.table)
        gone = pc.invert(pc.is_in(paths, live))  # a live file has tombstones of its old vectors
        sizes = pc.struct_field(young, "size").filter(gone)
        found.append(pa.table({"path": paths.filter(gone), "size": sizes}))
    if not found:
        return 0
    files = pa.concat_tables(found).group_by("path").aggregate([("size", "max")])
    return int(pc.sum(files.column("size_max"), min_count=0).as_py())
