"""Arguments of `DeltaTable`'s methods: what is wrong with one, and the call that was meant."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Final, TypeVar

from delvec.calls import shown
from delvec.errors import InvalidArgumentError

__all__ = [
    "in_order",
    "require_condition",
    "require_keys",
    "require_on",
    "require_session",
    "require_values",
]

_T = TypeVar("_T")
_C = TypeVar("_C")
_EXAMPLE: Final = '"id < 10"'
_OF_CONDITION: Final = re.compile(r"(, )?(\w+=)?\{\}")
# What `functions.lit` takes, and what is of NumPy.
_PLAIN: Final = (
    *(str, bool, int, float, Decimal, bytes, bytearray),
    *(date, time, timedelta, list, tuple, Enum),
)


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
        call: The method that takes it, with braces in its place: `overwrite(df, where={})`.
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
    hint = f"call {call.format(_EXAMPLE)}"
    if isinstance(value, bool):
        hint = f"""call {call.format('"true"' if value else '"false"')}"""
        if value and not call.startswith("merge"):
            hint = f"for all rows call {_OF_CONDITION.sub('', call)} without a condition"
    elif isinstance(value, DataFrame):
        hint = "rows that another DataFrame names: merge(df, 't.id = s.id')"
        if call.startswith("delete"):
            hint = 'the rows of these keys: call delete(keys=df, on=["id"])'
    elif (sql := _as_sql(value)) is not None:
        hint = f"tuples are for to_arrow(); call {call.format(repr(sql))}"
    name = call.partition("(")[0]
    raise InvalidArgumentError(
        f"a condition of {name}() is {accepted}, not {shown(value)}", hint=hint
    )


def require_on(value: object) -> None:
    """Check the condition of a merge, which has no default.

    Raises:
        InvalidArgumentError: It is missing, or neither SQL nor a column of Spark.
    """
    require_condition("merge(source, on={})", value)
    if value is None:
        raise InvalidArgumentError(
            "merge() needs a condition, not None",
            hint='call merge(source, on="t.id = s.id"), or on="false" if no rows are to match',
        )


def require_keys(where: object, keys: object, on: object) -> None:
    """Check the keys of rows to delete: none would be all rows.

    Raises:
        InvalidArgumentError: Keys or their columns are missing, or there is a condition as well.
    """
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
            f"delete(keys=...) needs the columns of the keys, not on={shown(on)}", hint=hint
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


def in_order(values: _T, condition: _C) -> tuple[_T, _C]:
    """Return values and a condition as they are, or swapped if they came in delta-spark's order.

    delta-spark calls `update(condition, set)`; here the values come first.
    """
    if isinstance(condition, Mapping) and not isinstance(values, Mapping):
        return condition, values  # type: ignore[return-value]
    return values, condition


def require_values(call: str, values: object) -> None:
    """Check that new values are a mapping from columns.

    Raises:
        InvalidArgumentError: They are not, such as a condition in their place.
    """
    if isinstance(values, Mapping) and all(isinstance(name, str) for name in values):
        for name, value in values.items():
            _require_value(call, name, value)
        if values:
            return
        raise InvalidArgumentError(f"{call}() needs at least one column to set")
    hint = f'call {call}({{"amount": "amount * 2"}}, "id < 10")'
    raise InvalidArgumentError(
        f"the new values of {call}() are a mapping from columns to SQL or Columns of Spark, not"
        f" {shown(values)}",
        hint=hint,
    )


def _require_value(call: str, name: str, value: object) -> None:
    from pyspark.sql import Column  # noqa: PLC0415

    if value is None or isinstance(value, (*_PLAIN, Column)):
        return
    if type(value).__module__.partition(".")[0] == "numpy":
        return
    raise InvalidArgumentError(
        f"the new value of {name} in {call}() is SQL, a Column of Spark or a plain value, not"
        f" {shown(value)}",
        hint="values of another DataFrame: merge(df, 't.id = s.id')"
        if hasattr(value, "sparkSession")
        else None,
    )
