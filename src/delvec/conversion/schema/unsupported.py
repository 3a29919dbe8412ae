"""Columns of a Delta table that Iceberg cannot represent or would read wrongly."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from delvec.delta.schema.type_widening import TYPE_CHANGES
from delvec.delta.schema.walk import children, primitives, walk
from delvec.documents import parse_json
from delvec.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import DataType, Field, StructType

__all__ = ["convertible_schema"]

_COLLATIONS: Final = "__COLLATIONS"
_INTEGERS: Final = ("byte", "short", "integer", "long")
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
# Iceberg's metadata columns on Spark.
_METADATA_COLUMNS: Final = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
    }
)


def convertible_schema(metadata: Metadata, table: str) -> StructType:
    """Return the schema of a table if Iceberg can represent all of its columns.

    Raises:
        UnsupportedFeatureError: It cannot; the error names the column and its type, with a hint.
    """
    try:
        schema = metadata.schema
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(
            f"{table} cannot be converted: {error.message}",
            feature=error.feature,
            needed_by=table,
            hint="convert a copy of the table without that column",
        ) from error
    for column in schema.fields:
        if column.name.lower() in _METADATA_COLUMNS:
            reason = "Iceberg has a metadata column of that name"
            _refuse(table, column.name, "its name", reason, _RENAME)
    for path in walk(schema):
        name = ".".join(each.name for each in path)
        _require_plain(path[-1], name, table)
        _require_promotable(path[-1], name, table)
    names = list(_names(schema))
    # Iceberg resolves columns ignoring case, but the names in files exactly.
    _require_distinct(names, [logical.lower() for logical, _ in names], table)
    _require_distinct(names, [physical for _, physical in names], table)
    return schema


_RENAME: Final = "rename the column, for which the table needs column mapping"
_REWRITE: Final = (
    "rewrite the files with the types that they are read in:"
    " ALTER TABLE ... DROP FEATURE typeWidening"
)
_COPY: Final = "convert a copy of the table in which the column has another type"


def _require_plain(field: Field, path: str, table: str) -> None:
    """Refuse types that Iceberg does not have, or reads with other values."""
    if field.char_type:
        why = "files may lack the blanks that Delta's readers pad its values with"
        _refuse(table, path, field.char_type, why, "change it to string or varchar and rewrite it")
    if field.metadata.get(_COLLATIONS):
        found = f"collation {json.dumps(field.metadata[_COLLATIONS])[:80]}"
        _refuse(table, path, found, "Iceberg compares strings byte by byte", _COPY)
    for kind in primitives(field.type):
        if kind.name == "variant":
            why = "variants of Delta's files are not known to be what Iceberg reads"
            _refuse(table, path, kind.name, why, _COPY)
        if kind.name == "void":
            _refuse(table, path, kind.name, "it has no type", "drop it, or give it a type")


def _require_promotable(field: Field, path: str, table: str) -> None:
    """Refuse columns whose type was widened in a way that Iceberg's readers do not support."""
    changes = field.metadata.get(TYPE_CHANGES) or ()
    if isinstance(changes, str):
        changes = parse_json(changes, f"the type changes of {path}", path=table)
    for change in changes:
        before, after = str(change.get("fromType")), str(change.get("toType"))
        if not _is_promotion(before, after):
            inside = f"{path}.{change['fieldPath']}" if change.get("fieldPath") else path
            why = "Iceberg does not read files that have it as it was"
            _refuse(table, inside, f"changed from {before} to {after}", why, _REWRITE)


def _is_promotion(before: str, after: str) -> bool:
    if before in _INTEGERS and after in _INTEGERS:
        return _INTEGERS.index(before) <= _INTEGERS.index(after)
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    if old and new:
        return old[2] == new[2] and int(old[1]) <= int(new[1])
    return before == after or (before, after) == ("float", "double")


def _require_distinct(names: list[tuple[str, str]], keys: list[str], table: str) -> None:
    """Refuse full names that are equal in Iceberg: `a.b` is also field b of a."""
    seen: dict[str, str] = {}
    for (name, _), key in zip(names, keys, strict=True):
        if key in seen:
            why = f"Iceberg cannot tell it from {seen[key]!r}"
            _refuse(table, name, "its full name", why, _RENAME)
        seen[key] = name


def _names(kind: DataType, name: str = "", physical: str = "") -> Iterator[tuple[str, str]]:
    """Yield the full logical and physical names of everything that has an id."""
    if name:
        yield name, physical
    for each in children(kind):
        yield from _names(
            each.type,
            f"{name}.{each.name}" if name else each.name,
            f"{physical}.{each.physical_name}" if name else each.physical_name,
        )


def _refuse(table: str, column: str, found: Any, why: str, hint: str) -> NoReturn:  # noqa: ANN401
    raise UnsupportedFeatureError(
        f"{table} cannot be converted because of column {column!r} ({found}): {why}",
        feature=str(found),
        needed_by=table,
        hint=hint,
    )
