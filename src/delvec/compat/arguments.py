"""Arguments of delta-spark's calls: checked as it checks them, and as delvec's own take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import Column, functions

from delvec.calls import describe_value
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote, split_path
from delvec.spark import jvm
from delvec.spark.catalyst import column_of, expression_of, name_of, rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.spark.jvm import Java

Condition: TypeAlias = str | Column | None
Values: TypeAlias = dict[str, str | Column]
_DEFAULT: Final = "default"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of another type: a TypeError too, as code for delta-spark expects it."""


def require_text(name: str, value: object) -> None:
    """Refuse what is no string, by the error that delta-spark's builders have for it."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be str, not {describe_value(value)}")


def require_kind(name: str, value: object, kind: type, called: str) -> None:
    """Refuse a value of another type, by the error that delta-spark's tables have for it."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidArgumentError(f"{name} needs to be {called} but got '{type(value)}'.")


def require_condition(value: object, name: str = "condition") -> None:
    """Refuse what is no condition."""
    if value is not None and not isinstance(value, str | Column):
        raise ArgumentTypeError(
            f"{name} must be a Spark SQL Column or a string, not {describe_value(value)}"
        )


def require_values(name: str, values: object) -> Values:
    """Return a mapping from columns to expressions; refuse all else."""
    if values is None:
        raise InvalidArgumentError(f"{name} cannot be None", hint=f'{name}={{"column": "SQL"}}')
    if not isinstance(values, dict):
        raise ArgumentTypeError(f"{name} must be a dict, not {describe_value(values)}")
    for key, value in values.items():
        if not isinstance(key, str):
            raise ArgumentTypeError(
                f"Keys of dict in {name} must contain only strings with column names, not"
                f" {describe_value(key)}"
            )
        if not isinstance(value, str | Column):
            raise ArgumentTypeError(
                f"Values of dict in {name} must contain only Spark SQL Columns or strings of SQL,"
                f" not {describe_value(value)}"
            )
    return values


def listed(cols: Sequence[Any], what: str) -> list[str]:
    """Return columns that were given one by one, or as one list."""
    if len(cols) == 1 and isinstance(cols[0], list | tuple):
        [cols] = cols
    for each in cols:
        require_text(what, each)
    return list(cols)


def unqualified(spark: SparkSession, value: Any, names: Sequence[str]) -> Any:  # noqa: ANN401
    """Return a condition or value in which columns have lost the qualifiers of their table.

    Args:
        spark: The session.
        value: SQL or a column.
        names: The alias of the table, or the parts of its name, of which every end qualifies.
    """
    if value is None or not names or (isinstance(value, str) and value.lower() == _DEFAULT):
        return value

    def replace(kind: str, node: Java, _: object) -> Java | None:
        if kind != "UnresolvedAttribute":
            return None
        parts = [str(each) for each in jvm.items(node.nameParts())]
        own = _without_qualifier(parts, names)
        return name_of(spark, own) if len(own) < len(parts) else None

    column = functions.expr(value) if isinstance(value, str) else value
    rebuilt = rebuild(spark, expression_of(spark, column), replace)
    return value if rebuilt is None else column_of(spark, rebuilt)


def unqualified_names(values: Values, names: Sequence[str]) -> Values:
    """Return values by the names of columns without the qualifiers of their table."""
    found: Values = {}
    for key, value in values.items():
        parts = split_path(key)
        own = _without_qualifier(parts, names)
        found[".".join(map(quote, own)) if len(own) < len(parts) else key] = value
    return found


def _without_qualifier(parts: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return the parts of a column's name behind the longest end of a table's name."""
    lower = [part.lower() for part in parts]
    for start in range(len(names)):
        end = [name.lower() for name in names[start:]]
        if len(parts) > len(end) and lower[: len(end)] == end:
            return parts[len(end) :]
    return parts
