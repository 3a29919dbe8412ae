"""Columns changed where they are: type, comment, nullability, default and place.

Pure functions from one state to the next, by Delta's rules: a type only becomes wider, and only if
the table allows it; NOT NULL goes and never comes, since existing rows were not checked. No data
file is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delvec.delta.alter.columns import Place, add_columns, drop_column, finished, require_unnamed
from delvec.delta.schema import expressions, traversal
from delvec.delta.schema.column_metadata import can_widen, identity_fields, with_type_changes
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.types import (
    CHAR_TYPE,
    DataType,
    Field,
    PrimitiveType,
    StructType,
    children,
)
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote, quote_if_needed
from delvec.report.hints import Wording, call, format_hint

if TYPE_CHECKING:
    from delvec.delta.alter.table_state import TableState

_T = TypeVar("_T", bound=DataType)
_DEFAULTS: Final = "allowColumnDefaults"
_FEATURE: Final = "delta.feature.typeWidening"
_WIDENING: Final = Wording(
    f'let types become wider: set_properties({{"{_FEATURE}": "supported",'
    f' "{Property.ENABLE_TYPE_WIDENING}": "true"}})',
    f"let types become wider: `delvec properties TABLE --set {_FEATURE}=supported --set"
    f" {Property.ENABLE_TYPE_WIDENING}=true`",
)


@dataclass(frozen=True)
class ColumnChange:
    """What is to become of a column; None leaves a part of it as it is.

    Attributes:
        path: The names that lead to it; into arrays by `element`, into maps by `key` and `value`.
        kind: A field of the new type; its metadata may name a `char(n)` type.
        default: The SQL of the new default, empty for none.
    """

    path: tuple[str, ...]
    kind: Field | None = None
    comment: str | None = None
    nullable: bool | None = None
    default: str | None = None
    place: Place | None = None

    @property
    def name(self) -> str:
        """The path as SQL writes it."""
        return ".".join(map(quote_if_needed, self.path))


def change_columns(state: TableState, changes: Sequence[ColumnChange]) -> TableState:
    """Change columns, each as one of the changes says."""
    schema = state.schema
    for change in changes:
        steps = traversal.resolve(schema, change.path)
        schema = _inside(schema, steps, partial(_changed, state, change), change.place)
    require_unnamed(state, schema)
    return finished(state, schema)


def replace_columns(state: TableState, fields: Sequence[Field]) -> TableState:
    """Give a table these columns in this order: known ones are changed, others added or dropped."""
    if found := identity_fields(state.schema):
        raise InvalidArgumentError(
            f"columns cannot be replaced: {found[0].name} is an identity column",
            hint="add, drop and change columns one by one",
        )
    known = {each.name.lower() for each in state.schema.fields}
    named = {each.name.lower() for each in fields}
    dropped = [each.name for each in state.schema.fields if each.name.lower() not in named]
    if dropped and named - known:
        raise InvalidArgumentError(
            f"columns cannot be replaced: {', '.join(dropped)} would go and others come, and"
            " whether they are renamed is not said",
            hint="use RENAME COLUMN, or DROP COLUMN and ADD COLUMN",
        )
    for name in dropped:
        state = drop_column(state, quote(name))
    place = Place()
    for field in fields:
        if field.name.lower() in known:
            comment = field.metadata.get("comment")
            change = ColumnChange((field.name,), field, comment, field.nullable, None, place)
            state = change_columns(state, [change])
        else:
            state = add_columns(state, [replace(field, name=quote(field.name))], [place])
        place = Place(after=field.name)
    return state


def described(state: TableState, path: Sequence[str], place: Place | None = None) -> dict[str, Any]:
    """Return a column as the history of a table shows it."""
    field = replace(traversal.resolve(state.schema, path)[-1], name=".".join(path))
    [shown] = StructType((field,)).to_json()["fields"]
    return {"column": shown, **({"position": str(place)} if place else {})}


def _inside(kind: _T, steps: Sequence[Field], change: Any, place: Place | None) -> _T:  # noqa: ANN401
    """Return a type in which the field that some steps lead to is changed, and moved."""
    step, *rest = steps
    is_field = isinstance(kind, StructType)
    new = (
        replace(step, type=_inside(step.type, rest, change, place))
        if rest
        else change(step, is_field=is_field)
    )
    if is_field:
        new = with_type_changes(step, new)
    fields = [new if each.name == step.name else each for each in children(kind)]
    if place is not None and not rest:
        if not is_field:
            raise InvalidArgumentError(f"{step.name} of {kind} has no place to be moved to")
        if place.after is None or place.after.lower() != step.name.lower():
            fields = list(place.put(new, [each for each in fields if each is not new]))
    return traversal.with_children(kind, fields)


def _changed(state: TableState, change: ColumnChange, old: Field, *, is_field: bool) -> Field:
    if not is_field and (change.comment is not None or change.default is not None):
        raise InvalidArgumentError(
            f"{change.name} is a part of an array or a map, which has no comment or default",
            hint="comment on the column",
        )
    is_identity = any(key.startswith(expressions.IDENTITY) for key in old.metadata)
    given = (change.kind, change.nullable, change.default)
    if is_identity and any(each is not None for each in given):
        raise InvalidArgumentError(
            f"{change.name} is an identity column: only its comment, place and name can change",
            hint="make a new table with another definition",
        )
    new, metadata = old, dict(old.metadata)
    if change.kind is not None:
        new = replace(new, type=_new_type(state, change.name, old.type, change.kind.type))
        metadata.pop(CHAR_TYPE, None)
        if CHAR_TYPE in change.kind.metadata:
            metadata[CHAR_TYPE] = change.kind.metadata[CHAR_TYPE]
    if change.comment is not None:
        metadata["comment"] = change.comment
    if change.default is not None:
        _set_default(state, change, metadata)
    if change.nullable is not None and change.nullable != old.nullable:
        _require_loosened(change, is_field=is_field)
        new = replace(new, nullable=change.nullable)
    return replace(new, metadata=metadata)


def _new_type(state: TableState, name: str, old: DataType, new: DataType) -> DataType:
    if str(old) == str(new):
        return old
    hint: str | None = None
    if isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType) and can_widen(old, new):
        if state.metadata.is_on(Property.ENABLE_TYPE_WIDENING):
            return new
        hint = _WIDENING
    elif not isinstance(old, PrimitiveType):
        hint = f"change its parts: {name}.element, {name}.key, {name}.value or {name}.field"
    raise InvalidArgumentError(f"column {name} is {old}, and cannot become {new}", hint=hint)


def _set_default(state: TableState, change: ColumnChange, metadata: dict[str, Any]) -> None:
    if not change.default:
        metadata.pop(expressions.CURRENT_DEFAULT, None)
        return
    if _DEFAULTS not in state.protocol.supported:
        raise InvalidArgumentError(
            f"column {change.name} cannot have a default: the table lacks the feature {_DEFAULTS}",
            hint=format_hint("{} adds it", call("add_feature", _DEFAULTS)),
        )
    metadata[expressions.CURRENT_DEFAULT] = change.default


def _require_loosened(change: ColumnChange, *, is_field: bool) -> None:
    if not is_field:
        raise InvalidArgumentError(
            f"{change.name} is a part of an array or a map: whether it may be null is fixed"
        )
    if not change.nullable:
        raise InvalidArgumentError(
            f"column {change.name} cannot become NOT NULL: existing rows were not checked",
            hint=format_hint(
                "{} checks them", call("add_constraint", "present", f"{change.name} IS NOT NULL")
            ),
        )
