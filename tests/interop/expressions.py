"""SQL expressions in pairs: the text that engines get, and a Python function that says its value.

A row is a dict. Functions get the rows in scope by the prefix that the text has for their columns:
"" for the one table of a DELETE or UPDATE, "t." and "s." for the two sides of a MERGE. NULL is
None, and a condition is True, False or None.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

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
    for field in name.removeprefix(prefix).split("."):
        value = None if value is None else value[field]
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
