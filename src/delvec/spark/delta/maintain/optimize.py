"""OPTIMIZE, Z-order and PURGE: files become new ones with the same rows.

Only files change: appends and deletes that are committed meanwhile stay, see
`delta.write.conflicts.rebase_rewrite`. After PURGE deleted rows and dropped columns are in no live
file. The old files stay until VACUUM, for readers of older versions.

By Z-order rows that are close in several columns come to the same files, so that filters on any of
these columns rule out most files. Each column is cut into ranges of about as many rows each, by a
sample. The numbers of a row's ranges, their bits interleaved, are its place on a curve that fills
the space, and rows are sorted by it. Costs a scan for the sample, and a scan and a shuffle of all
rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.delta.alter.table_state import TableState
from delvec.delta.maintain.compaction import CompactionRule, compaction_bins, live_bytes, purge_bins
from delvec.delta.read.data_file import have_dropped
from delvec.delta.schema.traversal import resolve
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.skipping.statistics import indexed_columns
from delvec.delta.write.change import Change, Operation, Rewrite
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import EngineError, InvalidArgumentError, UnsupportedFeatureError
from delvec.identifiers import quote, split_path
from delvec.report.hints import call, format_hint
from delvec.spark.delta.maintain.rewrite_files import live_count, rewrite_files
from delvec.spark.delta.scan.conditions import aliased, to_predicate, to_sql
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.rewrite import id_names, read_live_rows, store_rows
from delvec.spark.engine import time_zone

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

    Kind = Literal["OPTIMIZE", "REORG"]

_MOST: Final = 7  # with more, the bits of their ranges do not fit a long
_SAMPLE: Final = 100_000
_BITS: Final = 8  # of the number of a range
_BOUNDS, _PLACE = "__delvec_bounds", "__delvec_place"


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
    metadata: Metadata, kind: Kind, where: str | Column | None, zorder_by: Sequence[str] = ()
) -> Operation:
    """Return the operation with its parameters, as delta-spark names them."""
    predicate = json.dumps([] if where is None else [to_sql(where)])
    more: dict[str, Any] = {"applyPurge": True}
    if kind == "OPTIMIZE":
        more = {"zOrderBy": json.dumps(list(zorder_by)), "clusterBy": "[]", "auto": False}
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


def zorder(
    columns: Sequence[str],
    rule: Callable[[Metadata], CompactionRule],
    where: str | Column | None = None,
) -> Callable[[Attempt], Outcome]:
    """Prepare to rewrite files so that rows are in the order of several columns at once."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "optimize")
            _require_unclustered(snapshot)
            if len(columns) > _MOST:
                raise InvalidArgumentError(
                    f"zorder_by has {len(columns)} columns, where {_MOST} are the most",
                    hint="name the few columns that filters use; each more weakens the others",
                )
            names = [_checked(snapshot.metadata, each) for each in columns]
            files = snapshot.files.select(chosen_files(attempt, where))
            rows = live_count(attempt, files)
        if not len(files):
            return Outcome(None)
        change = Change(
            operation_of(snapshot.metadata, "OPTIMIZE", where, columns),
            removed=tuple(files.entries()),
            data_change=False,
        )
        figures = {"rows_copied": rows}
        if attempt.options.dry_run:
            return Outcome(change, figures)
        count = _file_count(files, rule(snapshot.metadata).target_size)
        live = read_live_rows(attempt.spark, snapshot, files)
        ordered = _ordered(attempt, live, names, rows, count)
        written = store_rows(attempt, TableState.of(snapshot), ordered)
        if written.rows != rows:
            raise EngineError(
                f"Spark wrote {written.rows:,} rows in place of the {rows:,} live rows of"
                f" {len(files):,} files of {snapshot.table}",
                hint="nothing was changed; does `delvec check` find damage?",
            )
        added = tuple({**body, "dataChange": False} for body in written.adds)
        return Outcome(replace(change, added=added), figures)

    return prepare


def _require_unclustered(snapshot: Snapshot) -> None:
    """Refuse a table that has an order of its own, which a Z-order would undo; so does Delta."""
    if "clustering" not in snapshot.protocol.supported:
        return
    raise UnsupportedFeatureError(
        f"{snapshot.table} is clustered: a Z-order would undo the order that it has",
        feature="clustering",
        needed_by=snapshot.table,
        hint=format_hint(
            "delta-spark's OPTIMIZE clusters it; {} puts small files together", call("optimize")
        ),
    )


