"""The clauses of `delvec merge`, in the syntax of SQL's MERGE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from delvec.cli.sql import Cursor, assignments, column

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["UPSERT", "ClauseText", "parse_clause"]

Of: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]
Action: TypeAlias = Literal["delete", "update", "update_all", "insert", "insert_all"]

_ALIAS: Final = "t"
_HINT: Final = (
    '"matched [and CONDITION] then delete | update set * | update set a = x, ...",'
    ' "not matched [and CONDITION] then insert * | insert (a, ...) values (x, ...)",'
    ' "not matched by source [and CONDITION] then delete | update set a = x, ..."'
)
_ALLOWED: Final[Mapping[Of, frozenset[Action]]] = {
    "matched": frozenset({"delete", "update", "update_all"}),
    "not_matched": frozenset({"insert", "insert_all"}),
    "not_matched_by_source": frozenset({"delete", "update"}),
}


@dataclass(frozen=True)
class ClauseText:
    """One WHEN clause of a merge, its expressions as strings."""

    of: Of
    action: Action
    condition: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)

    def add_to(self, builder: Any) -> Any:  # noqa: ANN401
        """Return the merge builder with this clause added."""
        method = getattr(builder, f"when_{self.of}_{self.action}")
        arguments = [self.values] if self.values else []
        return method(*arguments, condition=self.condition)


UPSERT: Final = (ClauseText("matched", "update_all"), ClauseText("not_matched", "insert_all"))


def parse_clause(text: str) -> ClauseText:
    """Parse a clause; `WHEN` may be omitted.

    >>> parse_clause("matched and s.gone then delete")
    ClauseText(of='matched', action='delete', condition='s.gone', values={})

    Raises:
        InvalidArgumentError: It is not a clause.
    """
    cursor = Cursor(text, hint=_HINT)
    cursor.takes("WHEN")
    of = _of(cursor)
    condition = cursor.until("THEN") if cursor.takes("AND") else None
    cursor.expect("THEN")
    action, values = _action(cursor)
    if not cursor.is_at_end:
        cursor.refuse("expected nothing more")
    if action not in _ALLOWED[of]:
        what = action.replace("_all", " *").upper()
        cursor.refuse(f"{of.replace('_', ' ').upper()} does not go with {what}")
    return ClauseText(of, action, condition, values)


def _of(cursor: Cursor) -> Of:
    if cursor.takes("MATCHED"):
        return "matched"
    cursor.expect("NOT", "MATCHED")
    if cursor.takes("BY", "SOURCE"):
        return "not_matched_by_source"
    cursor.takes("BY", "TARGET")
    return "not_matched"


def _action(cursor: Cursor) -> tuple[Action, Mapping[str, str]]:
    if cursor.takes("DELETE"):
        return "delete", {}
    if cursor.takes("UPDATE"):
        cursor.expect("SET")
        return ("update_all", {}) if cursor.takes("*") else ("update", assignments(cursor, _ALIAS))
    if not cursor.takes("INSERT"):
        cursor.refuse("expected DELETE, UPDATE or INSERT")
    if cursor.takes("*"):
        return "insert_all", {}
    names = [column(cursor, name, _ALIAS) for name in cursor.bracketed()]
    cursor.expect("VALUES")
    values = cursor.bracketed()
    if len(names) != len(values) or len(set(names)) < len(names):
        cursor.refuse(f"{len(values)} values for the columns {', '.join(names)}")
    return "insert", dict(zip(names, values, strict=True))
