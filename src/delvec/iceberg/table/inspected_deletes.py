"""The deletes of a snapshot in figures: vectors, equality deletes, and how old they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.commits.marks import staging_branches
from delvec.inspection.columns import ages
from delvec.inspection.figures import EqualityFigures, StagingBranch, VectorFigures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = ["equality_figures", "summary_figure", "vector_figures"]


def vector_figures(metadata: TableMetadata, vectors: pa.Table, now_ms: int) -> VectorFigures:
    """Return the figures of deletion vectors, which are rows of `list_files`."""
    times = _times(metadata, vectors)
    known = times[times >= 0]
    is_known = bool(len(times)) and len(known) == len(times)
    return VectorFigures(
        count=vectors.num_rows,
        rows=_sum(vectors, "rows"),
        bytes=_sum(vectors, "bytes"),
        kinds={"puffin": vectors.num_rows} if vectors.num_rows else {},
        stored_in=len(pc.unique(vectors.column("path"))),
        oldest_ms=int(known.min()) if is_known else None,
        newest_ms=int(known.max()) if len(known) else None,
        ages=ages(times, now_ms),
    )


def equality_figures(
    metadata: TableMetadata, files: pa.Table, vectors: pa.Table
) -> EqualityFigures:
    """Return the figures of equality deletes, and what waits on staging branches."""
    both = pa.concat_tables([files, vectors])
    times = _times(metadata, both)
    names = {tuple(each or ()) for each in both.column("equality_columns").to_pylist()}
    main = {each.id for each in metadata.ancestors(MAIN)}
    staging = []
    for name in staging_branches(metadata):
        own = [each for each in metadata.ancestors(name) if each.id not in main]
        keys = summary_figure(own[0], "total-equality-deletes") if own else None
        staging.append(StagingBranch(name, len(own), keys))
    return EqualityFigures(
        files=files.num_rows,
        vectors=vectors.num_rows,
        keys=_sum(both, "rows"),
        bytes=_sum(both, "bytes"),
        oldest_ms=int(times.min()) if len(times) and (times >= 0).all() else None,
        columns=tuple(sorted(names)),
        staging=tuple(staging),
    )


def summary_figure(snapshot: IcebergSnapshot, key: str) -> int | None:
    """Return a number of a snapshot's summary; None if it has none."""
    value = snapshot.summary.get(key, "")
    return int(value) if value.isdecimal() else None


def _times(metadata: TableMetadata, deletes: pa.Table) -> NDArray[np.int64]:
    """Return when each delete was committed, by its sequence number; -1 if that expired."""
    known = {each.sequence_number: each.timestamp_ms for each in metadata.snapshots.values()}
    numbers = deletes.column("sequence_number").to_pylist()
    return np.array([known.get(number, -1) for number in numbers], dtype=np.int64)


def _sum(table: pa.Table, name: str) -> int:
    return int(pc.sum(table.column(name), min_count=0).as_py())
