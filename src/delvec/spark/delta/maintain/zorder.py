"""Z-order: rows that are close in several columns come to the same files.

So filters on any of these columns rule out most files. Each column is cut into ranges of about as
many rows each, by a sample. The numbers of a row's ranges, their bits interleaved, are its place on
a curve that fills the space, and rows are sorted by it. Costs a scan for the sample, and a scan and
a shuffle of all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from delvec.delta.alter.table_state import TableState
from delvec.delta.maintain.compaction import live_bytes
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.schema.walk import resolve
from delvec.delta.stats.indexed_columns import indexed_columns
from delvec.delta.write.change import Change
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import EngineError, InvalidArgumentError
from delvec.identifiers import quote, split_path
from delvec.spark.delta.maintain.optimize import chosen_files, parameters_of
from delvec.spark.delta.maintain.rewrite_files import live_counts, live_rows
from delvec.spark.delta.write.rewrite import store_rows
from delvec.spark.delta.write.row_tracking import id_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.maintain.compaction import CompactionRule
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.write.transaction import Attempt

__all__ = ["zorder"]

_MOST: Final = 7  # with more, the bits of their ranges do not fit a long
_SAMPLE: Final = 100_000
_BITS: Final = 8  # of the number of a range
_BOUNDS, _PLACE = "__delvec_bounds", "__delvec_place"


def zorder(
    columns: Sequence[str],
    rule: Callable[[Metadata], CompactionRule],
    where: str | Column | None = None,
) -> Callable[[Attempt], Outcome]:
    """Prepare to rewrite files so that rows are in the order of several columns at once.

    Args:
        columns: The columns, in any order.
        rule: Returns the size of new files for a table.
        where: Only files that may have rows that satisfy it.
    """

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "optimize")
            if len(columns) > _MOST:
                raise InvalidArgumentError(
                    f"zorder_by has {len(columns)} columns, where {_MOST} are the most",
                    hint="name the few columns that filters use; each more weakens the others",
                )
            names = [_checked(snapshot.metadata, each) for each in columns]
            files = snapshot.files.select(chosen_files(attempt, where))
            rows = sum(live_counts(attempt, files))
        if not len(files):
            return Outcome(None)
        change = Change(
            "OPTIMIZE",
            parameters_of("OPTIMIZE", where, columns),
            removed=tuple(files.entries()),
            data_change=False,
            keeps_row_ids=bool(id_names(snapshot.metadata)),
            transaction=attempt.options.transaction,
            user_metadata=attempt.options.commit_metadata,
        )
        figures = {"rows_copied": rows}
        if attempt.options.dry_run:
            return Outcome(change, figures)
        count = _file_count(files, rule(snapshot.metadata).target_size)
        ordered = _ordered(attempt, live_rows(attempt, files), names, rows, count)
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


def _checked(metadata: Metadata, column: str) -> str:
    """Return a column as SQL.

    Raises:
        InvalidArgumentError: There is no such column, or ordering by it is of no use.
    """
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
