"""The deletes of a snapshot in figures: vectors, equality deletes, and how old they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.errors import PlanError
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.commits.marks import staging_branches
from delvec.iceberg.resolve.staged import waiting_snapshots
from delvec.inspection.columns import ages
from delvec.inspection.figures import (
    EqualityFigures,
    PositionFigures,
    StagingBranch,
    VectorFigures,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["equality_figures", "position_figures", "vector_figures"]

_BETWEEN: Final = "\0"  # names of columns in one string
_CHANGES: Final = frozenset({"added-data-files", "added-delete-files", "deleted-data-files"})


def vector_figures(metadata: TableMetadata, vectors: pa.Table, now_ms: int) -> VectorFigures:
    """Return the figures of deletion vectors, which are rows of `list_files`."""
    times = _times(metadata, vectors)
    known = times[times >= 0]
    return VectorFigures(
        count=vectors.num_rows,
        rows=_sum(vectors, "rows"),
        bytes=_sum(vectors, "bytes"),
        kinds={"puffin": vectors.num_rows} if vectors.num_rows else {},
        stored_in=len(pc.unique(vectors.column("path"))),
        oldest_ms=_oldest(times),
        newest_ms=int(known.max()) if len(known) else None,
        ages=ages(times, now_ms),
    )


def position_figures(metadata: TableMetadata, files: pa.Table) -> PositionFigures:
    """Return the figures of position delete files, which are rows of `list_files`."""
    return PositionFigures(
        files.num_rows,
        _sum(files, "rows"),
        _sum(files, "bytes"),
        _oldest(_times(metadata, files)),
    )


def equality_figures(table: LoadedTable, files: pa.Table, vectors: pa.Table) -> EqualityFigures:
    """Return the figures of equality deletes, and what waits on staging branches."""
    metadata = table.metadata
    both = pa.concat_tables([files, vectors])
    names = both.column("equality_columns").cast(pa.list_(pa.string()))
    kinds = pc.unique(pc.binary_join(names, _BETWEEN)).to_pylist()
    return EqualityFigures(
        files=files.num_rows,
        vectors=vectors.num_rows,
        keys=_sum(both, "rows"),
        bytes=_sum(both, "bytes"),
        oldest_ms=_oldest(_times(metadata, both)),
        columns=tuple(sorted(tuple(each.split(_BETWEEN)) for each in kinds if each)),
        staging=tuple(_staging(table, name) for name in staging_branches(metadata)),
    )


def _staging(table: LoadedTable, name: str) -> StagingBranch:
    """Return what `main` has not taken over of a staging branch."""
    head = table.metadata.head(name)
    keys = None if head is None else head.count("total-equality-deletes")
    try:
        chain = waiting_snapshots(table, name, MAIN)
    except PlanError as error:
        return StagingBranch(name, 0, keys, problem=error.message)
    # Others, such as the one that a staging branch begins with, change nothing.
    count = sum(not _CHANGES.isdisjoint(each.summary) for each in chain.snapshots)
    return StagingBranch(name, count, keys)


def _times(metadata: TableMetadata, deletes: pa.Table) -> NDArray[np.int64]:
    """Return when each delete was committed, by its sequence number; -1 if that expired."""
    known = {each.sequence_number: each.timestamp_ms for each in metadata.snapshots.values()}
    numbers = pa.array(list(known), pa.int64())
    places = pc.index_in(deletes.column("sequence_number"), numbers)
    found = pa.array(list(known.values()), pa.int64()).take(places.combine_chunks())
    times: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
    return times


def _oldest(times_ms: NDArray[np.int64]) -> int | None:
    return int(times_ms.min()) if len(times_ms) and (times_ms >= 0).all() else None


def _sum(table: pa.Table, name: str) -> int:
    return int(pc.sum(table.column(name), min_count=0).as_py())