def _checked(metadata: Metadata, column: str) -> str:
    path = resolve(metadata.schema, split_path(column))
    name = ".".join(quote(each.name) for each in path)
    if path[0].name in {field.name for field in metadata.partition_fields}:
        raise InvalidArgumentError(
            f"{column} is a partition column: all rows of a file have the same value already",
            hint="name other columns in zorder_by",
        )
    if not isinstance(path[-1].type, PrimitiveType) or str(path[-1].type) in ("variant", "void"):
        raise InvalidArgumentError(
            f"{column} is of the type {path[-1].type}, whose values have no order",
            hint="name columns of numbers, strings, dates or timestamps in zorder_by",
        )
    try:
        resolve(indexed_columns(metadata), [each.name for each in path])
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{column} has no statistics, so that its order would rule out no file",
            hint="let delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols include"
            " it",
        ) from error
    return name


def _file_count(files: FileSet, target: int) -> int:
    """Return how many files the rows fill; each partition has one at least."""
    live, names = live_bytes(files), [f.physical_name for f in files.metadata.partition_fields]
    values = [files.partition_strings(name).to_pylist() for name in names]
    sizes: dict[tuple[str | None, ...], int] = {}
    keys = zip(*values, strict=True) if values else ((),) * len(files)
    for key, size in zip(keys, live.tolist(), strict=True):
        sizes[key] = sizes.get(key, 0) + size
    return sum(max(1, -(-size // target)) for size in sizes.values())


def _ordered(
    attempt: Attempt, rows: DataFrame, names: Sequence[str], count: int, files: int
) -> DataFrame:
    partitions = [quote(f.name) for f in attempt.snapshot.metadata.partition_fields]
    given = rows.columns
    if len(names) == 1:
        placed = rows.withColumn(_PLACE, F.col(names[0]))
    else:
        placed = _placed(rows, names, min(1.0, _SAMPLE / max(count, 1)))
    order = [*map(F.col, partitions), F.col(_PLACE)]
    ranged = placed.repartitionByRange(files, *order).sortWithinPartitions(*order)
    return ranged.select(*map(quote, given))


def _placed(rows: DataFrame, names: Sequence[str], share: float) -> DataFrame:
    """Return rows with their place on the curve.

    The bounds are constants of the query, and each step of the search a column of its own: so Spark
    compiles it. As a loop over an array it would interpret it, row by row.
    """
    bounds = _bounds(rows.sample(share, seed=1), names)
    numbers = rows
    for at, name in enumerate(names):
        numbers = numbers.withColumn(f"{_PLACE}{at}", F.lit(0))
        for step in (1 << bit for bit in reversed(range(_BITS))):
            number = F.col(f"{_PLACE}{at}")
            # NULL is in the first range.
            is_beyond = F.get(bounds[f"{_BOUNDS}{at}"], number + (step - 1)) <= F.col(name)
            found = F.when(is_beyond, number + step).otherwise(number)
            numbers = numbers.withColumn(f"{_PLACE}{at}", found)
    width = len(names)
    place = " | ".join(
        f"shiftleft(bigint(shiftright({_PLACE}{at}, {bit}) & 1), {bit * width + width - 1 - at})"
        for bit in range(_BITS)
        for at in range(width)
    )
    return numbers.withColumn(_PLACE, F.expr(place))


def _bounds(sample: DataFrame, names: Sequence[str]) -> Column:
    """Return the values that cut a sample into ranges of as many rows each, as one subquery.

    It is a struct with an array for each column; Spark runs it once, however often it is used.
    """
    count = 1 << _BITS
    columns = {f"{_BOUNDS}{at}": name for at, name in enumerate(names)}
    values = sample.agg(
        *(F.sort_array(F.collect_list(F.col(sql))).alias(name) for name, sql in columns.items())
    )
    # The name of a lambda's variable would hide a column of the same name.
    cuts = [
        F.expr(
            f"transform(sequence(1, {count - 1}), __delvec_i ->"
            f" get({name}, int(__delvec_i * size({name}) / {count})))"
        ).alias(name)
        for name in columns
    ]
    return values.select(F.struct(*cuts)).scalar()
