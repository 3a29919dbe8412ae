"""The inspection of a Delta table.

    log        the live files of a version, as columns
    history    the newest commits: vectors over versions, and their ages
    listing    the folder, for what a vacuum would delete; optional
    advice     what to run next

No data file and no vector is opened. What grows with what:

    live files             some 750 bytes each, nearly all in the columns of the snapshot; no Python
                           object is made for a file that the report does not name
    commits in the log     an object each, for their times; those that were cleaned up cost nothing
    adds and removes       of the commits that are read, as columns
    files in the folder    see `freed`; nothing without a listing
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from delvec.delta.log.commit_times import commit_times
from delvec.delta.maintain.compaction import CompactionRule, compaction_sums, live_bytes
from delvec.delta.maintain.inspect.freed import freed
from delvec.delta.maintain.inspect.vector_history import vector_history
from delvec.delta.write.after_commit import checkpoint_interval
from delvec.inspection.advice import advice_for
from delvec.inspection.columns import (
    FileColumns,
    ages,
    ranked_files,
    ranked_partitions,
    size_classes,
)
from delvec.inspection.figures import LogFigures, Rewritten, SmallFiles, VectorFigures
from delvec.inspection.report import InspectReport
from delvec.report.figures import counted, outside_note
from delvec.report.phases import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["inspect"]


def inspect(
    snapshot: Snapshot,
    *,
    is_newest: bool = True,
    history: int = 100,
    listing: bool | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> InspectReport:
    """Return the figures of a version, and what to run next; see `DeltaTable.inspect`."""
    watch = Stopwatch()
    now = int(time.time() * 1000)
    with watch.phase("log"):
        files = snapshot.files
        rows = None if files.row_counts.null_count else _sum(files.row_counts)
        deleted = int(files.deleted_rows.sum())
        live = None if rows is None else int(files.live_rows.to_numpy().sum())
        columns = FileColumns(files.paths, files.row_counts, files.deleted_rows, files.sizes)
        times = commit_times(snapshot, 0, snapshot.version)
    with watch.phase("history"):
        past = vector_history(snapshot, times, history)
    with watch.phase("listing"):
        frees = freed(
            snapshot, times, is_newest=is_newest, listing=listing, on_progress=on_progress
        )
    protocol = snapshot.protocol
    report = InspectReport(
        table=snapshot.table,
        format="delta",
        location=snapshot.table,
        protocol=f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        version=snapshot.version,
        is_newest=is_newest,
        committed_ms=past.moments[-1].time_ms if past.moments else snapshot.segment.modified_ms,
        inspected_ms=now,
        partition_by=snapshot.metadata.partition_columns,
        files=len(files),
        bytes=int(files.sizes.sum()),
        rows=rows,
        live_rows=live,
        vectors=replace(_vectors(files, past.times_ms, now), rows=deleted),
        most_deleted=ranked_files(columns),
        partitions=ranked_partitions(columns, _partition_keys(files)),
        sizes=size_classes(files.sizes),
        small_files=_small_files(files),
        log=_log(snapshot, times),
        moments=past.moments,
        freed=frees,
        notes=tuple(_notes(files)),
        phases=watch.seconds,
    )
    return replace(report, advice=advice_for(report)) if is_newest else report


def _sum(counts: Any) -> int:  # noqa: ANN401 - an array of Arrow
    return int(pc.sum(counts, min_count=0).as_py())


def _vectors(files: FileSet, times_ms: NDArray[np.int64], now_ms: int) -> VectorFigures:
    with_vector = files.vectors.filter(files.has_vector)
    kinds, texts, sizes = (
        pc.struct_field(with_vector, [name])
        for name in ("storageType", "pathOrInlineDv", "sizeInBytes")
    )
    counts = {
        each["values"]: each["counts"] for each in pc.value_counts(kinds.drop_null()).to_pylist()
    }
    stored = pc.fill_null(pc.not_equal(kinds, "i"), False)
    places = pc.binary_join_element_wise(kinds.filter(stored), texts.filter(stored), "")
    is_known = bool(len(times_ms)) and bool((times_ms >= 0).all())
    known = times_ms[times_ms >= 0]
    return VectorFigures(
        count=len(with_vector),
        bytes=_sum(sizes),
        kinds=dict(sorted(counts.items(), key=lambda each: -each[1])),
        stored_in=int(pc.count_distinct(places).as_py()),
        oldest_ms=int(known.min()) if is_known else None,
        newest_ms=int(known.max()) if len(known) else None,
        ages=ages(times_ms, now_ms),
    )


def _partition_keys(files: FileSet) -> dict[str, Any]:
    return {
        field.name: files.partition_strings(field.physical_name)
        for field in files.metadata.partition_fields
    }


def _small_files(files: FileSet) -> SmallFiles:
    """Return what an `optimize()` would put together, without files with deleted rows and with."""
    rule = CompactionRule.of(files.metadata, max_deleted_ratio=1.0)
    small = int((live_bytes(files) < rule.min_size).sum())
    alone = compaction_sums(files, rule)
    both = compaction_sums(files, replace(rule, max_deleted_ratio=0.0))
    return SmallFiles(
        small,
        rule.min_size,
        alone.files,
        alone.bins,
        *(Rewritten(each.files, each.bytes, each.live) for each in (alone, both)),
    )


def _log(snapshot: Snapshot, times: CommitTimes) -> LogFigures:
    checkpoint = snapshot.segment.checkpoint
    last = None if checkpoint is None else checkpoint.version
    since = snapshot.version - (-1 if last is None else last)
    return LogFigures(
        versions=len(times.commits),
        oldest=times.commits[0].first if times.commits else None,
        checkpoint=last,
        since_checkpoint=since,
        interval=checkpoint_interval(snapshot.metadata),
    )


def _notes(files: FileSet) -> Iterator[str]:
    yield from outside_note(files.outside)
    if unknown := files.row_counts.null_count:
        yield (
            f"the log has no row count of {counted(unknown, 'file')}: how many rows are live, only"
            " the data can tell"
        )
