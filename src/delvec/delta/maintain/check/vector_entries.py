"""What the log alone tells of files with vectors: row counts, bounds, shared and inline vectors.

All on Arrow columns: some hundred bytes for each live file, and the largest piece of tombstones.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.replay import vector_ids
from delvec.delta.maintain.check.entries import one_name
from delvec.delta.maintain.check.orphans import retention_ms
from delvec.inspection.moments import moment
from delvec.report.findings import Finding
from delvec.report.wordings import call, worded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.report.findings import Findings

__all__ = ["check_vector_entries"]

# Operations that may write tight bounds for files with vectors.
_RECOUNTED: Final = frozenset(
    {"COMPUTE STATS", "RESTORE", "CLONE", "Manual Update", "ROW TRACKING BACKFILL"}
)


def check_vector_entries(snapshot: Snapshot, files: FileSet, findings: Findings) -> None:
    """Check what the log alone tells of files with vectors: row counts, bounds, shared vectors."""
    has_vector = files.vectors.is_valid().to_numpy(zero_copy_only=False)
    without = has_vector & files.row_counts.is_null().to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(without).tolist():
        findings.add(
            Finding(
                "error",
                "missing-row-count",
                files.paths[index].as_py(),
                "the log has no numRecords of it, which a file with a deletion vector needs",
                worded("{} adds it from the footer", call("check", repair=True)),
            )
        )
    findings.extend(_tight_bounds(snapshot, files, has_vector))
    findings.extend(_shared_vectors(files))
    findings.extend(_inline_tombstones(snapshot))


def _tight_bounds(
    snapshot: Snapshot, files: FileSet, has_vector: NDArray[np.bool_]
) -> Iterator[Finding]:
    """Yield one finding for all files whose bounds are said to be those of the live rows."""
    tight = files.statistic(("tightBounds",), pa.bool_())
    is_tight = has_vector.copy()
    if tight is not None:
        is_tight &= tight.fill_null(True).to_numpy(zero_copy_only=False)
    for number, (_, actions) in enumerate(snapshot.commits):
        infos = [each.get("commitInfo") for each in actions.others()]
        names = [str(each.get("operation")) for each in infos if isinstance(each, dict)]
        if _RECOUNTED.intersection(names):
            is_tight &= files.source != number
    count = int(is_tight.sum())
    if count:
        path = files.paths[int(np.argmax(is_tight))].as_py()
        message = (
            f"{count:,} files with deletion vectors, such as this one, claim to have tight bounds:"
            " delta-spark would not write that"
        )
        yield Finding(
            "info",
            "tight-bounds",
            path,
            message,
            worded("{} counts anew", call("recompute_statistics")),
        )


def _shared_vectors(files: FileSet) -> Iterator[Finding]:
    """Yield vectors that two data files have: positions in one file say nothing of another."""
    ids = vector_ids(files.vectors)
    stored = pc.not_equal(pc.struct_field(files.vectors, "storageType"), "i")
    ids = pc.if_else(stored, ids, pa.scalar(None, pa.string()))
    known = ids.drop_null()
    if len(known.unique()) == len(known):
        return
    counts = known.value_counts()
    several = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = np.flatnonzero(pc.is_in(ids, value_set=several).to_numpy(zero_copy_only=False))
    first: dict[str, str] = {}
    paths = one_name(files.paths, files.root)
    for index in rows.tolist():
        path = paths[index].as_py()
        other = first.setdefault(ids[index].as_py(), path)
        if other != path:
            message = f"it has the same deletion vector as {other}: one of them is probably wrong"
            yield Finding("warning", "shared-vector", path, message)


def _inline_tombstones(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield one finding for all unexpired tombstones with a vector in the log itself."""
    length = retention_ms(snapshot)
    since = int(time.time() * 1000) - length
    count, last, path = 0, 0, ""
    for removes in snapshot.tombstones():
        kinds = pc.struct_field(pc.struct_field(removes, "deletionVector"), "storageType")
        when = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
        chosen = pc.and_(pc.fill_null(pc.equal(kinds, "i"), False), pc.greater_equal(when, since))
        found = removes.filter(chosen)
        if len(found):
            count += len(found)
            last = max(last, pc.max(when.filter(chosen)).as_py())
            path = path or pc.struct_field(found, "path")[0].as_py()
    if count:
        yield Finding(
            "warning",
            "inline-tombstone",
            path,
            f"{count:,} removed files, such as this one, had a vector in the log itself: VACUUM of"
            " delta-spark fails",
            worded(
                "{} works; that of delta-spark from {} on",
                call("vacuum"),
                moment(last + length),
            ),
        )
