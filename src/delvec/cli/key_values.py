"""Keys and partition values that are typed on the command line, as values of their columns."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from delvec.delta.table import DeltaTable
    from delvec.iceberg.table import IcebergTable

__all__ = ["delta_keys", "partition_values", "typed_keys", "written_keys"]

# What transforms make of a column, where it is not a value of the column's own type.
_RESULTS: Final = {"bucket": "int", "year": "int", "month": "int", "day": "date", "hour": "int"}


def written_keys(keys: str | None, columns: Sequence[str]) -> list[list[str]]:
    """Return keys as strings, a list for each: those of an option, else those of standard input.

    >>> written_keys('1,"a,b"', ["id"])
    [['1'], ['a,b']]
    """
    if keys is not None:
        if len(columns) > 1:
            raise click.UsageError("--values is for one column; give --source for several")
        parsed = csv.reader([keys], skipinitialspace=True)
        rows = [[value] for line in parsed for value in line]
    else:
        rows = [row for row in csv.reader(sys.stdin) if row]
    for row in rows:
        if len(row) != len(columns):
            raise click.UsageError(
                f"a key has {len(columns)} values ({', '.join(columns)}), got {','.join(row)}"
            )
        if "" in row:
            raise click.UsageError(f"a value is empty: {','.join(row)!r}")
    return rows


def typed_keys(table: IcebergTable, columns: Sequence[str], keys: list[list[str]]) -> pa.Table:
    """Return keys as an Arrow table with the types of their columns.

    Raises:
        InvalidArgumentError: There is no such column, or a value is not of its type.
    """
    import pyarrow as pa  # noqa: PLC0415

    from delvec.iceberg.client.catalog import load_table  # noqa: PLC0415
    from delvec.iceberg.deletes.key_columns import key_columns  # noqa: PLC0415

    schema = load_table(table.spark, table.identifier).metadata.schema
    found = key_columns(schema, columns, table.name)
    values = [
        _values([row[place] for row in keys], column.type, column.name)
        for place, column in enumerate(found)
    ]
    return pa.table(values, names=[column.name for column in found])


def delta_keys(table: DeltaTable, columns: Sequence[str], keys: list[list[str]]) -> pa.Table:
    """Return keys as an Arrow table with the types of the columns of a Delta table.

    Raises:
        InvalidArgumentError: There is no such column, or a value is not of its type.
    """
    import pyarrow as pa  # noqa: PLC0415

    from delvec.delta.schema.arrow import arrow_type  # noqa: PLC0415

    fields = [table.schema.field(name) for name in columns]
    values = [
        _cast([row[place] for row in keys], arrow_type(field.type), str(field.type), field.name)
        for place, field in enumerate(fields)
    ]
    return pa.table(values, names=[field.name for field in fields])


def partition_values(table: IcebergTable, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a partition with the types of its fields; unknown fields as they are.

    Raises:
        InvalidArgumentError: A value is not of its field's type.
    """
    from delvec.iceberg.client.catalog import load_table  # noqa: PLC0415
    from delvec.iceberg.deletes.read_schema import key_types  # noqa: PLC0415

    metadata = load_table(table.spark, table.identifier).metadata
    types = key_types(metadata.schema)
    fields = {each["name"]: each for each in metadata.spec["fields"]}
    values: dict[str, Any] = dict(given)
    for name in given.keys() & fields.keys():
        transform = fields[name]["transform"].partition("[")[0]
        kind = _RESULTS.get(transform, types.get(fields[name]["source-id"], "string"))
        [values[name]] = _values([given[name]], kind, name).to_pylist()
    return values


def _values(strings: list[str], kind: str, column: str) -> pa.Array:
    """Return strings as values of one of Iceberg's types; a string that is none is an error."""
    import pyarrow as pa  # noqa: PLC0415

    from delvec.iceberg.deletes.key_columns import arrow_type  # noqa: PLC0415

    wanted = pa.string() if kind in ("string", "uuid") else arrow_type(kind)
    return _cast(strings, wanted, kind, column)


def _cast(strings: list[str], wanted: pa.DataType, kind: str, column: str) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    try:
        return pa.array(strings, pa.string()).cast(wanted)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"not all values of {column} are {kind}: {error}",
            hint="dates are written as 2026-01-31, times with a zone as 2026-01-31T10:00:00Z",
        ) from error
