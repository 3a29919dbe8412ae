"""Schema evolution by MERGE: the columns and fields of a source that its clauses assign."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delvec.delta.schema.types import StructType
from delvec.errors import InvalidArgumentError
from delvec.spark.delta.write.clauses import path_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from delvec.delta.schema.types import Field
    from delvec.spark.delta.write.clauses import MergeRequest

    Path = tuple[str, ...]

__all__ = ["assigned_fields"]


def assigned_fields(source: StructType, target: StructType, request: MergeRequest) -> StructType:
    """Return the part of a source's schema that a table may take over.

    That is all of it if a clause assigns all columns; else the columns and fields of which the
    clauses name a path. Deletes assign nothing, and clauses for rows without a match in the source
    have nothing of it.
    """
    setting = [
        each
        for each in request.clauses
        if each.action != "delete" and each.when != "not_matched_by_source"
    ]
    if any(each.values is None for each in setting):
        return source
    names = {name for each in setting for name in each.values or ()}
    sides = ((target, request.aliases[0]), (source, None))
    return _along(source, (), {path for name in names for path in _paths(name, sides)})


def _paths(name: str, sides: Sequence[tuple[StructType, str | None]]) -> Iterator[Path]:
    """Yield the path that a clause assigns, in lower case; nothing if neither side has it."""
    for schema, alias in sides:
        try:
            path = path_of(schema, name, alias)
        except InvalidArgumentError:
            continue  # a name that nobody knows is refused where the clause is resolved
        yield tuple(each.lower() for each in path)
        return


def _along(struct: StructType, prefix: Path, paths: Collection[Path]) -> StructType:
    return StructType(
        tuple(each for field in struct.fields for each in _kept(field, prefix, paths))
    )


def _kept(field: Field, prefix: Path, paths: Collection[Path]) -> Iterator[Field]:
    path = (*prefix, field.name.lower())
    if path in paths:
        yield field
    elif isinstance(field.type, StructType) and any(each[: len(path)] == path for each in paths):
        yield replace(field, type=_along(field.type, path, paths))
