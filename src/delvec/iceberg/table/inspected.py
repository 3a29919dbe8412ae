"""The figures of an Iceberg table, from its metadata and the manifests of one snapshot.

    metadata   snapshots with their summaries, branches
    manifests  data files and deletes of the snapshot: one job, as columns
    listing    files that only other snapshots have: one more job, over the manifests of all

Memory on the driver grows with the files of the snapshot, some 750 bytes each in columns, and with
the retained snapshots, which are objects; no object is made for a file.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.iceberg.table.detail import partition_fields
from delvec.iceberg.table.files_listing import CONTENTS
from delvec.iceberg.table.inspected_deletes import (
    equality_figures,
    position_figures,
    vector_figures,
)
from delvec.iceberg.table.inspected_files import (
    file_columns,
    partition_keys,
    property_number,
    read_files,
    rewritten,
    small_files,
)
from delvec.iceberg.table.superseded import superseded_files
from delvec.inspection.advice import advice_for
from delvec.inspection.columns import (
    ranked_files,
    ranked_partitions,
    size_classes,
)
from delvec.inspection.figures import (
    Freed,
    LogFigures,
    Moment,
)
from delvec.inspection.report import InspectReport
from delvec.report.figures import counted, outside_note
from delvec.report.phases import Stopwatch
from delvec.storage.listed_files import outside_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = ["inspected"]

_MAX_AGE: Final = ("history.expire.max-snapshot-age-ms", 5 * 86_400_000)
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
        files = read_files(table, snapshot)
    with watch.phase("listing"):
        freed = (
            superseded_files(table, listing=listing)
            if branch
            else Freed(why_unknown="it is about the newest snapshots")
        )
    of = {content: files.filter(pc.equal(files.column("content"), content)) for content in CONTENTS}
    data, vectors = of[_DATA], of[_VECTOR]
    columns = file_columns(data, pa.concat_tables([vectors, of[_POSITIONS]]))
    rows, figures = int(columns.rows.to_numpy().sum()), vector_figures(metadata, vectors, now)
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
        live_rows=rows - figures.rows if exact else None,
        vectors=figures,
        positions=position_figures(metadata, of[_POSITIONS]),
        equality=equality_figures(table, of[_EQUALITY], of[_EQUALITY_VECTOR]),
        most_deleted=ranked_files(columns),
        partitions=ranked_partitions(columns, partition_keys(data)),
        sizes=size_classes(columns.bytes),
        small_files=small_files(metadata, data, columns),
        log=_log(metadata),
        moments=_moments(metadata, snapshot, history),
        freed=replace(freed, rewrite=rewritten(columns)),
        notes=(
            *_notes(of[_POSITIONS], owns_files=owns_files),
            *outside_note(outside_of(metadata.location, _elsewhere(files, metadata.location))),
        ),
        phases=watch.seconds,
    )
    return replace(report, advice=advice_for(report)) if report.is_newest else report


def _log(metadata: TableMetadata) -> LogFigures:
    times = [each.timestamp_ms for each in metadata.snapshots.values()]
    return LogFigures(
        versions=len(times),
        oldest_ms=min(times, default=None),
        max_age_ms=property_number(metadata, *_MAX_AGE),
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
                snapshot.count("total-data-files"),
                snapshot.count("total-delete-files"),
                snapshot.count("total-position-deletes"),
                snapshot.count("total-equality-deletes"),
            )
        )
        parent = snapshot.parent_id
        snapshot = None if parent is None else metadata.snapshots.get(parent)
    return tuple(reversed(found))


def _elsewhere(files: pa.Table, location: str) -> list[str]:
    """Return the paths that do not begin with the table's location, in this spelling."""
    paths = files.column("path")
    found: list[str] = paths.filter(pc.invert(pc.starts_with(paths, f"{location}/"))).to_pylist()
    return found


def _notes(positions: pa.Table, *, owns_files: bool) -> Iterator[str]:
    if not owns_files:
        yield (
            "the table has gc.enabled=false: its files may be those of another table, such as the"
            " source of a conversion, which is what to maintain"
        )
    if several := positions.column("referenced_data_file").null_count:
        yield (
            f"{counted(several, 'position delete file')} may be of several data files: which rows"
            " of which they delete, only reading tells; bars do not count them"
        )
