"""Columns of the table's own DataFrames, such as `df["id"]`, in conditions and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.delta.table.handle import TableHandle

__all__ = ["by_name"]


def by_name(
    table: TableHandle,
    value: Any,  # noqa: ANN401
    target_alias: str | None = None,
    source: tuple[str, DataFrame] | None = None,
) -> Any:  # noqa: ANN401
    """Return a condition or value in which columns of DataFrames are resolved by name.

    Args:
        table: The table.
        value: A Column, or anything else, which is returned as it is.
        target_alias: The alias of the table in a merge.
        source: The alias of the source of a merge, and the source.

    Raises:
        InvalidArgumentError: A column is of another DataFrame, or SQL in the Column is wrong.
    """
    if table.spark is None or value is None or isinstance(value, str):
        return value
    from delvec.spark.delta.scan import bound_columns  # noqa: PLC0415
    from delvec.spark.failures import explained  # noqa: PLC0415

    known = [] if source is None else [source]
    with explained(table.storage.root):
        return bound_columns.by_name(table.spark, value, (target_alias, table._given), known)  # noqa: SLF001
