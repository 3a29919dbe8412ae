"""ALTER TABLE of Delta tables by Spark's catalog: all changes of a statement are one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.types import DataType, StructField, StructType

from delvec.delta.alter import definition, operations
from delvec.delta.alter.changed_columns import (
    ColumnChange,
    change_columns,
    described,
    replace_columns,
)
from delvec.delta.alter.columns import Place, add_columns, drop_column, rename_column
from delvec.delta.alter.table_state import TableState
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.skipping.clustering import column_names
from delvec.delta.table import DeltaTable
from delvec.door.known_tables import known, newest, opened, path_of
from delvec.door.new_tables import dotted
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.identifiers import quote_if_needed
from delvec.spark.delta.write.stored_expressions import require_allowed
from delvec.spark.jvm import Java, class_name
from delvec.spark.types import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.delta.schema.types import Field

Change: TypeAlias = Callable[[Snapshot, TableState], TableState]
_LOCATION: Final = "location"
_COMMENT: Final = "comment"
# What a change says of a column, by its class in Spark.
_PARTS: Final[Mapping[str, Callable[[Java], dict[str, Any]]]] = {
    "UpdateColumnType": lambda change: {"kind": _field("c", change.newDataType())},
    "UpdateColumnComment": lambda change: {"comment": str(change.newComment())},
    "UpdateColumnNullability": lambda change: {"nullable": bool(change.nullable())},
    "UpdateColumnPosition": lambda change: {"place": _place(change.position())},
    "UpdateColumnDefaultValue": lambda change: {"default": str(change.newDefaultValue() or "")},
}


@dataclass(frozen=True)
class Alteration:
    """A change of a table's definition, and how its history shows it."""

    operation: str
    shown: Mapping[str, Any]
    change: Change


def alter(spark: SparkSession, table: Java, changes: Java) -> bool:
    """Carry out an ALTER TABLE; return whether it is for Spark's own catalog to do, as a move."""
    delta = newest(opened(known(table))).table
    given = list(changes)
    if moved := [str(each.value()) for each in given if _is_move(each)]:
        _require_same_columns(spark, delta, moved[-1])
        return True
    alteration = _alteration(delta, given)

    def change(snapshot: Snapshot, state: TableState) -> TableState:
        new = alteration.change(snapshot, state)
        if new.metadata.schema_string != state.metadata.schema_string:
            require_allowed(spark, delta.storage.root, new.metadata)
        return new

    delta.run(
        alteration.operation, operations.alter(alteration.operation, alteration.shown, change), {}
    )
    return False


def _alteration(table: DeltaTable, changes: Sequence[Java]) -> Alteration:
    kinds = {class_name(each) for each in changes}
    if kinds == {"DeleteColumn", "AddColumn"}:
        return _replaced([each for each in changes if class_name(each) == "AddColumn"])
    if kinds == {"ClusterBy"}:
        return _clustered(table, changes)
    if kinds <= _PARTS.keys():
        return _changed(table, changes)
    [kind, *others] = sorted(kinds)
    if others or kind not in _ALTERATIONS:
        raise UnsupportedFeatureError(
            f"ALTER TABLE of {table.storage.root} by {', '.join(sorted(kinds))}",
            feature=kind,
            hint="add, drop, rename and change columns, or set properties",
        )
    return _ALTERATIONS[kind](changes)


def _added(changes: Sequence[Java]) -> Alteration:
    fields = [_new_field(each) for each in changes]
    places = [_place(each.position()) for each in changes]

    def change(_: Snapshot, state: TableState) -> TableState:
        return add_columns(state, fields, places)

    columns = [
        {"column": shown, **({"position": str(place)} if place else {})}
        for shown, place in zip(_shown(fields), places, strict=True)
    ]
    return Alteration("ADD COLUMNS", {"columns": json.dumps(columns)}, change)


def _replaced(added: Sequence[Java]) -> Alteration:
    fields = [_field(str(each.fieldNames()[0]), each.dataType(), each) for each in added]

    def change(_: Snapshot, state: TableState) -> TableState:
        return replace_columns(state, fields)

    return Alteration("REPLACE COLUMNS", {"columns": json.dumps(_shown(fields))}, change)


def _dropped(changes: Sequence[Java]) -> Alteration:
    names = [dotted(each) for each in changes]

    def change(_: Snapshot, state: TableState) -> TableState:
        for name in names:
            state = drop_column(state, name)
        return state

    return Alteration("DROP COLUMNS", {"columns": json.dumps(names)}, change)


def _renamed(changes: Sequence[Java]) -> Alteration:
    [each] = changes
    old, new = dotted(each), str(each.newName())
    parents = [str(name) for name in each.fieldNames()][:-1]
    new_path = ".".join(map(quote_if_needed, [*parents, new]))

    def change(_: Snapshot, state: TableState) -> TableState:
        return rename_column(state, old, new)

    shown = {"oldColumnPath": old, "newColumnPath": new_path}
    return Alteration("RENAME COLUMN", shown, change)


