"""What Iceberg cannot represent of a Delta table, or would read wrongly: columns, and old dates.

Spark before version 3, and later versions in legacy mode, write dates before 1582-10-15 and
timestamps before 1900 in the hybrid Julian and Gregorian calendar, and record it in the file's
footer. Spark and Delta rebase them when they read; Iceberg does not, and is some days off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.read.footer_statistics import read_parquet_footer
from delvec.delta.schema.column_metadata import TYPE_CHANGES
from delvec.delta.schema.traversal import primitives, walk
from delvec.delta.schema.types import DataType, Field, StructType, children
from delvec.documents import parse_json, whole_number
from delvec.errors import UnsupportedFeatureError
from delvec.storage.listed_files import open_listed_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.schema.metadata import Metadata
    from delvec.storage import Storage

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
_RENAME: Final = "rename the column, for which the table needs column mapping"
_REWRITE: Final = (
    "rewrite the files with the types that they are read in:"
    " ALTER TABLE ... DROP FEATURE typeWidening"
)
_COPY: Final = "convert a copy of the table in which the column has another type"
_LIMITS: Final = {
    "date": pa.scalar(date(1582, 10, 15), pa.date32()),
    "timestamp": pa.scalar(datetime(1900, 1, 1, tzinfo=timezone.utc), pa.timestamp("us", "UTC")),
}
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_MODERN: Final = (3, 1)  # from this version on footers record the calendar


def convertible_schema(metadata: Metadata, table: str) -> StructType:
    """Return the schema of a table if Iceberg can represent all of its columns."""
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
        # Iceberg's readers do not support all ways in which a type may have been widened.
        changes = path[-1].metadata.get(TYPE_CHANGES) or ()
        if isinstance(changes, str):
            changes = parse_json(changes, f"the type changes of {name}", path=table)
        for change in changes:
            before, after = str(change.get("fromType")), str(change.get("toType"))
            if not _is_promotion(before, after):
                inside = f"{name}.{change['fieldPath']}" if change.get("fieldPath") else name
                why = "Iceberg does not read files that have it as it was"
                _refuse(table, inside, f"changed from {before} to {after}", why, _REWRITE)
    names = list(_names(schema))
    # Iceberg resolves columns ignoring case, but the names in files exactly.
    _require_distinct(names, [logical.lower() for logical, _ in names], table)
    _require_distinct(names, [physical for _, physical in names], table)
    return schema


def require_modern_dates(files: FileSet, new: NDArray[np.int64], storage: Storage) -> None:
    """Refuse new files whose old dates Iceberg would read wrongly.

    Statistics of the log show which files have old dates; few tables have any. Only the footers of
    these are read. Columns without statistics are not checked.
    """
    if not len(new):
        return
    chosen = files.select(new)
    suspects = np.zeros(len(chosen), dtype=np.bool_)
    for path in walk(files.metadata.schema, structs_only=True):
        kind = str(path[-1].type)
        bounds = (
            chosen.bounds(tuple(each.name for each in path), "UTC") if kind in _LIMITS else None
        )
        if bounds is not None and bounds.minimum is not None:
            old = pc.less(bounds.minimum, _LIMITS[kind])
            suspects |= pc.fill_null(old, False).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(suspects).tolist():
        name = chosen.paths[row].as_py()
        place, key = open_listed_file(storage, name)
        footer = read_parquet_footer(place, key, int(chosen.sizes[row]))
        if _is_hybrid_calendar(footer.metadata or {}):
            raise UnsupportedFeatureError(
                f"{name} of {files.root} has dates before 1582, or timestamps before 1900, in a"
                " calendar that Iceberg does not read them by",
                feature="dates of the hybrid calendar",
                needed_by=files.root,
                hint="rewrite the file with Spark 3 or later, by OPTIMIZE or an UPDATE of its rows",
            )


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


def _is_hybrid_calendar(footer: Mapping[bytes, Any]) -> bool:
    if any(flag in footer for flag in _LEGACY):
        return True
    numbers = footer.get(b"org.apache.spark.version", b"").decode(errors="replace").split(".")[:2]
    found = map(whole_number, numbers)
    version = tuple(number for number in found if number is not None)
    return bool(version) and version < _MODERN
