"""Rows of Arrow tables, compared in whatever order."""

from __future__ import annotations

from collections import Counter
from math import isnan
from typing import Any

import pyarrow as pa


def rows_of(table: pa.Table) -> Counter[Any]:
    """Give the rows as a bag of hashable values, the columns by their names in order."""
    columns = [[_hashable(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Compare names and rows, in whatever order; say what differs."""
    assert found.column_names == expected.column_names
    left, right = rows_of(found), rows_of(expected)
    assert not (left - right), f"rows that should not be there: {list(left - right)[:5]}"
    assert not (right - left), f"rows that are missing: {list(right - left)[:5]}"
    return True


def _hashable(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, float) and isnan(value):
        return "NaN"
    return value
