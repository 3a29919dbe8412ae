"""The inspection of an Iceberg table: its figures, from metadata and manifests alone.

    metadata   snapshots with their summaries, branches
    manifests  data files and deletes of the snapshot: one job, as columns
    listing    files that only other snapshots have: one more job, over the manifests of all

Memory on the driver grows with the files of the snapshot, some 750 bytes each in columns, and with
the retained snapshots, which are objects; no object is made for a file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F

from delvec.documents import whole_number
from delvec.errors import InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import snapshot_table
from delvec.iceberg.client.metadata import MAIN, IcebergSnapshot, TableMetadata
from delvec.iceberg.client.own_location import require_own_folder
from delvec.iceberg.commit.branch_commit import require_writable
from delvec.iceberg.commit.marks import staging_branches
from delvec.iceberg.resolve.plan import ResolveOptions
from delvec.iceberg.resolve.resolve import plan_first_step
from delvec.iceberg.resolve.staged import CHANGES, find_unresolved
from delvec.iceberg.table.detail import CONTENTS, list_files, partition_fields
from delvec.iceberg.table.handle import TableHandle
from delvec.inspection import figures, ranking
from delvec.inspection.advice import advise
from delvec.inspection.report import InspectReport
from delvec.report.format import format_count, outside_note
from delvec.report.rendering import Stopwatch
from delvec.spark import expressions
from delvec.storage.listed_files import outside_of

_TARGET: Final = ("write.target-file-size-bytes", 512 << 20)
_SMALL: Final = 0.75  # of the target size; the default of Iceberg's rewrite
_LEAST_TOGETHER: Final = 5  # files of a partition; the default of Iceberg's rewrite
_BETWEEN: Final = "\0"  # names of columns in one string
LISTED: Final = 100
"""The snapshots whose manifests are read without being asked for it."""
_MAX_AGE: Final = ("history.expire.max-snapshot-age-ms", 5 * 86_400_000)
_DATA, _VECTOR, _POSITIONS, _EQUALITY, _EQUALITY_VECTOR = CONTENTS


@dataclass(frozen=True)
class TableInspection(TableHandle):
    """The inspection of a table."""

    def inspect(
        self,
        snapshot_id: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        branch: str | None = None,
        tag: str | None = None,
        history: int = 100,
        listing: bool | None = None,
    ) -> InspectReport:
        """Tell at a glance what the table is made of, and what to run next.

            report = t.inspect()
            print(report)
            report.write_html("report.html")    # one page with charts, without the network

        One job reads the manifests of the snapshot; no data file and no delete is opened. Memory
        grows with the files of the snapshot, some 750 bytes each. The state after earlier snapshots
        is what their summaries say.

        What older snapshots alone keep, the manifests of all retained snapshots tell. By default
        they are read if there are no more than 100 snapshots. Orphan files are not looked for.

        Args:
            snapshot_id: The snapshot; the newest of the branch by default. Older ones get no
                advice.
            timestamp: Instead: a time; the snapshot that was the branch's newest then.
            branch: The branch; `main` by default.
            tag: Instead of all these: a tag.
            history: How many of the newest snapshots are looked at.
            listing: Whether to read the manifests of all snapshots; None as said above.

        Raises:
            InvalidArgumentError: There is no such snapshot, branch or tag, or `history` is
                negative.
        """
        if history < 0:
            raise InvalidArgumentError(f"history is a number of snapshots, got {history}")
        table = self._load()
        snapshot = self._snapshot(table, branch, snapshot_id, timestamp, tag)
        at_head = snapshot_id is None and timestamp is None and tag is None
        named = (branch or MAIN) if at_head else None
        return collect_figures(table, snapshot, named, history=history, listing=listing)


def collect_figures(
    table: LoadedTable,
    snapshot: IcebergSnapshot | None,
    branch: str | None,
    *,
    history: int,
    listing: bool | None,
) -> InspectReport:
    """Return the figures of a snapshot, and what to run next; see `IcebergTable.inspect`."""
    metadata, watch, now = table.metadata, Stopwatch(), int(time.time() * 1000)
    with watch.phase("manifests"):
        files = read_files(table, snapshot)
    with watch.phase("listing"):
        freed = (
            superseded_files(table, listing=listing)
            if branch
            else figures.Freed(why_unknown="it is about the newest snapshots")
        )
    of = {content: files.filter(pc.equal(files.column("content"), content)) for content in CONTENTS}
    data, vectors = of[_DATA], of[_VECTOR]
    columns = file_columns(data, pa.concat_tables([vectors, of[_POSITIONS]]))
    rows, marked = int(columns.rows.to_numpy().sum()), vector_figures(metadata, vectors, now)
    exact = not any(of[each].num_rows for each in (_POSITIONS, _EQUALITY, _EQUALITY_VECTOR))
    times = [each.timestamp_ms for each in metadata.snapshots.values()]
    paths = files.column("path")
    inside = pc.starts_with(paths, f"{metadata.location}/")  # in this spelling
    elsewhere = paths.filter(pc.invert(inside)).to_pylist()
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
        live_rows=rows - marked.rows if exact else None,
        vectors=marked,
        positions=figures.PositionFigures(
            of[_POSITIONS].num_rows,
            _sum(of[_POSITIONS], "rows"),
            _sum(of[_POSITIONS], "bytes"),
            _oldest(_times(metadata, of[_POSITIONS])),
        ),
        equality=equality_figures(table, of[_EQUALITY], of[_EQUALITY_VECTOR]),
        most_deleted=ranking.ranked_files(columns),
        partitions=ranking.ranked_partitions(columns, partition_keys(data)),
        sizes=ranking.size_classes(columns.bytes),
        small_files=small_files(metadata, data, columns),
        log=figures.LogFigures(
            versions=len(times),
            oldest_ms=min(times, default=None),
            max_age_ms=property_number(metadata, *_MAX_AGE),
        ),
        moments=_moments(metadata, snapshot, history),
        freed=replace(freed, rewrite=rewritten(columns)),
        notes=(
            *_notes(of[_POSITIONS], owns_files=owns_files),
            *outside_note(outside_of(metadata.location, elsewhere)),
        ),
        phases=watch.seconds,
    )
    return advise(report, partial(_require_possible, table)) if report.is_newest else report


def _require_possible(table: LoadedTable, advice: figures.Advice) -> None:
    """Raise what a call that is advised would be refused with; reads manifests at most."""
    if advice.action == "expire":
        require_own_folder(table)
    elif advice.action == "resolve":
        given = dict(zip(advice.arguments[2::2], advice.arguments[3::2], strict=True))
        target, staging = given.get("--target", MAIN), given.get("--staging")
        plan_first_step(table, ResolveOptions(target=target, staging=staging))
    elif advice.action == "consolidate":
        require_writable(table)


def read_files(table: LoadedTable, snapshot: IcebergSnapshot | None) -> pa.Table:
    """Return the files of the snapshot; the values of partitions are one string each."""
    found = list_files(table, None if snapshot is None else snapshot.id)
    with translate_errors(str(table.name)):
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


def file_columns(data: pa.Table, deletes: pa.Table) -> ranking.FileColumns:
    """Return the data files, with the rows that deletes of each file alone delete."""
    paths = _one(data, "path")
    deleted = np.zeros(len(paths), dtype=np.int64)
    places = pc.index_in(_one(deletes, "referenced_data_file"), paths, skip_nulls=True)
    known = places.is_valid()
    counts = _one(deletes, "rows").filter(known).to_numpy()
    np.add.at(deleted, places.drop_null().to_numpy(), counts)
    return ranking.FileColumns(paths, _one(data, "rows"), deleted, _one(data, "bytes").to_numpy())


def partition_keys(data: pa.Table) -> dict[str, Any]:
    """Return the partition of each file, in words; nothing if there are no partitions."""
    labels = _one(data, "partition")
    if not len(labels) or not pc.any(pc.not_equal(labels, "")).as_py():
        return {}
    return {"": labels}


def small_files(
    metadata: TableMetadata, data: pa.Table, columns: ranking.FileColumns
) -> figures.SmallFiles:
    """Return what Iceberg's rewrite would put together, by its defaults."""
    target = property_number(metadata, *_TARGET)
    below = int(_SMALL * target)
    small = columns.bytes < below
    chosen = pa.table({"partition": data.column("partition"), "bytes": columns.bytes}).filter(small)
    groups = chosen.group_by("partition").aggregate([("bytes", "sum"), ("bytes", "count")])
    sizes, counts = (groups.column(f"bytes_{name}").to_numpy() for name in ("sum", "count"))
    together = counts >= _LEAST_TOGETHER
    after = np.maximum(1, -(-sizes[together] // target))
    return figures.SmallFiles(
        int(small.sum()), below, int(counts[together].sum()), int(after.sum())
    )


def rewritten(columns: ranking.FileColumns) -> figures.Rewritten:
    """Return what a rewrite of all files with known deletes would replace and write."""
    chosen = columns.deleted > 0
    rows, sizes = columns.rows.to_numpy()[chosen], columns.bytes[chosen]
    deleted = np.minimum(columns.deleted[chosen], rows)
    share = np.divide(rows - deleted, rows, out=np.zeros(len(rows)), where=rows > 0)
    return figures.Rewritten(len(rows), int(sizes.sum()), int((sizes * share).sum()))


def vector_figures(
    metadata: TableMetadata, vectors: pa.Table, now_ms: int
) -> figures.VectorFigures:
    """Return the figures of deletion vectors, which are rows of `list_files`."""
    times = _times(metadata, vectors)
    known = times[times >= 0]
    return figures.VectorFigures(
        count=vectors.num_rows,
        rows=_sum(vectors, "rows"),
        bytes=_sum(vectors, "bytes"),
        kinds={"puffin": vectors.num_rows} if vectors.num_rows else {},
        stored_in=len(pc.unique(vectors.column("path"))),
        oldest_ms=_oldest(times),
        newest_ms=int(known.max()) if len(known) else None,
        ages=ranking.ages(times, now_ms),
    )


def equality_figures(
    table: LoadedTable, files: pa.Table, vectors: pa.Table
) -> figures.EqualityFigures:
    """Return the figures of equality deletes, and what waits on staging branches."""
    metadata = table.metadata
    both = pa.concat_tables([files, vectors])
    names = both.column("equality_columns").cast(pa.list_(pa.string()))
    kinds = pc.unique(pc.binary_join(names, _BETWEEN)).to_pylist()
    return figures.EqualityFigures(
        files=files.num_rows,
        vectors=vectors.num_rows,
        keys=_sum(both, "rows"),
        bytes=_sum(both, "bytes"),
        oldest_ms=_oldest(_times(metadata, both)),
        columns=tuple(sorted(tuple(each.split(_BETWEEN)) for each in kinds if each)),
        staging=tuple(_staging(table, name) for name in staging_branches(metadata)),
    )


def superseded_files(table: LoadedTable, *, listing: bool | None) -> figures.Freed:
    """Return what files take that no branch has at its head, and no tag.

    An expiry frees so much at most: snapshots that are young enough, or among the last of a branch,
    stay, and which of these files they need would take a job for each snapshot.
    """
    snapshots = len(table.metadata.snapshots)
    if listing is None and snapshots > LISTED:
        how = "listing=True, or --listing, reads their manifests"
        return figures.Freed(why_unknown=f"over {LISTED} snapshots; {how}")
    if listing is False:
        return figures.Freed(why_unknown="the manifests of other snapshots were not to be read")
    if not snapshots:
        return figures.Freed(vacuum=0)
    heads = sorted({ref.snapshot_id for ref in table.metadata.refs.values()})
    spark, name = table.spark, table.name
    with translate_errors(str(name)):
        columns = "file_path, file_size_in_bytes"
        query = f"SELECT DISTINCT {columns} FROM {name}.all_files"  # noqa: S608
        everything = expressions.run(spark, query)
        needed = [snapshot_table(table, "files", head).select("file_path") for head in heads]
        for each in needed:
            everything = everything.join(each, "file_path", "left_anti")
        sums = (F.count("*"), F.coalesce(F.sum("file_size_in_bytes"), F.lit(0)))
        [row] = everything.agg(*sums).collect()
    return figures.Freed(vacuum=int(row[1]), vacuum_files=int(row[0]))


def property_number(metadata: TableMetadata, key: str, default: int) -> int:
    """Return a property that is a number above 0; the default if it is none."""
    return whole_number(metadata.properties.get(key)) or default


def _moments(
    metadata: TableMetadata, snapshot: IcebergSnapshot | None, limit: int
) -> tuple[figures.Moment, ...]:
    """Return the state after the newest ancestors, as their summaries have it; oldest first."""
    found: list[figures.Moment] = []
    while snapshot is not None and len(found) < limit:
        found.append(
            figures.Moment(
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


def _notes(positions: pa.Table, *, owns_files: bool) -> Iterator[str]:
    if not owns_files:
        yield (
            "the table has gc.enabled=false: its files may be those of another table, such as the"
            " source of a conversion, which is what to maintain"
        )
    if several := positions.column("referenced_data_file").null_count:
        yield (
            f"{format_count(several, 'position delete file')} may be of several data files:"
            " which rows"
            " of which they delete, only reading tells; bars do not count them"
        )


def _pair(entry: Column) -> Column:
    """Return a field of a partition with its value; see `partition_word`."""
    value = entry["value"]
    alike = F.lower(value).isin("null", "")
    quoted = F.when(alike, F.concat(F.lit("'"), value, F.lit("'"))).otherwise(value)
    return F.concat(entry["key"], F.lit("="), F.coalesce(quoted, F.lit("NULL")))


def _one(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _staging(table: LoadedTable, name: str) -> figures.StagingBranch:
    """Return what `main` has not taken over of a staging branch."""
    head = table.metadata.head(name)
    keys = None if head is None else head.count("total-equality-deletes")
    try:
        chain = find_unresolved(table, name, MAIN)
    except PlanError as error:
        return figures.StagingBranch(name, 0, keys, problem=error.message)
    # Others, such as the one that a staging branch begins with, change nothing.
    count = sum(not CHANGES.isdisjoint(each.summary) for each in chain.snapshots)
    return figures.StagingBranch(name, count, keys)


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
