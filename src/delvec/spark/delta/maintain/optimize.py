"""OPTIMIZE and PURGE: files become new ones with the same rows.

Only files change: appends and deletes that are committed meanwhile stay, see
`delta.write.conflicts.rebase_rewrite`. After PURGE deleted rows and dropped columns are in no live
file. The old files stay until VACUUM, for readers of older versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column

from delvec.delta.maintain.compaction import CompactionRule, compaction_bins, purge_bins
from delvec.delta.read.data_file import have_dropped
from delvec.delta.write.change import Change, Operation, Rewrite
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.spark.delta.maintain.rewrite_files import rewrite_files
from delvec.spark.delta.scan.conditions import aliased, to_predicate, to_sql
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.rewrite import id_names
from delvec.spark.engine import time_zone

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

    Kind = Literal["OPTIMIZE", "REORG"]


def compact(
    kind: Kind,
    rule: Callable[[Metadata], CompactionRule],
    where: str | Column | None = None,
    *,
    dropped_columns: bool = False,
) -> Callable[[Attempt], Outcome]:
    """Prepare to rewrite files: those that may have rows that satisfy a condition.

    OPTIMIZE rewrites small files and those with many deleted rows, REORG exactly those that have a
    vector, and if asked those with columns that were dropped. The rule returns sizes and shares for
    a table.
    """

    def bins_of(attempt: Attempt) -> list[NDArray[np.int64]]:
        files, chosen = attempt.snapshot.files, chosen_files(attempt, where)
        sizes, zone = rule(attempt.snapshot.metadata), time_zone(attempt.spark)
        if kind == "OPTIMIZE":
            return compaction_bins(files, chosen, sizes, zone)
        wanted = chosen & files.has_vector
        if dropped_columns:
            others = np.flatnonzero(chosen & ~wanted)
            wanted[others] = have_dropped(attempt.storage, files.select(others))
        return purge_bins(files, wanted, sizes, zone)

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "optimize")
            bins = bins_of(attempt)
        if not bins:
            return Outcome(None)
        change = Change(operation_of(snapshot.metadata, kind, where), data_change=False)
        if attempt.options.dry_run:
            return _planned(snapshot, change, bins)
        rewrites = rewrite_files(attempt, bins)
        copied = sum(each.rows for each in rewrites)
        change = replace(change, rewrites=rewrites)
        return Outcome(change, {"rows_copied": copied})

    return prepare


def chosen_files(attempt: Attempt, where: str | Column | None) -> NDArray[np.bool_]:
    """Return which files may have rows that satisfy a condition, live or deleted, by the log."""
    snapshot, spark = attempt.snapshot, attempt.spark
    files = snapshot.files
    if where is None:
        return np.ones(len(files), dtype=np.bool_)
    # Spark explains a condition that is wrong; to the log it would just say nothing.
    schema = snapshot.metadata.schema
    none = scan(spark, snapshot, None, files.select(np.zeros(len(files), dtype=np.bool_)))
    aliased(none, schema).where(where)
    predicate = to_predicate(spark, schema, where)
    matching = files.may_match(predicate, time_zone(spark))
    # Tight bounds say nothing of rows that a vector deletes.
    tight = files.statistic(("tightBounds",), pa.bool_())
    if tight is None:
        return matching | files.has_vector
    is_tight = pc.fill_null(tight, True).to_numpy(zero_copy_only=False)
    return matching | (files.has_vector & np.asarray(is_tight, dtype=np.bool_))


def operation_of(
    metadata: Metadata,
    kind: Kind,
    where: str | Column | None,
    zorder_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
) -> Operation:
    """Return the operation with its parameters, as delta-spark names them."""
    predicate = json.dumps([] if where is None else [to_sql(where)])
    more: dict[str, Any] = {"applyPurge": True}
    if kind == "OPTIMIZE":
        orders = {"zOrderBy": list(zorder_by), "clusterBy": list(cluster_by)}
        more = {
            **{key: json.dumps(each, separators=(",", ":")) for key, each in orders.items()},
            "auto": False,
        }
    parameters = {"predicate": predicate, **more}
    return Operation(kind, parameters, keeps_row_ids=bool(id_names(metadata)))


def _planned(snapshot: Snapshot, change: Change, bins: Sequence[NDArray[np.int64]]) -> Outcome:
    files = snapshot.files
    numbers = np.sort(np.concatenate(bins))
    left = files.live_rows.take(numbers).fill_null(0).to_numpy()
    rewrites = tuple(Rewrite(tuple(files.entries(each)), None, 0) for each in bins)
    note = f"{len(numbers):,} files would become {len(bins):,}"
    return Outcome(replace(change, rewrites=rewrites), {"rows_copied": int(left.sum())}, (note,))


def purge(
    where: str | Column | None = None,
    *,
    target_size: int | None = None,
    dropped_columns: bool = True,
) -> Callable[[Attempt], Outcome]:
    """Prepare to rewrite exactly the files that have a vector, `target_size` live bytes to one.

    And those that have columns that were dropped, as delta-spark does.
    """
    rule = partial(CompactionRule.of, target_size=target_size)
    return compact("REORG", rule, where, dropped_columns=dropped_columns)
