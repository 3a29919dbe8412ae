"""What a commit did, counted by the names that Delta's history has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delvec.delta.write.change import Change

__all__ = ["operation_metrics"]


def operation_metrics(change: Change) -> dict[str, int]:
    """Give the counts of a change: those that it brings, and those that its files tell.

    A vector that takes the place of another counts as added, removed and updated, as in
    delta-spark.
    """
    if change.operation not in ("DELETE", "UPDATE", "MERGE", "WRITE"):
        return dict(change.metrics)
    updated = sum(each.file.descriptor is not None for each in change.vector_updates)
    vectors = {
        "Added": len(change.vector_updates),
        "Removed": updated + sum(file.descriptor is not None for file in change.removed),
        "Updated": updated,
    }
    added, removed = (
        (len(bodies), sum(int(body.get("size") or 0) for body in bodies))
        for bodies in (change.added, [file.add for file in change.removed])
    )
    if change.operation == "WRITE":
        files = {"numFiles": added[0], "numOutputBytes": added[1]}
        gone = {"numRemovedFiles": removed[0], "numRemovedBytes": removed[1]}
        return dict(change.metrics) | files | (gone if change.removed else {})
    if change.operation == "MERGE":
        return {
            **change.metrics,
            **{f"numTargetDeletionVectors{what}": count for what, count in vectors.items()},
            "numTargetFilesAdded": added[0],
            "numTargetBytesAdded": added[1],
            "numTargetFilesRemoved": removed[0],
            "numTargetBytesRemoved": removed[1],
            "numTargetChangeFilesAdded": len(change.change_files),
        }
    return {
        **change.metrics,
        **{f"numDeletionVectors{what}": count for what, count in vectors.items()},
        "numAddedFiles": added[0],
        "numAddedBytes": added[1],
        "numRemovedFiles": removed[0],
        "numRemovedBytes": removed[1],
        "numAddedChangeFiles": len(change.change_files),
    }
