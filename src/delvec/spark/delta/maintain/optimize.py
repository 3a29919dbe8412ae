"""OPTIMIZE and PURGE: small files and files with deleted rows become new ones with the same rows.

Only files change, so that writers of other rows need not wait: appends and deletes that are
committed meanwhile stay, see `delta.write.carry_over`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.maintain.compaction import compaction_bins, purge_bins
from delvec.delta.write.change import Change, Rewrite
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable
from delvec.spark.conf import time_zone
from delvec.spark.delta.maintain.rewrite_files import rewrite_files
from delvec.spark.delta.scan.conditions import aliased, predicate_of, sql_of
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.row_tracking import id_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray
    from pyspark.sql import Column

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.compaction import CompactionRule
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.write.transaction import Attempt

    Operation = Literal["OPTIMIZE", "REORG"]

__all__ = ["chosen_files", "compact", "parameters_of"]


def compact(
    operation: Operation,
    rule: Callable[[Metadata], CompactionRule],
    where: str | Column | None = None,
) -> Callable[[Attempt], Outcome]:
    """Prepare to rewrite files.

    Args:
        operation: OPTIMIZE rewrites small files and those with many deleted rows, REORG exactly
            those that have a vector.
        rule: Returns sizes and shares for a table.
        where: Only files that may have rows that satisfy it.
    """
    bins_of = compaction_bins if operation == "OPTIMIZE" else purge_bins

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "optimize")
            chosen = chosen_files(attempt, where)
            bins = bins_of(snapshot.files, chosen, rule(snapshot.metadata))
        if not bins:
            return Outcome(None)
        change = Change(
            operation,
            parameters_of(operation, where),
            data_change=False,
            keeps_row_ids=bool(id_names(snapshot.metadata)),
            transaction=attempt.options.transaction,
            user_metadata=attempt.options.commit_metadata,
        )
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
    predicate = predicate_of(spark, schema, where)
    matching = files.may_match(predicate, time_zone(spark))
    # Tight bounds say nothing of rows that a vector deletes.
    tight = files.statistic(("tightBounds",), pa.bool_())
    if tight is None:
        return matching | files.has_vector
    is_tight = pc.fill_null(tight, True).to_numpy(zero_copy_only=False)
    return matching | (files.has_vector & np.asarray(is_tight, dtype=np.bool_))


def parameters_of(
    operation: Operation, where: str | Column | None, zorder_by: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Return the parameters of the operation in the history, as delta-spark names them."""
    predicate = json.dumps([] if where is None else [sql_of(where)])
    if operation == "REORG":
        return {"predicate": predicate, "applyPurge": True}
    return {
        "predicate": predicate,
        "zOrderBy": json.dumps(list(zorder_by)),
        "clusterBy": "[]",
        "auto": False,
    }


def _planned(snapshot: Snapshot, change: Change, bins: Sequence[NDArray[np.int64]]) -> Outcome:
    files = snapshot.files
    numbers = np.sort(np.concatenate(bins))
    left = files.live_rows.take(numbers).fill_null(0).to_numpy()
    rewrites = tuple(Rewrite(tuple(files.entries(each)), None, 0) for each in bins)
    count = len(bins)
    note = f"{len(numbers):,} files would become {count:,}"
    return Outcome(replace(change, rewrites=rewrites), {"rows_copied": int(left.sum())}, (note,))
