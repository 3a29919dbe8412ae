"""The table that `format("delvec")` writes to, and what of it a Python worker cannot write.

Expressions of a table (CHECK, generated columns, defaults) are Spark's SQL, which workers do not
evaluate: such tables are refused, with the call of `DeltaTable` that writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as spark_types

from delvec.datasource.options import WriteSettings
from delvec.delta.alter.definition import new_table
from delvec.delta.alter.operations import require_empty_location
from delvec.delta.alter.table_state import TableState
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.schema import expressions
from delvec.delta.schema.traversal import all_fields, nullable, primitives
from delvec.delta.schema.types import (
    CHAR_TYPE,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    children,
)
from delvec.delta.write.writable import require_writable
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from delvec.report.format import did_you_mean
from delvec.spark.types import schema_of
from delvec.storage import Storage

_PARTITIONS_REFUSED: Final = ("float", "double", "binary")
# What a value of each type may be stored as without loss.
_WIDER: Final = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
}


@dataclass(frozen=True)
class Target:
    """A table to write to; it is pickled, and tells tasks how files of it look."""

    storage: Storage
    version: int  # that the write starts from; -1 for a table that it creates
    state: TableState
    sources: tuple[int | None, ...]  # the place of each column in the rows; None if they lack it


def open_target(
    settings: WriteSettings, schema: spark_types.StructType, *, overwrite: bool
) -> Target:
    """Open the table, or describe the one to create, and check that the rows fit."""
    storage = Storage.open(settings.path, settings.storage_options)
    rows = nullable(schema_of(schema))  # that none has a null now says nothing of those to come
    try:
        segment = find_segment(storage)
    except TableNotFoundError:
        state = new_table(rows, settings.partition_by, dict(settings.properties))
        require_empty_location(storage, state.metadata)
        expressions.require_plain(storage.root, state.metadata)
        version = -1
    else:
        snapshot = open_snapshot(storage, segment=segment)
        require_writable(snapshot, "overwrite" if overwrite else "append")
        state, version = TableState.of(snapshot), snapshot.version
        _require_agreement(settings, state, storage.root)
    call = "overwrite(df)" if overwrite else "append(df)"
    _require_plain(state, rows, storage.root, call)
    return Target(storage, version, state, _sources(state.schema, rows, storage.root, call))


def _require_agreement(settings: WriteSettings, state: TableState, table: str) -> None:
    own = state.metadata.partition_columns
    given, held_by = ([name.lower() for name in each] for each in (settings.partition_by, own))
    if given and given != held_by:
        raise InvalidArgumentError(
            f"{table} is partitioned by {', '.join(own) or 'nothing'}, not by"
            f" {', '.join(settings.partition_by)}",
            hint="omit the option partitionBy",
        )
    held = {name.lower(): value for name, value in state.metadata.configuration.items()}
    for name, value in settings.properties.items():
        if held.get(name.lower()) != value:
            raise InvalidArgumentError(
                f"{table} has {name} = {held.get(name.lower())}, and a write does not change it",
                hint="omit the option, or call delvec.DeltaTable.for_path(spark, path)"
                f'.set_properties({{"{name}": "{value}"}})',
            )


def _require_plain(state: TableState, rows: StructType, table: str, call: str) -> None:
    """Refuse what needs Spark's SQL, or is not written by Arrow as Delta wants it."""
    found = next(_not_plain(state, {field.name.lower() for field in rows.fields}), None)
    if found is not None:
        raise UnsupportedFeatureError(
            f'format("delvec") cannot write to {table} because of {found}',
            feature=found,
            needed_by=table,
            hint=f"use delvec.DeltaTable.for_path(spark, path).{call}",
        )


def _not_plain(state: TableState, given: set[str]) -> Iterator[str]:
    yield from (f"the constraint {name}" for name in expressions.constraints(state.metadata))
    yield from (f"the invariant of {path}" for path in expressions.invariants(state.metadata))
    for field in state.schema.fields:
        yield from _not_plain_column(field, is_given=field.name.lower() in given)
    for field in all_fields(state.schema):
        if CHAR_TYPE in field.metadata:
            yield f"{field.metadata[CHAR_TYPE]} of {field.name}"
        for kind in primitives(field.type):
            if kind.name in ("variant", "void"):
                yield f"the {kind} of {field.name}"
    for field in state.metadata.partition_fields:
        if str(field.type) in _PARTITIONS_REFUSED:
            yield f"the partition column {field.name} of type {field.type}"


def _not_plain_column(field: Field, *, is_given: bool) -> Iterator[str]:
    if expressions.GENERATION in field.metadata:
        yield f"the generated column {field.name}"
    if any(key.startswith(expressions.IDENTITY) for key in field.metadata):
        yield f"the identity column {field.name}"
    if expressions.CURRENT_DEFAULT in field.metadata and not is_given:
        yield f"the default of {field.name}"
    if _demands(field.type):
        yield f"NOT NULL inside of {field.name}"


def _demands(kind: DataType) -> bool:
    """Return whether a type has a nested field or item that takes no NULL."""
    inner = children(kind)[1:] if isinstance(kind, MapType) else children(kind)
    return any(not each.nullable for each in inner) or any(
        _demands(each.type) for each in children(kind)
    )


def _sources(schema: StructType, rows: StructType, table: str, call: str) -> tuple[int | None, ...]:
    places: dict[str, int] = {}
    for at, field in enumerate(rows.fields):
        if field.name.lower() in places:
            raise InvalidArgumentError(
                f"the rows have more than one column {field.name}",
                hint="names that differ in case only are the same to Delta: rename or drop one",
            )
        places[field.name.lower()] = at
    known = {name.lower() for name in schema.names}
    if extra := [field.name for field in rows.fields if field.name.lower() not in known]:
        meant = did_you_mean(extra[0], schema.names, 1)
        raise InvalidArgumentError(
            f"{table} has no column {', '.join(extra)}, only {', '.join(schema.names)}",
            hint=f"{f'{meant} If not, ' if meant else ''}drop it, or use"
            " delvec.DeltaTable.for_path(spark, path).append(df, merge_schema=True)",
        )
    found = []
    for field in schema.fields:
        place = places.get(field.name.lower())
        if place is None and not field.nullable:
            raise InvalidArgumentError(
                f"the rows lack column {field.name} of {table}, which takes no NULL",
                hint="give every column that is NOT NULL a value",
            )
        if place is not None and not _fits(rows.fields[place].type, field.type):
            raise InvalidArgumentError(
                f"column {field.name} of {table} is {field.type}, and"
                f" {rows.fields[place].type} is not stored in it as it is",
                hint=f"cast the column to {field.type}, or use"
                f" delvec.DeltaTable.for_path(spark, path).{call}, which casts",
            )
        found.append(place)
    return tuple(found)


def _fits(have: DataType, wanted: DataType) -> bool:
    """Return whether values can be stored as they are: same names inside, types not narrower."""
    if isinstance(have, PrimitiveType) or isinstance(wanted, PrimitiveType):
        return have == wanted or str(have) == "void" or str(wanted) in _WIDER.get(str(have), ())
    if type(have) is not type(wanted):
        return False
    ours = {_key(field, wanted): field for field in children(wanted)}
    theirs = {_key(field, have): field for field in children(have)}
    return ours.keys() == theirs.keys() and all(
        _fits(theirs[key].type, field.type) for key, field in ours.items()
    )


def _key(field: Field, parent: DataType) -> str:
    return field.name.lower() if isinstance(parent, StructType) else field.name
