"""CHECK constraints of a table: properties that hold a condition on every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.delta.schema.expressions import CONSTRAINT, constraints
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from delvec.delta.alter.table_state import TableState

__all__ = ["add_constraint", "checked_condition", "drop_constraint"]


def add_constraint(state: TableState, name: str, expression: str) -> TableState:
    """Add a CHECK constraint; the caller has checked it on the rows of the table.

    Raises:
        InvalidArgumentError: There is one of this name.
    """
    condition = checked_condition(name, expression)
    if found := _found(state, name):
        raise InvalidArgumentError(
            f"there is a constraint {found} already: {constraints(state.metadata)[found]}",
            hint="drop it first, or use another name",
        )
    properties = {**state.metadata.configuration, f"{CONSTRAINT}{name.lower()}": condition}
    return state.with_properties(properties).upgraded(state)


def drop_constraint(state: TableState, name: str, *, if_exists: bool = False) -> TableState:
    """Drop a CHECK constraint.

    Raises:
        InvalidArgumentError: There is none of this name (unless `if_exists`).
    """
    found = _found(state, name)
    if found is None and not if_exists:
        known = ", ".join(constraints(state.metadata))
        others = f", only {known}" if known else ": the table has none"
        raise InvalidArgumentError(
            f"there is no constraint {name}{others}", hint="if_exists=True ignores it"
        )
    kept = dict(state.metadata.configuration)
    kept.pop(f"{CONSTRAINT}{found}", None)
    return state.with_properties(kept)


def checked_condition(name: str, expression: str) -> str:
    """Return the condition of a constraint, trimmed.

    Raises:
        InvalidArgumentError: The name or the condition is empty.
    """
    if not name.strip() or not expression.strip():
        raise InvalidArgumentError(f"constraint {name!r} has no name or no condition")
    return expression.strip()


def _found(state: TableState, name: str) -> str | None:
    return next(
        (each for each in constraints(state.metadata) if each.lower() == name.lower()), None
    )
