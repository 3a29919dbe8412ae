"""What operations on a table do to its rows, said in plain Python: rows are a list of dicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.interop.expressions import Expression, Row

Rows = list[Row]
Assignments = dict[str, Expression]


@dataclass(frozen=True)
class Outcome:
    """The rows afterwards, and how many were touched in which way."""

    rows: Rows
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    fired: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Append:
    rows: Rows
    files: int
    name = "append"

    def apply(self, rows: Rows) -> Outcome:
        return Outcome(rows + self.rows, inserted=len(self.rows))

    def __str__(self) -> str:
        return f"append {len(self.rows)} rows in {self.files} tasks"


@dataclass(frozen=True)
class Overwrite:
    """New rows in place of all, or of those that satisfy a condition (as the new ones do)."""

    rows: Rows
    files: int
    where: Expression | None
    name = "overwrite"

    def apply(self, rows: Rows) -> Outcome:
        kept = [] if self.where is None else [row for row in rows if not _holds(self.where, row)]
        return Outcome(kept + self.rows, deleted=len(rows) - len(kept), inserted=len(self.rows))

    def __str__(self) -> str:
        return f"overwrite where {_sql(self.where)} by {len(self.rows)} rows"


@dataclass(frozen=True)
class Delete:
    where: Expression | None
    name = "delete"

    def apply(self, rows: Rows) -> Outcome:
        kept = [row for row in rows if not _holds(self.where, row)]
        return Outcome(kept, deleted=len(rows) - len(kept))

    def __str__(self) -> str:
        return f"delete where {_sql(self.where)}"


@dataclass(frozen=True)
class Update:
    set: Assignments
    where: Expression | None
    name = "update"

    def apply(self, rows: Rows) -> Outcome:
        hits = [_holds(self.where, row) for row in rows]
        after = [
            _assigned(row, self.set, {"": row}) if hit else row
            for row, hit in zip(rows, hits, strict=True)
        ]
        return Outcome(after, updated=sum(hits))

    def __str__(self) -> str:
        return f"update {_assignments(self.set)} where {_sql(self.where)}"


@dataclass(frozen=True)
class Clause:
    """A clause of a MERGE; `set` is None for a delete and for "all columns of the source"."""

    when: Literal["matched", "not matched", "not matched by source"]
    action: Literal["update", "delete", "insert"]
    condition: Expression | None
    set: Assignments | None

    @property
    def kind(self) -> str:
        whole = self.set is None and self.action != "delete"
        return f"{self.when}: {self.action}{' all' if whole else ''}"

    def __str__(self) -> str:
        return f"when {self.kind} if {_sql(self.condition)} {_assignments(self.set or {})}"


@dataclass(frozen=True)
class Merge:
    """A MERGE by a source in which no two rows match one of the table."""

    source: Rows
    on: Expression
    clauses: tuple[Clause, ...]
    name = "merge"

    def apply(self, rows: Rows) -> Outcome:
        after: Rows = []
        fired: Counter[str] = Counter()
        partnered: set[int] = set()
        for row in rows:
            partners = [
                number
                for number, source in enumerate(self.source)
                if self.on.of({"t.": row, "s.": source}) is True
            ]
            assert len(partners) < 2, "the source is ambiguous"
            partnered.update(partners)
            scope = {"t.": row, "s.": self.source[partners[0]]} if partners else {"t.": row}
            clause = self._first("matched" if partners else "not matched by source", scope)
            fired[clause.kind if clause else "none"] += 1
            if clause is None:
                after.append(row)
            elif clause.action == "update":
                after.append(_written(clause, scope, row))
        for number, source in enumerate(self.source):
            scope = {"s.": source}
            if number not in partnered and (clause := self._first("not matched", scope)):
                fired[clause.kind] += 1
                after.append(_written(clause, scope, dict.fromkeys(source)))
        counts = {
            action: sum(n for kind, n in fired.items() if f": {action}" in kind)
            for action in ("delete", "update", "insert")
        }
        return Outcome(after, counts["delete"], counts["update"], counts["insert"], fired)

    def _first(self, when: str, scope: dict[str, Row]) -> Clause | None:
        for clause in self.clauses:
            if clause.when == when and (
                clause.condition is None or clause.condition.of(scope) is True
            ):
                return clause
        return None

    def __str__(self) -> str:
        clauses = "; ".join(map(str, self.clauses))
        return f"merge {len(self.source)} rows on {self.on.sql}: {clauses}"


Operation = Append | Overwrite | Delete | Update | Merge


def _holds(where: Expression | None, row: Row) -> bool:
    return where is None or where.of({"": row}) is True


def _written(clause: Clause, scope: dict[str, Row], before: Row) -> Row:
    return dict(scope["s."]) if clause.set is None else _assigned(before, clause.set, scope)


def _assigned(row: Row, values: Assignments, scope: dict[str, Row]) -> Row:
    """Give columns new values, all of them computed from the row as it was."""
    after = dict(row)
    for name, value in values.items():
        top, *inner = name.split(".")
        new: Any = value.of(scope)
        if inner:
            new = (row[top] or dict.fromkeys(("x", "label"))) | {inner[0]: new}
        after[top] = new
    return after


def _sql(condition: Expression | None) -> str:
    return "-" if condition is None else condition.sql


def _assignments(values: Assignments) -> str:
    return ", ".join(f"{name} := {value.sql}" for name, value in values.items())