def _changed(table: DeltaTable, changes: Sequence[Java]) -> Alteration:
    wanted: dict[tuple[str, ...], ColumnChange] = {}
    for each in changes:
        path = tuple(str(name) for name in each.fieldNames())
        was = wanted.get(path, ColumnChange(path))
        wanted[path] = replace(was, **_PARTS[class_name(each)](each))
    asked = list(wanted.values())

    def change(_: Snapshot, state: TableState) -> TableState:
        return change_columns(state, asked)

    # For the history only: a commit changes the table as it is then.
    after = change_columns(TableState.of(table.snapshot()), asked)
    columns = [described(after, each.path, each.place) for each in asked]
    if len(columns) == 1:
        [column] = columns
        return Alteration(
            "CHANGE COLUMN", {**column, "column": json.dumps(column["column"])}, change
        )
    shown = [{**column.pop("column"), **column} for column in columns]
    return Alteration("CHANGE COLUMNS", {"columns": json.dumps(shown)}, change)


def _clustered(table: DeltaTable, changes: Sequence[Java]) -> Alteration:
    [each] = changes
    columns = [dotted(column) for column in list(each.clusteringColumns())]
    old = TableState.of(table.snapshot())  # for the history only
    names = column_names(old.metadata, old.clustering)
    shown = {"oldClusteringColumns": ",".join(names), "newClusteringColumns": ",".join(columns)}
    return Alteration("CLUSTER BY", shown, lambda _, state: state.clustered(columns))


def _set(changes: Sequence[Java]) -> Alteration:
    properties = {str(each.property()): str(each.value()) for each in changes}
    own = {name: value for name, value in properties.items() if name != _COMMENT}

    def change(snapshot: Snapshot, state: TableState) -> TableState:
        if _COMMENT in properties:
            state = _described(state, properties[_COMMENT])
        # As delta-spark does it by SQL: a property brings its feature, also where readers need it.
        return definition.set_properties(
            state, own, is_empty=lambda: not len(snapshot.files), for_readers=True
        )

    return Alteration("SET TBLPROPERTIES", {"properties": json.dumps(properties)}, change)


def _unset(changes: Sequence[Java]) -> Alteration:
    names = [str(each.property()) for each in changes]

    def change(_: Snapshot, state: TableState) -> TableState:
        if _COMMENT in names:
            state = _described(state, None)
        own = [name for name in names if name != _COMMENT]
        return definition.unset_properties(state, own, if_exists=True)

    shown = {"properties": json.dumps(names), "ifExists": "true"}
    return Alteration("UNSET TBLPROPERTIES", shown, change)


_ALTERATIONS: Final[Mapping[str, Callable[[Sequence[Java]], Alteration]]] = {
    "AddColumn": _added,
    "DeleteColumn": _dropped,
    "RenameColumn": _renamed,
    "SetProperty": _set,
    "RemoveProperty": _unset,
}


def _described(state: TableState, text: str | None) -> TableState:
    return replace(state, metadata=replace(state.metadata, description=text))


def _is_move(change: Java) -> bool:
    return class_name(change) == "SetProperty" and change.property() == _LOCATION


def _require_same_columns(spark: SparkSession, table: DeltaTable, location: str) -> None:
    """Let a name mean the table at another place, if that has the same columns."""
    there = DeltaTable.for_path(spark, path_of(location))
    own, others = str(table.schema), str(there.schema)
    if own != others or table.partition_columns != there.partition_columns:
        raise InvalidArgumentError(
            f"the table at {location} has other columns: {others}, not {own}",
            hint="drop the name, and create it with the other location",
        )


def _new_field(change: Java) -> Field:
    field = _field(dotted(change), change.dataType(), change)
    if change.defaultValue() is not None:
        raise InvalidArgumentError(
            f"column {field.name} cannot be added with a default: existing rows would not have it",
            hint=f"add it, then ALTER TABLE ... ALTER COLUMN {field.name} SET DEFAULT ...",
        )
    return field


def _field(name: str, kind: Java, change: Java = None) -> Field:
    """Return a column of a type of Spark; of a new one also its nullability and comment."""
    metadata: dict[str, Any] = {}
    nullable = True
    if change is not None:
        nullable = bool(change.isNullable())
        if change.comment() is not None:
            metadata[_COMMENT] = str(change.comment())
    parsed = DataType.fromDDL(str(kind.sql()))
    return schema_of(StructType([StructField(name, parsed, nullable, metadata)])).fields[0]


def _shown(fields: Sequence[Field]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "type": str(each.type), "nullable": each.nullable}
        | {"metadata": dict(each.metadata)}
        for each in fields
    ]


def _place(position: Java) -> Place | None:
    if position is None:
        return None
    return Place(str(position.column()) if class_name(position) == "After" else None)
