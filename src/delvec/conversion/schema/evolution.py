"""How an Iceberg table with existing files follows schema changes of a Delta table, or cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from delvec.conversion.schema.iceberg_schema import (
    NestedType,
    TargetField,
    TargetSchema,
    can_become,
    full_name,
    ids_by_path,
    parse_fields,
    walk_iceberg,
)
from delvec.conversion.schema.partition_spec import PartitionSpec
from delvec.errors import UnsupportedFeatureError


def compatible_schema(current: Mapping[str, Any], new: TargetSchema) -> TargetSchema:
    """Return a schema with the types and nullability that files of the target need.

    Iceberg promotes types and never narrows them, and a column that had nulls cannot become
    required. A RESTORE of the source to before it widened a type or dropped NOT NULL does both: the
    target then keeps the wider type, or the nullable column, and has the same values.
    """
    old = {path[-1].id: path[-1] for path in walk_iceberg(parse_fields(current))}
    fields = tuple(_compatible(field, old, in_old_files=True) for field in new.fields)
    return replace(new, fields=fields)


def _compatible(
    field: TargetField, old: Mapping[int, TargetField], *, in_old_files: bool, is_key: bool = False
) -> TargetField:
    before, kind, required = old.get(field.id), field.type, field.required
    if isinstance(kind, NestedType):
        is_map = kind.kind == "map"
        inner = (
            _compatible(
                each, old, in_old_files=before is not None, is_key=is_map and each.name == "key"
            )
            for each in kind.fields
        )
        kind = NestedType(kind.kind, tuple(inner))
    elif before is not None and can_become(kind, before.type):
        kind = before.type
    if required and in_old_files and not is_key:
        required = before is not None and before.required
    return replace(field, type=kind, required=required)


def wider_columns(source: TargetSchema, target: TargetSchema) -> tuple[str, ...]:
    return tuple(
        f"{full_name(ours)!r} is {ours[-1].type} and not {theirs[-1].type}"
        for ours, theirs in zip(
            walk_iceberg(target.fields), walk_iceberg(source.fields), strict=True
        )
        if not isinstance(ours[-1].type, NestedType) and ours[-1].type != theirs[-1].type
    )


def require_evolution(
    current: Mapping[str, Any],
    new: TargetSchema,
    table: str,
    current_mapping: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Refuse a schema in which files that stay would be read wrongly."""
    old = {path[-1].id: path for path in walk_iceberg(parse_fields(current))}
    for path in walk_iceberg(new.fields):
        before = old.get(path[-1].id)
        is_inside_new = len(path) > 1 and path[-2].id not in old  # of a struct that is new, too
        if before is not None:
            was, now = before[-1], path[-1]
            if not can_become(was.type, now.type):
                _refuse(table, path, f"it was {was.type} and is {now.type} now")
            if now.required and not was.required:
                _refuse(table, path, "it had nulls and is to have none")
            if [each.id for each in path] != [each.id for each in before]:
                _refuse(table, path, f"it was {full_name(before)!r}")
        elif path[-1].required and not is_inside_new:
            _refuse(table, path, "it is NOT NULL, and files from before do not have it")
    _require_same_ids(new, current_mapping, table)


def require_partition_types(
    current: Mapping[str, Any], new: TargetSchema, spec: PartitionSpec, table: str
) -> None:
    """Refuse a change of a partition column's type, even if all files are new.

    Manifests of older snapshots have its values in the old type. Those of a float would differ from
    the source's, which reads the same text as a double.
    """
    old = {path[-1].id: path[-1] for path in walk_iceberg(parse_fields(current))}
    now = {path[-1].id: path for path in walk_iceberg(new.fields)}
    for field in spec.fields:
        before, path = old.get(field.source_id), now[field.source_id]
        if before is None:
            continue
        change = before.type, path[-1].type
        if not can_become(*change) or change == ("float", "double"):
            _refuse(table, path, f"partitions were of type {before.type}, not {path[-1].type}")


def _require_same_ids(new: TargetSchema, current: Sequence[Mapping[str, Any]], table: str) -> None:
    """Refuse ids that belonged to another column of the files: bounds in manifests go by id."""
    ids = dict(ids_by_path(current))
    paths: dict[int, set[tuple[str, ...]]] = {}
    for names, number in ids.items():
        paths.setdefault(number, set()).add(names)
    for path in walk_iceberg(new.fields):
        names, number = tuple(each.physical_name for each in path), path[-1].id
        if ids.get(names, number) != number or names not in paths.get(number, {names}):
            _refuse(
                table,
                path,
                f"field id {number} is not what files from before have it for, by the target's"
                " property schema.name-mapping.default",
                "if somebody changed that property, set it to what it was; else convert the table"
                " to a new target, or rewrite all files of the source first",
            )


def _refuse(
    table: str,
    path: tuple[TargetField, ...],
    why: str,
    hint: str = "convert the table to a new target, or rewrite all files of the source first",
) -> NoReturn:
    raise UnsupportedFeatureError(
        f"the target cannot follow the change of column {full_name(path)!r} of {table}: {why}",
        feature="schema evolution",
        needed_by=table,
        hint=hint,
    )
