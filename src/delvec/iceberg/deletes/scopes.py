"""The scope of an equality delete: all partitions of a table, or one."""

from __future__ import annotations

import json
from datetime import date
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.client.files import snapshot_table
from delvec.iceberg.commits.specs import with_unpartitioned_spec
from delvec.iceberg.deletes.key_columns import KeyColumn
from delvec.iceberg.deletes.key_values import from_python
from delvec.iceberg.deletes.read_schema import key_types
from delvec.iceberg.deletes.write_deletes import Scope
from delvec.report.wordings import call, worded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["scope_of"]

# What a transform makes of a value, where it is not of the column's own type.
_RESULTS: Final = {"bucket": "int", "year": "int", "month": "int", "day": "date", "hour": "int"}


def scope_of(
    table: LoadedTable, branch: str, partition: Mapping[str, object] | None
) -> tuple[LoadedTable, Scope]:
    """Return the scope of a delete, and the table with the partition spec that it needs.

    Args:
        table: The table.
        branch: The branch that the delete is for.
        partition: The value of each field of the table's partition spec, by the field's name, as
            transformed; None for all partitions.

    Raises:
        InvalidArgumentError: The table has no such partition field, one is missing, or a value is
            not of its type.
        UnsupportedFeatureError: The branch has data files of another partition spec, which a delete
            of one partition does not apply to.
    """
    if partition is None:
        table, spec_id = with_unpartitioned_spec(table)
        return table, Scope(spec_id)
    spec = table.metadata.spec
    fields = {field["name"]: field for field in spec["fields"] if field["transform"] != "void"}
    if not fields:
        raise InvalidArgumentError(
            f"{table.name} is not partitioned", hint="omit partition: the delete is for all rows"
        )
    if partition.keys() != fields.keys():
        raise InvalidArgumentError(
            f"partition names {', '.join(map(str, partition)) or 'nothing'},"
            f" expected {', '.join(fields)}",
            hint=worded("give the value of each partition field, as {} shows it", call("files")),
        )
    _require_one_spec(table, branch)
    values = [_value(table, field, partition.get(field["name"])) for field in spec["fields"]]
    shown = ", ".join(f"{name}={value}" for name, value in partition.items())
    return table, Scope(spec["spec-id"], json.dumps(values), shown)


def _value(table: LoadedTable, field: Mapping[str, Any], given: object) -> object:
    """Return a partition value as Iceberg's JSON has it."""
    transform = field["transform"].partition("[")[0]
    if transform == "void":
        return None
    kind = _RESULTS.get(transform) or key_types(table.metadata.schema)[field["source-id"]]
    if kind in ("float", "double"):  # no type of keys, but of partitions
        if given is None or (isinstance(given, int | float) and isfinite(given)):
            return None if given is None else float(given)
        raise InvalidArgumentError(f"{given!r} is not a value of {field['name']}, which is {kind}")
    column = KeyColumn(field["field-id"], field["name"], kind, required=False)
    if kind == "date" and isinstance(given, str):
        given = _date(given, field["name"])
    value = from_python([given], column)[0].as_py()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _date(given: str, name: str) -> date:
    """Return a day as `files()` shows it."""
    try:
        return date.fromisoformat(given)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{given!r} is not a value of {name}, which is a date", hint="write 2026-01-31"
        ) from error


def _require_one_spec(table: LoadedTable, branch: str) -> None:
    head = table.metadata.head(branch) or table.metadata.head()
    if head is None or len(table.metadata.specs) == 1:
        return
    files = snapshot_table(table, "files", head.id).where("content = 0")
    other = files.where(F.col("spec_id") != table.metadata.spec["spec-id"]).limit(1).count()
    if other:
        raise UnsupportedFeatureError(
            f"branch {branch} of {table.name} has data files of an earlier partition spec, which a"
            " delete of one partition would not apply to",
            feature="deletes of one partition across partition specs",
            hint="omit partition: the delete is then for all partitions",
        )
