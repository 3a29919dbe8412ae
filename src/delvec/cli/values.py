"""What is typed on the command line, as values: sizes, ages and times; keys by type of column."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from delvec.documents import duration_seconds, parse_time, size_bytes
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa
    from click.shell_completion import CompletionItem

    from delvec.delta.table import DeltaTable
    from delvec.iceberg.table import IcebergTable

_Value = TypeVar("_Value")


def pairs(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse values of the form KEY=VALUE."""
    found = [value.partition("=") for value in values]
    if bad := [key for key, sign, _ in found if not sign]:
        raise click.BadParameter(f"{bad[0]!r} is not of the form KEY=VALUE")
    return {key: value for key, _, value in found}


def seconds(text: str) -> float:
    """Parse a duration: a number of seconds, or a number with its unit.

    >>> seconds("1.5m")
    90.0
    """
    return _known(duration_seconds(text), text, "a duration such as 30s, 500ms, 2m or 1h")


def file_size(text: str) -> int:
    return _known(size_bytes(text), text, "a size such as 128MB")


def age(text: str) -> timedelta:
    """Parse an age such as `7d` or `12h`.

    >>> age("12h")
    datetime.timedelta(seconds=43200)
    """
    return _known(_age(text), text, "an age such as 7d, 12h or 30m")


def age_or_time(text: str) -> timedelta | datetime:
    """Parse an age, or a point in time in ISO form; in UTC unless it names a zone."""
    for found in (_age(text), parse_time(in_utc(text).strip())):
        if found is not None:
            return found
    raise click.BadParameter(
        f"{text!r} is neither an age such as 7d nor a time such as 2026-01-31T12:00"
    )


def in_utc(text: str) -> str:
    """Return a time with its zone, UTC if it names none; the call refuses what is no time.

    >>> in_utc("2026-01-31 10:00"), in_utc("now")
    ('2026-01-31T10:00:00+00:00', 'now')
    """
    found = parse_time(text.strip())
    if found is None or found.tzinfo is not None:
        return text
    return found.replace(tzinfo=timezone.utc).isoformat()


def completes(kind: Literal["dir", "file"]) -> Callable[..., list[CompletionItem]]:
    """Return what lets the shell complete a folder, or a file as well."""

    def complete(_context: object, _option: object, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        return [CompletionItem(incomplete, type=kind)]

    return complete


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
    from delvec.iceberg.client.catalog import load_table  # noqa: PLC0415
    from delvec.iceberg.deletes.key_columns import key_columns  # noqa: PLC0415

    schema = load_table(table.spark, table.identifier).metadata.schema
    found = key_columns(schema, columns, table.name)
    return _key_table([(each.name, each.type, _arrow_type(each.type)) for each in found], keys)


def delta_keys(table: DeltaTable, columns: Sequence[str], keys: list[list[str]]) -> pa.Table:
    from delvec.delta.schema.types import arrow_type  # noqa: PLC0415

    found = [table.schema.field(name) for name in columns]
    return _key_table([(each.name, str(each.type), arrow_type(each.type)) for each in found], keys)


def partition_values(table: IcebergTable, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a partition with the types of its fields; unknown fields as they are."""
    from delvec.iceberg.client.catalog import load_table  # noqa: PLC0415
    from delvec.iceberg.deletes.key_columns import key_types  # noqa: PLC0415
    from delvec.iceberg.deletes.write_keys import TRANSFORMED  # noqa: PLC0415

    metadata = load_table(table.spark, table.identifier).metadata
    types = key_types(metadata.schema)
    fields = {each["name"]: each for each in metadata.spec["fields"]}
    values: dict[str, Any] = dict(given)
    for name in given.keys() & fields.keys():
        transform = fields[name]["transform"].partition("[")[0]
        kind = TRANSFORMED.get(transform, types.get(fields[name]["source-id"], "string"))
        [values[name]] = _cast([given[name]], _arrow_type(kind), kind, name).to_pylist()
    return values


def _known(found: _Value | None, text: str, what: str) -> _Value:
    if found is None:
        raise click.BadParameter(f"{text!r} is not {what}")
    return found


def _age(text: str) -> timedelta | None:
    """Return a duration with its unit: a number alone would be one of seconds, or of days."""
    found = None if text.strip()[-1:].isdigit() else duration_seconds(text)
    return None if found is None else timedelta(seconds=found)


def _key_table(columns: Sequence[tuple[str, str, pa.DataType]], keys: list[list[str]]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    values = [
        _cast([row[place] for row in keys], wanted, kind, name)
        for place, (name, kind, wanted) in enumerate(columns)
    ]
    return pa.table(values, names=[name for name, _, _ in columns])


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415

    from delvec.spark.input.key_values import arrow_type  # noqa: PLC0415

    return pa.string() if kind in ("string", "uuid") else arrow_type(kind)


def _cast(strings: list[str], wanted: pa.DataType, kind: str, column: str) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    try:
        return pa.array(strings, pa.string()).cast(wanted)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"not all values of {column} are {kind}: {error}",
            hint="dates are written as 2026-01-31, times with a zone as 2026-01-31T10:00:00Z",
        ) from error
