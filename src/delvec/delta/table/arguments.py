"""Arguments of `DeltaTable`'s methods: what is wrong with one, and the call that was meant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delvec.calls import describe_value, require_condition
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.delta.table.handle import TableHandle

# What `functions.lit` takes, and what is of NumPy.
_PLAIN: Final = (
    *(str, bool, int, float, Decimal, bytes, bytearray),
    *(date, time, timedelta, list, tuple, Enum),
)


_T = TypeVar("_T")
_C = TypeVar("_C")


def require_session(spark: object, path: object) -> None:
    """Check the two arguments that open a table."""
    if isinstance(spark, str | os.PathLike) or not isinstance(path, str | os.PathLike):
        table = spark if isinstance(spark, str | os.PathLike) else path
        name = repr(os.fspath(table)) if isinstance(table, str | os.PathLike) else "path"
        raise InvalidArgumentError(
            "a table is opened by a Spark session, or None, and a path, not by"
            f" {describe_value(spark)} and {describe_value(path)}",
            hint=f"call for_path(spark, {name}), or for_path(None, {name}) to read without Spark",
        )
    if spark is not None and not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(
            f"{describe_value(spark)} is not a Spark session",
            hint="start one by delvec.session(), or pass None for calls that need none",
        )


def require_on(value: object) -> None:
    """Check the condition of a merge, which has no default."""
    require_condition("merge(source, on={})", value)
    if value is None:
        raise InvalidArgumentError(
            "merge() needs a condition, not None",
            hint='call merge(source, on="t.id = s.id"), or on="false" if no rows are to match',
        )


def require_keys(where: object, keys: object, on: object) -> None:
    """Check the keys of rows to delete: none would be all rows."""
    hint = 'call delete(keys=[1, 2], on="id")'
    if where is not None:
        raise InvalidArgumentError(
            "delete() takes a condition or keys, not both",
            hint="delete by keys first, then by the condition; or join them in a merge",
        )
    if keys is None:
        raise InvalidArgumentError(
            f"delete(on={on!r}) needs keys, not None; nothing was deleted", hint=hint
        )
    names = [on] if isinstance(on, str) else on
    is_list = isinstance(names, list | tuple) and all(isinstance(each, str) for each in names)
    if not names or not is_list:
        raise InvalidArgumentError(
            f"delete(keys=...) needs the columns of the keys, not on={describe_value(on)}",
            hint=hint,
        )


def in_order(values: _T, condition: _C) -> tuple[_T, _C]:
    """Return values and a condition as they are, or swapped if they came in delta-spark's order.

    delta-spark calls `update(condition, set)`; here the values come first.
    """
    if isinstance(condition, Mapping) and not isinstance(values, Mapping):
        return condition, values  # type: ignore[return-value]
    return values, condition


def require_values(call: str, values: object) -> None:
    """Check that new values are a mapping from columns."""
    if isinstance(values, Mapping) and all(isinstance(name, str) for name in values):
        for name, value in values.items():
            _require_value(call, name, value)
        if values:
            return
        raise InvalidArgumentError(f"{call}() needs at least one column to set")
    raise InvalidArgumentError(
        f"the new values of {call}() are a mapping from columns to SQL or Columns of Spark, not"
        f" {describe_value(values)}",
        hint=f'call {call}({{"amount": "amount * 2"}}, "id < 10")',
    )


def by_name(
    table: TableHandle,
    value: Any,  # noqa: ANN401
    target_alias: str | None = None,
    source: tuple[str, DataFrame] | None = None,
) -> Any:  # noqa: ANN401
    """Return a condition or value in which columns of DataFrames are resolved by name."""
    if table.spark is None or value is None or isinstance(value, str):
        return value
    from delvec.spark.delta.scan.conditions import rebind_columns  # noqa: PLC0415
    from delvec.spark.failures import translate_errors  # noqa: PLC0415

    known = [] if source is None else [source]
    with translate_errors(table.storage.root):
        return rebind_columns(table.spark, value, (target_alias, table._given), known)  # noqa: SLF001


def _require_value(call: str, name: str, value: object) -> None:
    from pyspark.sql import Column  # noqa: PLC0415

    is_numpy = type(value).__module__.partition(".")[0] == "numpy"
    if value is None or is_numpy or isinstance(value, (*_PLAIN, Column)):
        return
    raise InvalidArgumentError(
        f"the new value of {name} in {call}() is SQL, a Spark Column or a plain value, not"
        f" {describe_value(value)}",
        hint="values of another DataFrame: merge(df, 't.id = s.id')"
        if hasattr(value, "sparkSession")
        else None,
    )
