"""The inspection of a Delta table: no data file and no vector is opened.

    log        the live files of a version, as columns
    history    the newest commits, undone one after the other: vectors over versions, their ages
    listing    the folder, once, for what a vacuum would delete now and later; optional
    advice     what to run next

What grows with what:

    live files             some 750 bytes each, nearly all in the columns of the snapshot; no Python
                           object is made for a file that the report does not name, but of a
                           clustered table
    commits in the log     an object each, for their times; those that were cleaned up cost nothing
    adds and removes       of the commits that are read, as columns; each is read once
    files in the folder    100 bytes for each that no live entry refers to, 8 for each that the log
                           refers to

Without a listing, the folder costs nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.actions import VECTOR, JsonActions
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.history import CommitTimes, as_string, commit_times, read_commit_info
from delvec.delta.log.paths import canonicalize_paths
from delvec.delta.log.segment import LogFile
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.maintain.available_files import file_keys
from delvec.delta.maintain.clustered_files import clustering_sums
from delvec.delta.maintain.compaction import CompactionRule, compaction_sums, live_bytes
from delvec.delta.skipping.clustering import clustered_by, column_names
from delvec.delta.vacuum.candidates import folds_names, unreferenced_files, without_recent
from delvec.delta.vacuum.references import KeySet, references
from delvec.delta.vacuum.retention import HOUR_MS, Retention, read_commits, retention_of
from delvec.delta.write.after_commit import checkpoint_interval
from delvec.delta.write.writable import require_writable
from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.inspection import figures, ranking
from delvec.inspection.advice import advise
from delvec.inspection.report import InspectReport
from delvec.report.format import format_count, outside_note
from delvec.report.rendering import Stopwatch

LISTED: Final = 100_000
"""The live files of a table whose folder is listed without being asked for it."""
_EVER: Final = 1 << 62
_ADD: Final = pa.struct(
    [("path", pa.string()), ("deletionVector", VECTOR), ("dataChange", pa.bool_())]
)
_REMOVE: Final = pa.struct([("path", pa.string()), ("deletionVector", VECTOR)])
_SCHEMA: Final = pa.schema([("add", _ADD), ("remove", _REMOVE)])
_EVENTS: Final = pa.schema(
    {
        "key": pa.large_string(),
        "commit": pa.int64(),
        "is_add": pa.bool_(),
        "was_live": pa.bool_(),
        "deleted": pa.int64(),
        "has_vector": pa.bool_(),
    }
)


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
        facts = files.paths, files.row_counts, files.deleted_rows, files.sizes
        columns = ranking.FileColumns(*facts)
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
        most_deleted=ranking.ranked_files(columns),
        partitions=ranking.ranked_partitions(
            columns,
            {
                each.name: files.partition_strings(each.physical_name)
                for each in files.metadata.partition_fields
            },
        ),
        sizes=ranking.size_classes(files.sizes),
        small_files=_small_files(snapshot),
        log=_log(snapshot, times),
        moments=past.moments,
        freed=frees,
        notes=tuple(_notes(files)),
        phases=watch.seconds,
    )
    return advise(report, partial(_require_possible, snapshot)) if is_newest else report


def _require_possible(snapshot: Snapshot, advice: figures.Advice) -> None:
    """Raise what a call that is advised would be refused with; `freed` knows that of a vacuum."""
    if advice.action in ("optimize", "purge"):
        require_writable(snapshot, "optimize")


def freed(
    snapshot: Snapshot,
    times: CommitTimes,
    *,
    is_newest: bool,
    listing: bool | None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> figures.Freed:
    """Return what a purge would free, by the log, and what a vacuum would, by a listing."""
    files, chosen = snapshot.files, snapshot.files.has_vector
    written = int(live_bytes(files)[chosen].sum())
    purged = figures.Rewritten(int(chosen.sum()), int(files.sizes[chosen].sum()), written)
    found = figures.Freed(rewrite=purged)
    try:
        retention = retention_of(snapshot)
        require_writable(snapshot, "vacuum")
    except (FormatError, UnsupportedFeatureError) as error:
        return replace(found, why_unknown=error.message)
    found = replace(found, retention_hours=retention.length_ms / HOUR_MS)
    if not is_newest:
        return replace(found, why_unknown="it is about the newest version")
    if listing is None and len(snapshot.files) > LISTED:
        why = f"over {LISTED:,} files; listing=True, or --listing, lists them"
        return replace(found, why_unknown=why)
    if listing is False:
        return replace(found, why_unknown="the folder was not to be listed")
    found = _with_dead_files(found, snapshot, retention, on_progress)
    return _with_first_kept(found, times, retention.before_ms) if found.vacuum_files else found


@dataclass(frozen=True)
class VectorHistory:
    """What the newest commits tell of vectors."""

    moments: tuple[figures.Moment, ...]  # the state after each commit, oldest first
    times_ms: NDArray[np.int64]  # when each vector was committed; -1 if before these commits


def vector_history(snapshot: Snapshot, times: CommitTimes, limit: int) -> VectorHistory:
    """Return the state after each of the newest commits up to a version."""
    files = snapshot.files
    unknown = np.full(int(files.has_vector.sum()), -1, dtype=np.int64)
    if not limit:
        return VectorHistory((), unknown)
    commits = _adjacent(times, snapshot.version)[-limit:]
    pieces, moments = [_EVENTS.empty_table()], []
    read = read_commits(snapshot.storage, commits)
    for number, (commit, actions) in enumerate(zip(commits, read, strict=True)):
        info = read_commit_info(actions)
        name = as_string(info.get("operation")) or ""
        moments.append((commit.first, times.of_read(commit, info), name))
        pieces += _events(number, actions, snapshot.table)
    if not moments:
        return VectorHistory((), unknown)
    events = pa.concat_tables(pieces)
    effect, codes = _effects(events)
    states = _states(snapshot, events, effect, len(commits))
    made = [
        figures.Moment(*moment, *(int(number) for number in state))
        for moment, state in zip(moments, states, strict=True)
    ]
    stamps = np.array([moment for _, moment, _ in moments], dtype=np.int64)
    return VectorHistory(tuple(made), _births(snapshot, events, effect, codes, stamps))


def _with_dead_files(
    freed: figures.Freed,
    snapshot: Snapshot,
    retention: Retention,
    on_progress: Callable[[str, int, int], None] | None,
) -> figures.Freed:
    """Add the files that a vacuum deletes, as it does, and those that it will delete later.

    Files that the log never named are not counted before a vacuum deletes them: they may be of a
    writer that has not committed yet.
    """
    folds = folds_names(snapshot.storage)
    # Those of live files come first, so each set is made while they are read.
    parts = groupby(references(snapshot, retention.before_ms), key=attrgetter("is_live"))
    sets = {live: KeySet((each.keys for each in part), folds=folds) for live, part in parts}
    live, retained = sets[True], sets.get(False, KeySet(()))
    found = unreferenced_files(snapshot.storage, snapshot.metadata, live, _EVER, on_progress)
    paths = found.files["path"]
    chunks = [retained.contains(chunk.to_pylist()) for chunk in paths.chunks]
    is_retained = np.concatenate([np.empty(0, dtype=np.bool_), *chunks])
    modified = found.files["modified"].cast(pa.int64()).to_numpy()
    old = replace(found, files=found.files.filter(~is_retained & (modified < retention.before_ms)))
    gone = without_recent(snapshot, old, retention)
    kept = pc.sum(found.files["bytes"].filter(pa.array(is_retained)), min_count=0).as_py()
    later = int(kept) + old.bytes - gone.bytes
    return replace(freed, vacuum=gone.bytes, vacuum_files=gone.files.num_rows, later=later)


def _with_first_kept(found: figures.Freed, times: CommitTimes, before_ms: int) -> figures.Freed:
    """Add the version that was current when the retention began; those before it lose files."""
    low, high = times.comparable(before_ms)
    place = bisect_right(times.commits, before_ms, low, high, key=times.of) - 1
    if place <= 0:
        return found
    first = times.commits[place]
    return replace(found, first_kept=first.first, first_kept_ms=times.of(first))


def _events(number: int, actions: JsonActions, root: str) -> Iterator[pa.Table]:
    """Yield the removes and the adds of one commit, in columns."""
    table = actions.columns(_SCHEMA)
    adds, removes = (table.column(name).combine_chunks().drop_null() for name in ("add", "remove"))
    # Such a commit moves no row, and takes no file away: its files have been there before.
    changes = pc.fill_null(pc.struct_field(adds, "dataChange"), True).to_numpy(False)
    again = ~changes & (len(removes) == 0)
    for found, is_add in ((removes, False), (adds, True)):
        vectors = pc.struct_field(found, "deletionVector")
        rows, size = (
            pc.fill_null(pc.struct_field(vectors, [name]), 0).to_numpy(zero_copy_only=False)
            for name in ("cardinality", "sizeInBytes")
        )
        paths = canonicalize_paths(pc.struct_field(found, "path"), root)
        columns = {
            "key": file_keys(paths, vectors),
            "commit": np.full(len(found), number),
            "is_add": np.full(len(found), is_add),
            "was_live": again if is_add else np.ones(len(found), dtype=np.bool_),
            "deleted": rows,
            "has_vector": (rows != 0) | (size != 0),
        }
        yield pa.table(columns, schema=_EVENTS)


def _adjacent(times: CommitTimes, version: int) -> Sequence[LogFile]:
    """Return the commits up to a version, from the first on after which none is missing."""
    found: list[LogFile] = []
    for commit in reversed(times.commits):
        if commit.first > version:
            continue
        if commit.first != version - len(found):
            break
        found.append(commit)
    return found[::-1]


def _effects(events: pa.Table) -> tuple[NDArray[np.int64], pa.DictionaryArray]:
    """Return what each event does to the number of live entries, and the key of each, encoded."""
    codes = events["key"].combine_chunks().dictionary_encode()
    numbers = codes.indices.to_numpy()
    commit, is_add, was_live = (events[n].to_numpy() for n in ("commit", "is_add", "was_live"))
    order = np.lexsort((commit, numbers))
    after = is_add[order].astype(np.int64)
    before = np.empty_like(after)
    before[1:] = after[:-1]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = numbers[order][1:] != numbers[order][:-1]
    before[first] = was_live[order][first]
    effect = np.empty_like(after)
    effect[order] = after - before
    return effect, codes


def _states(
    snapshot: Snapshot, events: pa.Table, effect: NDArray[np.int64], commits: int
) -> NDArray[np.int64]:
    files = snapshot.files
    newest = np.array([len(files), files.has_vector.sum(), files.deleted_rows.sum()])
    changes = np.zeros((commits, 3), dtype=np.int64)
    commit = events["commit"].to_numpy()
    np.add.at(changes[:, 0], commit, effect)
    np.add.at(changes[:, 1], commit, effect * events["has_vector"].to_numpy())
    np.add.at(changes[:, 2], commit, effect * events["deleted"].to_numpy())
    undone = np.cumsum(changes[::-1], axis=0)[::-1]
    later = np.vstack([undone[1:], np.zeros((1, 3), dtype=np.int64)])
    states: NDArray[np.int64] = newest - later
    return states


def _births(
    snapshot: Snapshot,
    events: pa.Table,
    effect: NDArray[np.int64],
    codes: pa.DictionaryArray,
    stamps: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return when the vector of each file that has one was committed; -1 if that is not known."""
    files = snapshot.files
    with_vector = pa.array(files.has_vector)
    live = file_keys(files.paths.filter(with_vector), files.vectors.filter(with_vector))
    births = np.full(len(codes.dictionary), -1, dtype=np.int64)
    made = effect > 0
    # Later commits overwrite earlier ones: the last that made an entry live counts.
    births[codes.indices.to_numpy()[made]] = stamps[events["commit"].to_numpy()[made]]
    places = pc.fill_null(pc.index_in(live, codes.dictionary), -1).to_numpy(zero_copy_only=False)
    found = np.full(len(live), -1, dtype=np.int64)
    found[places >= 0] = births[places[places >= 0]]
    return found


