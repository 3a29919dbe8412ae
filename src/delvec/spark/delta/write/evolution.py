"""Schema evolution by MERGE: the columns and fields of a source that its clauses assign."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from delvec.errors import InvalidArgumentError
from delvec.identifiers import split_path
from delvec.spark.delta.write.clauses import path_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from delvec.delta.schema import types
    from delvec.spark.delta.write.clauses import MergeRequest

    Path = tuple[str, ...]

__all__ = ["assigned_fields"]


def assigned_fields(
    source: StructType, target: types.StructType, request: MergeRequest
) -> StructType:
    """Return the part of a source's schema that a table may take over.

    That is all of it if a clause assigns all columns; else the columns and fields of which the
    clauses name a path. Deletes assign nothing, and clauses for rows without a match in the source
    have nothing of it. The source may have types that Delta lacks.
    """
    setting = [
        each
        for each in request.clauses
        if each.action != "delete" and each.when != "not_matched_by_source"
    ]
    if any(each.values is None for each in setting):
        return source
    names = {name for each in setting for name in each.values or ()}
    return _along(source, (), {_path(name, target, source, request.aliases[0]) for name in names})


def _path(name: str, target: types.StructType, source: StructType, alias: str) -> Path:
    """Return the path that a clause assigns, in lower case: one of the table, else of the source.

    A name that nobody knows is refused where the clause is resolved.
    """
    path: Sequence[str] = [name]
    with suppress(InvalidArgumentError):
        if name.lower() not in (each.lower() for each in source.names):
            path = split_path(name)
        path = path_of(target, name, alias)
    return tuple(each.lower() for each in path)


def _along(struct: StructType, prefix: Path, paths: Collection[Path]) -> StructType:
    return StructType([each for field in struct.fields for each in _kept(field, prefix, paths)])


def _kept(field: StructField, prefix: Path, paths: Collection[Path]) -> Iterator[StructField]:
    path, kind = (*prefix, field.name.lower()), field.dataType
    if path in paths:
        yield field
    elif isinstance(kind, StructType) and any(each[: len(path)] == path for each in paths):
        yield StructField(field.name, _along(kind, path, paths), field.nullable, field.metadata)
