"""SQL expressions in pairs: the text that engines get, and a Python function that says its value.

A row is a dict. Functions get the rows in scope by the prefix that the text has for their columns:
"" for the one table of a DELETE or UPDATE, "t." and "s." for the two sides of a MERGE. NULL is
None, and a condition is True, False or None.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any, Literal

Row = dict[str, Any]
Scope = Mapping[str, Row]


NAMES = ("anna", "Änne", "żółw", "名前", "smile 🙂", "", "o'hara", "a%b_c", "back\\slash", None)
# Texts that a path must escape; an empty one would be NULL in Delta.
PARTS = ("nord", "süd", "a b", "x/y=z%25", None)
DAYS = (date(2024, 2, 28), date(2024, 2, 29), date(1969, 12, 31), None)
STAMPS = (
    datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=timezone.utc),
    datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=timezone.utc),
    datetime(2025, 7, 1, 12, tzinfo=timezone.utc),
    None,
)


@dataclass(frozen=True)
class Expression:
    """A text in SQL and what it means."""

    sql: str
    of: Callable[[Scope], Any]


def literal(value: object) -> Expression:
    return Expression(_text(value), lambda _: value)


def column(name: str) -> Expression:
    return Expression(name, lambda scope: _value(scope, name))


def strict(template: str, function: Callable[..., Any], *parts: Expression) -> Expression:
    """Give NULL where one of the parts is, else what the function gives."""

    def of(scope: Scope) -> object:
        values = [part.of(scope) for part in parts]
        return None if any(value is None for value in values) else function(*values)

    return Expression(template.format(*(part.sql for part in parts)), of)


def equal(left: Expression, right: Expression) -> Expression:
    return strict("{} = {}", operator.eq, left, right)


def negated(inner: Expression) -> Expression:
    return strict("NOT ({})", operator.not_, inner)


def both(left: Expression, right: Expression) -> Expression:
    return _joined("AND", False, left, right)


def either(left: Expression, right: Expression) -> Expression:
    return _joined("OR", True, left, right)


def _joined(word: str, decisive: bool, left: Expression, right: Expression) -> Expression:  # noqa: FBT001
    def of(scope: Scope) -> bool | None:
        values = (left.of(scope), right.of(scope))
        if decisive in values:
            return decisive
        return None if None in values else not decisive

    return Expression(f"({left.sql}) {word} ({right.sql})", of)


def _value(scope: Scope, name: str) -> object:
    prefix = name[:2] if name[:2] in ("t.", "s.") else ""
    value: Any = scope[prefix]
    for part in name.removeprefix(prefix).split("."):
        value = None if value is None else value[part]
    return value


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP'{value:%Y-%m-%d %H:%M:%S.%f} UTC'"
    if isinstance(value, date):
        return f"DATE'{value}'"
    return f"{value}BD" if isinstance(value, Decimal) else str(value)


def _null(name: str) -> Expression:
    return Expression(f"{name} IS NULL", lambda scope: _value(scope, name) is None)


def _among(name: str, *values: object) -> Expression:
    """Make an IN whose list ends in NULL: it is never false."""
    texts = ", ".join(map(_text, (*values, None)))

    def of(scope: Scope) -> bool | None:
        return True if _value(scope, name) in values else None

    return Expression(f"{name} IN ({texts})", of)


def _same(name: str, value: object) -> Expression:
    return Expression(f"{name} <=> {_text(value)}", lambda scope: _value(scope, name) == value)


def _compared(name: str, sign: str, value: object) -> Expression:
    function: Callable[[Any, Any], bool] = {
        "<": operator.lt,
        ">=": operator.ge,
        "=": operator.eq,
        "<>": operator.ne,
    }[sign]
    return strict(f"{{}} {sign} {{}}", _by_bytes(function), column(name), literal(value))


def _by_bytes(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Order texts as Spark does, by their bytes in UTF-8."""
    return lambda *values: function(*(v.encode() if isinstance(v, str) else v for v in values))


def _present(rng: Random, values: tuple[Any, ...]) -> Any:  # noqa: ANN401
    return rng.choice([value for value in values if value is not None])


