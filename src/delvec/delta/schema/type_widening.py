"""Type widening: which types a column may change to, and how its metadata records a change.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#type-widening
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delvec.delta.schema.types import ArrayType, MapType, PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.schema.types import DataType, Field

__all__ = ["TYPE_CHANGES", "can_widen", "with_type_changes"]

TYPE_CHANGES: Final = "delta.typeChanges"
"""The key of a field's metadata with the changes of its type, oldest first."""

_INTEGERS: Final = ("byte", "short", "integer", "long")
_OTHERS: Final = frozenset(
    {
        ("float", "double"),
        ("byte", "double"),
        ("short", "double"),
        ("integer", "double"),
        ("date", "timestamp_ntz"),
    }
)
# Digits before the point that a decimal needs to hold all values, as files store them.
_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}


def can_widen(old: PrimitiveType, new: PrimitiveType) -> bool:
    """Return whether a column of one type can become one of another that holds all its values.

    >>> can_widen(PrimitiveType("integer"), PrimitiveType("decimal(12,2)"))
    True
    >>> can_widen(PrimitiveType("decimal(5,2)"), PrimitiveType("decimal(6,4)"))
    False
    """
    if old.name in _INTEGERS and new.name in _INTEGERS:
        return _INTEGERS.index(old.name) < _INTEGERS.index(new.name)
    if new.decimal:
        precision, scale = new.decimal
        if old.decimal:
            had, had_scale = old.decimal
            grows = scale >= had_scale and precision - scale >= had - had_scale
            return grows and old.decimal != new.decimal
        return old.name in _DIGITS and precision - scale >= _DIGITS[old.name]
    return (old.name, new.name) in _OTHERS


def with_type_changes(old: Field, new: Field) -> Field:
    """Return a field whose metadata records how its type was widened.

    Fields of nested structs have records of their own.
    """
    changes = list(_changes(old.type, new.type, ()))
    if not changes:
        return new
    recorded = [*(new.metadata.get(TYPE_CHANGES) or ()), *changes]
    return replace(new, metadata={**new.metadata, TYPE_CHANGES: recorded})


def _changes(old: DataType, new: DataType, path: tuple[str, ...]) -> Iterator[dict[str, str]]:
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        yield from _changes(old.element, new.element, (*path, "element"))
    elif isinstance(old, MapType) and isinstance(new, MapType):
        yield from _changes(old.key, new.key, (*path, "key"))
        yield from _changes(old.value, new.value, (*path, "value"))
    elif isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType) and old != new:
        inside = {"fieldPath": ".".join(path)} if path else {}
        yield {"toType": new.name, "fromType": old.name, **inside}
