"""CREATE TABLE ... SHALLOW CLONE: a table of the catalog or of a path that shares data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delvec.delta.table import DeltaTable
from delvec.door.known_tables import path_of
from delvec.door.new_tables import default_location, identifier_of, is_registered, register
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote_if_needed
from delvec.statements.clauses import Cursor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.door.commands import Rows


def clone(
    spark: SparkSession, source: DeltaTable, target: Sequence[str], given: Mapping[str, Any]
) -> Rows:
    """Clone a version of a table, register the clone, and tell its files as delta-spark does."""
    name = ".".join(map(quote_if_needed, target))
    is_path = len(target) == 2 and target[0].lower() in ("delta", "delvec")
    identifier = None if is_path else identifier_of(spark, target)
    location = target[1] if identifier is None else given.get("location")
    path = path_of(location or default_location(spark, identifier))
    exists = DeltaTable.is_delta_table(path, spark=spark) or (
        identifier is not None and is_registered(spark, identifier)
    )
    if exists and given["if_not_exists"]:
        return []
    if exists and given["how"] != "replace":
        raise InvalidArgumentError(f"there is a table {name} already", hint="clone to another name")
    wanted = {key: given[key] for key in ("version", "timestamp") if key in given}
    size = sum(source.arrow_files(**wanted)["size"].to_pylist())
    files = source.arrow_files(**wanted).num_rows
    source.clone(path, **wanted, replace=given["how"] == "replace")
    if properties := _properties(given.get("properties", ())):
        DeltaTable.for_path(spark, path).set_properties(properties)
    if identifier is not None:
        register(spark, identifier, path, is_external=location is not None)
    return [(size, files, 0, 0, 0, 0)]


def _properties(texts: Sequence[str]) -> dict[str, str]:
    """Return the properties of a list such as `'a' = 'b'`."""
    found = {}
    for text in texts:
        cursor = Cursor(text, hint="TBLPROPERTIES ('name' = 'value')")
        is_string = cursor.peek()[:1] in ("'", '"')
        key = cursor.string() if is_string else ".".join(cursor.name())
        cursor.expect("=")
        found[key] = cursor.string()
    return found