def _range(rng: Random, p: str) -> Expression:
    low = rng.randrange(100)
    high = low + rng.randrange(5, 40)
    return strict(
        f"{{}} BETWEEN {low} AND {high}", lambda value: low <= value <= high, column(f"{p}id")
    )


def _modulo(rng: Random, p: str) -> Expression:
    divisor, rest = rng.randrange(2, 5), rng.randrange(2)
    return strict(
        f"{{}} % {divisor} = {rest}", lambda value: value % divisor == rest, column(f"{p}id")
    )


def _prefixed(rng: Random, p: str) -> Expression:
    start = rng.choice(["a", "Ä", "名", "smile "])
    return strict(
        f"{{}} LIKE '{start}%'", lambda value: value.startswith(start), column(f"{p}name")
    )


# One condition each, by what it is about; `p` is the prefix of its columns.
LEAVES: dict[str, Callable[[Random, str], Expression]] = {
    "point": lambda rng, p: _compared(f"{p}id", "=", rng.randrange(120)),
    "range": _range,
    "modulo": _modulo,
    "null": lambda rng, p: _null(p + rng.choice(["id", "name", "amount", "place", "place.x"])),
    "unknown": lambda rng, p: _among(f"{p}id", *(rng.randrange(120) for _ in range(12))),
    "same": lambda rng, p: _same(f"{p}name", rng.choice(NAMES)),
    "text": lambda rng, p: _compared(
        f"{p}name", rng.choice(["=", "<>", "<"]), _present(rng, NAMES)
    ),
    "like": _prefixed,
    "decimal": lambda rng, p: _compared(f"{p}amount", ">=", Decimal(rng.randrange(5000)) / 100),
    "stamp": lambda rng, p: _compared(f"{p}stamp", "<", _present(rng, STAMPS)),
    "nested": lambda rng, p: _compared(f"{p}place.x", "<", rng.randrange(5)),
    "part": lambda rng, p: _compared(f"{p}part", "=", _present(rng, PARTS)),
    "no part": lambda _, p: _null(f"{p}part"),
    "day": lambda rng, p: _compared(f"{p}day", "<", _present(rng, DAYS)),
    "no day": lambda _, p: _null(f"{p}day"),
}


def condition(rng: Random, prefix: str = "", depth: int = 1) -> tuple[Expression, tuple[str, ...]]:
    """Make a condition; also give the names of what it is made of."""
    shape = rng.randrange(7) if depth else 6
    if shape == 0:
        inner, names = condition(rng, prefix, depth - 1)
        return negated(inner), (*names, "not")
    if shape in (1, 2):
        left, names = condition(rng, prefix, depth - 1)
        right, more = condition(rng, prefix, depth - 1)
        join, word = ((both, "and"), (either, "or"))[shape - 1]
        return join(left, right), (*names, *more, word)
    name = rng.choice(list(LEAVES))
    return LEAVES[name](rng, prefix), (name,)


def assignment(rng: Random, name: str, prefix: str, source: str | None) -> Expression:
    """Make a new value for a column, from the row itself or from that of a source."""
    own = column(prefix + name)
    if source is not None and rng.randrange(2):
        return column(source + name)
    return {
        "id": lambda: strict("{} + 1000", lambda value: value + 1000, own),
        "part": lambda: literal(rng.choice(PARTS)),
        "name": lambda: strict("concat({}, '✓')", lambda value: value + "✓", own),
        "amount": lambda: strict("{} + 1.50", lambda value: value + Decimal("1.50"), own),
        "day": lambda: strict("date_add({}, 1)", lambda value: value + timedelta(1), own),
        "stamp": lambda: strict("{} - INTERVAL 36 HOURS", lambda v: v - timedelta(hours=36), own),
        "place": lambda: _place(prefix),
    }[name]()


def _place(prefix: str) -> Expression:
    name = f"{prefix}name"
    return Expression(
        f"named_struct('x', 5, 'label', {name})",
        lambda scope: {"x": 5, "label": _value(scope, name)},
    )


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
