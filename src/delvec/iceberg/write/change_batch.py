"""A batch of changes: rows to be written, and the keys whose older rows are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote, require_no_own_names
from delvec.report.hints import argument, format_hint
from delvec.spark import jvm
from delvec.spark.failures import translate_errors
from delvec.spark.jobs import stage_rows

if TYPE_CHECKING:
    from delvec.spark.input.key_values import KeyColumn

_DELETED: Final = "__delvec_deleted"
_PLACE: Final = "__delvec_place"
_ROW: Final = "__delvec_row"


@dataclass(frozen=True)
class Batch:
    """The parts of a batch of changes, each row of which has a key of its own.

    `rows` are to be written, `keys` are those of all changes, deletes included, and `duplicates`
    counts rows that were dropped for later ones of the same key.
    """

    rows: DataFrame
    keys: DataFrame
    duplicates: int


@contextmanager
def change_batch(
    changes: DataFrame,
    schema: Mapping[str, Any],
    keys: Sequence[KeyColumn],
    *,
    delete_where: str | Column | None,
    duplicates: str,
    order_by: str | Column | None,
    table: str,
) -> Iterator[Batch]:
    """Split a batch of changes; it is computed once, and held by the executors for the block."""
    columns = [field["name"] for field in schema["fields"]]
    require_no_own_names(columns, table)
    for expression in (delete_where, order_by):
        _require_no_order(expression, changes.sparkSession)
    require_columns(changes, columns, (delete_where, order_by), table)
    deleted = F.lit(False) if delete_where is None else _column(delete_where)
    order = F.lit(0) if order_by is None else _column(order_by)
    marked = changes.select(
        *(quote(name) for name in columns),
        F.coalesce(deleted.cast("boolean"), F.lit(False)).alias(_DELETED),
        F.struct(order.alias("order"), F.monotonically_increasing_id().alias("row")).alias(_PLACE),
    )
    with translate_errors(table), stage_rows(marked) as kept:
        dropped = _duplicates(kept, keys, duplicates, table)
        last = _last(kept, keys) if dropped else kept
        rows = last.where(~F.col(_DELETED)).select(*(quote(name) for name in columns))
        named = [F.col(quote(key.name)).alias(key.name) for key in keys]
        yield Batch(rows, kept.select(*named), dropped)


def _last(rows: DataFrame, keys: Sequence[KeyColumn]) -> DataFrame:
    """Return the last change of each key."""
    kept = F.struct(*(quote(name) for name in rows.columns if name != _PLACE))
    newest = F.max_by(kept, F.col(_PLACE)).alias(_ROW)
    grouped = rows.groupBy(*(_stored(key).alias(f"{_ROW}{at}") for at, key in enumerate(keys)))
    return grouped.agg(newest).select(f"{_ROW}.*")


def _duplicates(rows: DataFrame, keys: Sequence[KeyColumn], choice: str, table: str) -> int:
    """Return how many changes have a key that a later change has, too."""
    counts = rows.groupBy(*map(_stored, keys)).agg(F.count("*").alias(_ROW))
    repeated = counts.where(F.col(_ROW) > 1)
    if choice == "last":
        found = repeated.agg(F.sum(F.col(_ROW) - 1)).first()
        return 0 if found is None or found[0] is None else int(found[0])
    first = repeated.first()
    if first is not None:
        shown = ", ".join(f"{key.name}={value}" for key, value in zip(keys, first, strict=False))
        raise InvalidArgumentError(
            f"the batch for {table} has {first[-1]} changes of the key {shown}",
            hint=format_hint(
                "pass {} to take the last of them, by {} if given, or make the keys unique",
                argument(duplicates="last"),
                argument(order_by=None),
            ),
        )
    return 0


def require_columns(
    changes: DataFrame,
    columns: Sequence[str],
    conditions: Sequence[str | Column | None],
    table: str,
) -> None:
    """Refuse changes that lack a column, which would become null, and columns that would be lost.

    Columns that only tell what to do with a change are not stored.
    """
    exact = changes.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    same = str if exact else str.lower
    given = {same(name) for name in changes.columns}
    missing = [name for name in columns if same(name) not in given]
    if missing:
        raise InvalidArgumentError(
            f"the changes lack {', '.join(missing)} of {table}",
            hint="an upsert replaces whole rows: select all columns of the table",
        )
    known = {same(name) for name in columns}
    used = {same(name) for each in conditions if each is not None for name in _used(changes, each)}
    unknown = [name for name in changes.columns if same(name) not in known | used]
    if unknown:
        raise InvalidArgumentError(
            f"{table} has no column {', '.join(unknown)}",
            hint="drop it from the changes, or add it to the table first",
        )


def _used(changes: DataFrame, condition: str | Column) -> list[str]:
    """Return the columns that an expression refers to."""
    plan: Any = changes.select(_column(condition))._jdf.queryExecution().analyzed()  # noqa: SLF001
    return [str(each.name()) for each in jvm.items(plan.references())]


def _column(expression: str | Column) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def _require_no_order(expression: str | Column | None, spark: SparkSession) -> None:
    """Refuse `seq DESC`, which Spark takes for a column `seq` under the name DESC."""
    if not isinstance(expression, str):
        return
    with translate_errors(expression):
        parsed = jvm.session_of(spark).sessionState().sqlParser().parseExpression(expression)
    if jvm.class_name(parsed) in ("Alias", "UnresolvedAlias"):
        raise InvalidArgumentError(
            f"{expression!r} is an expression and a name for it",
            hint="the row with the highest value is the last; negate it for the lowest",
        )


def _stored(key: KeyColumn) -> Column:
    """Return a key as the table has it; UUIDs are strings to Spark, in either case."""
    column = F.col(quote(key.name))
    return F.lower(column) if key.type == "uuid" else column
