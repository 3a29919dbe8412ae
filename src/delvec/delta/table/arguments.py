"""Arguments of `DeltaTable`'s methods: what is wrong with one, and the call that was meant."""

from __future__ import annotations

import os
from collections.abc import Mapping

from delvec.calls import shown
from delvec.errors import InvalidArgumentError

__all__ = [
    "require_condition",
    "require_session",
    "require_source",
    "require_values",
]


def require_session(spark: object, path: object) -> None:
    """Check the two arguments that open a table.

    Raises:
        InvalidArgumentError: One of them is missing, or they are swapped.
    """
    if isinstance(spark, str | os.PathLike) or not isinstance(path, str | os.PathLike):
        table = spark if isinstance(spark, str | os.PathLike) else path
        name = repr(os.fspath(table)) if isinstance(table, str | os.PathLike) else "path"
        raise InvalidArgumentError(
            f"a table is opened by a Spark session, or None, and a path, not by {shown(spark)} and"
            f" {shown(path)}",
            hint=f"call for_path(spark, {name}), or for_path(None, {name}) to read without Spark",
        )
    if spark is not None and not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(
            f"{shown(spark)} is not a Spark session",
            hint="start one by delvec.session(), or pass None for calls that need none",
        )


def require_condition(call: str, value: object, *, tuples: bool = False) -> None:
    """Check that a condition is SQL or a column of Spark; None is none.

    Args:
        call: The method that takes it.
        value: The condition.
        tuples: Whether the method takes tuples as well, which are not checked here.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if value is None or isinstance(value, str):
        return
    from pyspark.sql import Column, DataFrame  # noqa: PLC0415

    if isinstance(value, Column):
        return
    accepted = "tuples, SQL or a Column of Spark" if tuples else "SQL or a Column of Spark"
    hint = f'call {call}("id < 10")'
    if isinstance(value, bool):
        hint = f"for all rows call {call}() without a condition" if value else f'{call}("false")'
    elif isinstance(value, DataFrame):
        hint = "rows that another DataFrame names: merge(df, 't.id = s.id')"
    elif (sql := _as_sql(value)) is not None:
        hint = f"tuples are for to_arrow(); call {call}({sql!r})"
    raise InvalidArgumentError(
        f"a condition of {call}() is {accepted}, not {shown(value)}", hint=hint
    )


def _as_sql(filters: object) -> str | None:
    """Return tuples such as `[("id", "<", 10)]` as SQL; None if they are something else."""
    parts = []
    for each in filters if isinstance(filters, list | tuple) else [None]:
        match each:
            case (str(name), str(operator), bool() | int() | float() | str() as value):
                parts.append(f"{name} {operator} {value!r}")
            case _:
                return None
    return " AND ".join(parts) or None


def require_values(call: str, values: object, where: object = None) -> None:
    """Check that new values are a mapping from columns.

    Raises:
        InvalidArgumentError: They are not, such as a condition in their place.
    """
    if isinstance(values, Mapping) and all(isinstance(name, str) for name in values):
        if values:
            return
        raise InvalidArgumentError(f"{call}() needs at least one column to set")
    hint = f'call {call}({{"amount": "amount * 2"}}, "id < 10")'
    if isinstance(where, Mapping):
        hint = f"the values come first: call {call}({dict(where)!r}, {values!r})"
    raise InvalidArgumentError(
        f"the new values of {call}() are a mapping from columns to SQL or Columns of Spark, not"
        f" {shown(values)}",
        hint=hint,
    )


def require_source(call: str, source: object) -> None:
    """Check that rows to be written are a batch DataFrame of a classic session that is running.

    Raises:
        InvalidArgumentError: They are something else, a stream, or their session was stopped.
        UnsupportedFeatureError: They are of a Spark Connect session.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415

    if not isinstance(source, DataFrame):
        raise InvalidArgumentError(
            f"{call}() takes a DataFrame of Spark, not {shown(source)}",
            hint=f"call {call}(spark.createDataFrame(rows)), which takes pandas, Arrow and lists",
        )
    from delvec.spark.jvm import require_running  # noqa: PLC0415

    require_running(source.sparkSession, f"{call}()")
    if source.isStreaming:
        raise InvalidArgumentError(
            f"{call}() writes the rows of a batch, and this DataFrame is a stream",
            hint="write each batch: df.writeStream.foreachBatch(lambda batch, number:"
            f" table.{call}(batch, ..., txn_app_id='my-stream', txn_version=number)).start()",
        )
