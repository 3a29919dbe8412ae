"""Z-order: rows that are close in several columns come to the same files.

So filters on any of these columns rule out most files. Each column is cut into ranges of about as
many rows each, by a sample. The numbers of a row's ranges, their bits interleaved, are its place on
a curve that fills the space, and rows are sorted by it. Costs a scan for the sample, and a scan and
a shuffle of the rows. OPTIMIZE orders the rows of all files by columns that it is told, or those of
a clustered table by its own, file by file as they come: see `delta.maintain.clustered_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.delta.alter.table_state import TableState
from delvec.delta.maintain.clustered_files import files_to_cluster, new_cube
from delvec.delta.maintain.compaction import CompactionRule, live_bytes
from delvec.delta.schema.traversal import resolve
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.skipping.clustering import clustered_by, column_names
from delvec.delta.skipping.statistics import has_statistics
from delvec.delta.write.change import Change, Operation
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import EngineError, InvalidArgumentError, UnsupportedFeatureError
from delvec.identifiers import quote, split_path
from delvec.report.hints import call, format_hint
from delvec.spark.delta.maintain.optimize import chosen_files, compact, operation_of
from delvec.spark.delta.maintain.rewrite_files import live_count
from delvec.spark.delta.write.rewrite import read_live_rows, store_rows

if TYPE_CHECKING:
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

_MOST: Final = 7  # with more, the bits of their ranges do not fit a long
_SAMPLE: Final = 100_000
_BITS: Final = 8  # of the number of a range
_BOUNDS, _PLACE = "__delvec_bounds", "__delvec_place"


def optimize(
    rule: Callable[[Metadata], CompactionRule],
    where: str | Column | None = None,
    zorder_by: Sequence[str] = (),
    *,
    full: bool = False,
) -> Callable[[Attempt], Outcome]:
    """Prepare an OPTIMIZE: of a clustered table in its order, of others in one that is asked for.

    Without an order small files are put together. The rule returns sizes and shares for a table.
    """

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        columns = column_names(snapshot.metadata, clustered_by(snapshot.domains))
        if columns:
            _require_whole(snapshot, columns, where, zorder_by)
            return _clustered(attempt, columns, rule, full=full)
        if full:
            raise InvalidArgumentError(
                f"{snapshot.table} is not clustered, and only clustered tables are optimized in"
                " full",
                hint="leave out full, or name columns first: ALTER TABLE ... CLUSTER BY (columns)",
            )
        if zorder_by:
            return _zordered(attempt, zorder_by, rule, where)
        return compact("OPTIMIZE", rule, where)(attempt)

    return prepare


def _require_whole(
    snapshot: Snapshot, columns: Sequence[str], where: str | Column | None, zorder_by: Sequence[str]
) -> None:
    """Refuse what would undo the order that a clustered table has; so does delta-spark."""
    if not zorder_by and where is None:
        return
    what = "a Z-order would undo it" if zorder_by else "it has no partitions to choose from"
    raise UnsupportedFeatureError(
        f"{snapshot.table} is clustered by {', '.join(columns)}: {what}",
        feature="clustering",
        needed_by=snapshot.table,
        hint=format_hint("{} without arguments orders its new files", call("optimize")),
    )


def _zordered(
    attempt: Attempt,
    columns: Sequence[str],
    rule: Callable[[Metadata], CompactionRule],
    where: str | Column | None,
) -> Outcome:
    metadata = attempt.snapshot.metadata
    with attempt.phase("plan"):
        require_writable(attempt.snapshot, "optimize")
        if len(columns) > _MOST:
            raise InvalidArgumentError(
                f"zorder_by has {len(columns)} columns, where {_MOST} are the most",
                hint="name the few columns that filters use; each more weakens the others",
            )
        names = [_checked(metadata, each) for each in columns]
        files = attempt.snapshot.files.select(chosen_files(attempt, where))
    operation = operation_of(metadata, "OPTIMIZE", where, columns)
    return _reordered(attempt, files, names, rule(metadata).target_size, operation)


def _clustered(
    attempt: Attempt,
    columns: Sequence[str],
    rule: Callable[[Metadata], CompactionRule],
    *,
    full: bool,
) -> Outcome:
    metadata, files = attempt.snapshot.metadata, attempt.snapshot.files
    with attempt.phase("plan"):
        require_writable(attempt.snapshot, "optimize")
        asked = rule(metadata)
        files = files.select(files_to_cluster(files, columns, asked, full=full))
    operation = operation_of(metadata, "OPTIMIZE", None, cluster_by=columns)
    operation = replace(operation, parameters={**operation.parameters, "isFull": full})
    return _reordered(attempt, files, columns, asked.target_size, operation, new_cube(columns))


def _reordered(
    attempt: Attempt,
    files: FileSet,
    names: Sequence[str],
    target_size: int,
    operation: Operation,
    more: Mapping[str, Any] | None = None,
) -> Outcome:
    """Write the rows of files in the order of columns; `more` is for the entries of new files."""
    snapshot = attempt.snapshot
    if not len(files):
        return Outcome(None)
    with attempt.phase("plan"):
        rows = live_count(attempt, files)
    change = Change(operation, removed=tuple(files.entries()), data_change=False)
    figures = {"rows_copied": rows}
    if attempt.options.dry_run:
        return Outcome(change, figures)
    live = read_live_rows(attempt.spark, snapshot, files)
    ordered = _ordered(attempt, live, names, rows, _file_count(files, target_size))
    written = store_rows(attempt, TableState.of(snapshot), ordered)
    if written.rows != rows:
        raise EngineError(
            f"Spark wrote {written.rows:,} rows in place of the {rows:,} live rows of"
            f" {len(files):,} files of {snapshot.table}",
            hint="nothing was changed; does `delvec check` find damage?",
        )
    added = tuple({**body, "dataChange": False, **(more or {})} for body in written.adds)
    return Outcome(replace(change, added=added), figures)


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
    if not has_statistics(metadata, [each.name for each in path]):
        raise InvalidArgumentError(
            f"{column} has no statistics, so that its order would rule out no file",
            hint="let delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols include"
            " it",
        )
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
