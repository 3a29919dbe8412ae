"""The figures of an Iceberg table, from its metadata and the manifests of one snapshot.

    metadata   snapshots with their summaries, branches
    manifests  data files and deletes of the snapshot: one job, as columns
    listing    files that only other snapshots have: one more job, over the manifests of all

Memory on the driver grows with the files of the snapshot, some 750 bytes each.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.failures import explained
from delvec.iceberg.table.detail import partition_fields
from delvec.iceberg.table.files_listing import CONTENTS, list_files
from delvec.iceberg.table.inspected_deletes import (
    equality_figures,
    summary_figure,
    vector_figures,
)
from delvec.iceberg.table.superseded import superseded_files
from delvec.inspection.advice import advice_for
from delvec.inspection.columns import (
    FileColumns,
    ranked_files,
    ranked_partitions,
    size_classes,
)
from delvec.inspection.figures import (
    Freed,
    LogFigures,
    Moment,
    SmallFiles,
)
from delvec.inspection.report import InspectReport
from delvec.report.figures import counted
from delvec.report.phases import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = ["inspected"]

_TARGET: Final = ("write.target-file-size-bytes", 512 << 20)
_MAX_AGE: Final = ("history.expire.max-snapshot-age-ms", 5 * 86_400_000)
_SMALL: Final = 0.75  # of the target size; the default of Iceberg's rewrite
_LEAST_TOGETHER: Final = 5  # files of a partition; the default of Iceberg's rewrite
_SUMS: Final = ("bytes_sum", "bytes_count")
_DATA, _VECTOR, _POSITIONS, _EQUALITY, _EQUALITY_VECTOR = CONTENTS


def inspected(
    table: LoadedTable,
    snapshot: IcebergSnapshot | None,
    branch: str | None,
    *,
    history: int,
    listing: bool | None,
) -> InspectReport:
    """Return the figures of a snapshot, and what to run next; see `IcebergTable.inspect`.

    Args:
        table: The table.
        snapshot: The snapshot; None for a table without any.
        branch: The branch that it is the newest of; None if it was named otherwise.
        history: How many snapshots are looked at.
        listing: Whether to read the manifests of all snapshots; None if there are few.
    """
    metadata, watch, now = table.metadata, Stopwatch(), int(time.time() * 1000)
    with watch.phase("manifests"):
        files = _files(table, snapshot)
    with watch.phase("listing"):
        freed = (
            superseded_files(table, listing=listing)
            if branch
            else Freed(why_unknown="it is about the newest snapshots")
        )
    of = {content: files.filter(pc.equal(files.column("content"), content)) for content in CONTENTS}
    data, vectors = of[_DATA], of[_VECTOR]
    columns = _columns(data, vectors)
    rows, deleted = int(columns.rows.to_numpy().sum()), int(columns.deleted.sum())
    exact = not any(of[each].num_rows for each in (_POSITIONS, _EQUALITY, _EQUALITY_VECTOR))
    owns_files = metadata.properties.get("gc.enabled", "true").lower() != "false"
    report = InspectReport(
        table=str(table.name),
        format="iceberg",
        location=metadata.location,
        protocol=f"format version {metadata.format_version}",
        snapshot_id=None if snapshot is None else snapshot.id,
        branch=branch,
        is_newest=branch is not None,
        owns_files=owns_files,
        committed_ms=None if snapshot is None else snapshot.timestamp_ms,
        inspected_ms=now,
        partition_by=partition_fields(metadata),
        files=data.num_rows,
        bytes=int(columns.bytes.sum()),
        rows=rows,
        live_rows=rows - deleted if exact else None,
        vectors=vector_figures(metadata, vectors, now),
        position_delete_files=of[_POSITIONS].num_rows,
        equality=equality_figures(table, of[_EQUALITY], of[_EQUALITY_VECTOR]),
        most_deleted=ranked_files(columns),
        partitions=ranked_partitions(columns, _partition_keys(data)),
        sizes=size_classes(columns.bytes),
        small_files=_small_files(metadata, data, columns),
        log=_log(metadata),
        moments=_moments(metadata, snapshot, history),
        freed=replace(freed, purge=_dead_bytes(columns)),
        notes=tuple(_notes(of[_POSITIONS].num_rows, owns_files=owns_files)),
        phases=watch.seconds,
    )
    return replace(report, advice=advice_for(report)) if report.is_newest else report


def _files(table: LoadedTable, snapshot: IcebergSnapshot | None) -> pa.Table:
    """Return the files of the snapshot; the values of partitions are one string each."""
    found = list_files(table, None if snapshot is None else snapshot.id)
    with explained(str(table.name)):
        return found.select(
            "content",
            "path",
            "rows",
            "bytes",
            "sequence_number",
            "equality_columns",
            "referenced_data_file",
            F.concat_ws(", ", F.transform(F.map_entries("partition"), _pair)).alias("partition"),
        ).toArrow()


def _pair(entry: Column) -> Column:
    """Return a field of a partition with its value; the string `null` is told from null."""
    value = entry["value"]
    quoted = F.when(value == "null", F.lit("'null'")).otherwise(value)
    return F.concat(entry["key"], F.lit("="), F.coalesce(quoted, F.lit("null")))


def _columns(data: pa.Table, vectors: pa.Table) -> FileColumns:
    """Return the data files, with the rows that their vectors delete."""
    paths = _one(data, "path")
    deleted = np.zeros(len(paths), dtype=np.int64)
    places = pc.index_in(_one(vectors, "referenced_data_file"), paths)
    known = places.is_valid()
    counts = _one(vectors, "rows").filter(known).to_numpy()
    np.add.at(deleted, places.drop_null().to_numpy(), counts)
    return FileColumns(paths, _one(data, "rows"), deleted, _one(data, "bytes").to_numpy())


def _one(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _partition_keys(data: pa.Table) -> dict[str, Any]:
    labels = _one(data, "partition")
    if not len(labels) or not pc.any(pc.not_equal(labels, "")).as_py():
        return {}
    return {"": labels}


def _small_files(metadata: TableMetadata, data: pa.Table, columns: FileColumns) -> SmallFiles:
    """Return what Iceberg's rewrite would put together, by its defaults."""
    key, default = _TARGET
    target = _number(metadata, key, default)
    below = int(_SMALL * target)
    small = columns.bytes < below
    chosen = pa.table({"partition": data.column("partition"), "bytes": columns.bytes}).filter(small)
    groups = chosen.group_by("partition").aggregate([("bytes", "sum"), ("bytes", "count")])
    before = after = 0
    for size, count in zip(*(groups.column(name).to_pylist() for name in _SUMS), strict=True):
        if count >= _LEAST_TOGETHER:
            before += count
            after += max(1, -(-size // target))
    return SmallFiles(int(small.sum()), below, before, after)


def _number(metadata: TableMetadata, key: str, default: int) -> int:
    value = metadata.properties.get(key, "")
    return int(value) if value.isdecimal() and int(value) else default


def _log(metadata: TableMetadata) -> LogFigures:
    times = [each.timestamp_ms for each in metadata.snapshots.values()]
    key, default = _MAX_AGE
    return LogFigures(
        versions=len(times),
        oldest_ms=min(times, default=None),
        max_age_ms=_number(metadata, key, default),
    )


def _moments(
    metadata: TableMetadata, snapshot: IcebergSnapshot | None, limit: int
) -> tuple[Moment, ...]:
    """Return the state after the newest ancestors, as their summaries have it; oldest first."""
    found: list[Moment] = []
    while snapshot is not None and len(found) < limit:
        found.append(
            Moment(
                snapshot.id,
                snapshot.timestamp_ms,
                snapshot.operation or "",
                summary_figure(snapshot, "total-data-files"),
                summary_figure(snapshot, "total-delete-files"),
                summary_figure(snapshot, "total-position-deletes"),
                summary_figure(snapshot, "total-equality-deletes"),
            )
        )
        parent = snapshot.parent_id
        snapshot = None if parent is None else metadata.snapshots.get(parent)
    return tuple(reversed(found))


def _dead_bytes(columns: FileColumns) -> int:
    rows = columns.rows.to_numpy()
    share = np.divide(columns.deleted, rows, out=np.zeros(len(rows)), where=rows > 0)
    return int((columns.bytes * np.minimum(share, 1.0)).sum())


def _notes(position_files: int, *, owns_files: bool) -> Iterator[str]:
    if not owns_files:
        yield (
            "the table has gc.enabled=false: its files may be those of another table, such as the"
            " source of a conversion, which is what to maintain"
        )
    if position_files:
        yield (
            f"{counted(position_files, 'position delete file')}: which rows of which files they"
            " delete, only reading tells; deleted rows are those of vectors"
        )