def _sum(counts: Any) -> int:  # noqa: ANN401 - an array of Arrow
    return int(pc.sum(counts, min_count=0).as_py())


def _vectors(files: FileSet, times_ms: NDArray[np.int64], now_ms: int) -> figures.VectorFigures:
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
    return figures.VectorFigures(
        count=len(with_vector),
        bytes=_sum(sizes),
        kinds=dict(sorted(counts.items(), key=lambda each: -each[1])),
        stored_in=int(pc.count_distinct(places).as_py()),
        oldest_ms=int(known.min()) if is_known else None,
        newest_ms=int(known.max()) if len(known) else None,
        ages=ranking.ages(times_ms, now_ms),
    )


def _small_files(snapshot: Snapshot) -> figures.SmallFiles:
    """Return what an `optimize()` would put together, without files with deleted rows and with."""
    files, metadata = snapshot.files, snapshot.metadata
    rule = CompactionRule.of(metadata, max_deleted_ratio=1.0)
    small = int((live_bytes(files) < rule.min_size).sum())
    try:
        columns = column_names(metadata, clustered_by(snapshot.domains))
    except FormatError:  # a damaged domain, which optimize() refuses, keeps nobody from the figures
        columns = []
    sums = partial(clustering_sums, columns=columns) if columns else compaction_sums
    alone, bins = sums(files, rule=rule)
    both, _ = sums(files, rule=replace(rule, max_deleted_ratio=0.0))
    return figures.SmallFiles(small, rule.min_size, alone.files, bins, alone, both)


def _log(snapshot: Snapshot, times: CommitTimes) -> figures.LogFigures:
    checkpoint = snapshot.segment.checkpoint
    last = None if checkpoint is None else checkpoint.version
    since = snapshot.version - (-1 if last is None else last)
    return figures.LogFigures(
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
            f"the log has no row count of {format_count(unknown, 'file')}: how many rows are live,"
            " only the data can tell"
        )
