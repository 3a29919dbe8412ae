"""Names of SQL in backticks, paths of names such as `` a.`b.c` ``, and literals of strings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

QUOTED: Final = r"`(?:[^`]|``)+`"

_OWN: Final = "__delvec_"  # columns that delvec adds to rows while it works
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART: Final = re.compile(rf"{QUOTED}|[^.`]+")


def quote(name: str) -> str:
    """Return a name in backticks, as SQL and Spark's `col` take any name.

    >>> quote("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def quote_if_needed(name: str) -> str:
    """Return a name as it is, or in backticks if it is not a plain word.

    >>> quote_if_needed("orders"), quote_if_needed("orders-2026")
    ('orders', '`orders-2026`')
    """
    return name if _PLAIN.fullmatch(name) else quote(name)


def unquote(identifier: str) -> str:
    """Return the name that an identifier stands for, in backticks or not.

    >>> unquote("`a``b`"), unquote("a")
    ('a`b', 'a')
    """
    return identifier[1:-1].replace("``", "`") if identifier.startswith("`") else identifier


def sql_string(value: str) -> str:
    r"""Return a string as a literal of Spark SQL.

    >>> print(sql_string("it's"))
    'it\'s'
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def split_path(path: str) -> tuple[str, ...]:
    """Split a column's path at its dots; names with dots in them are in backticks.

    >>> split_path("a.element.`b.c`")
    ('a', 'element', 'b.c')
    """
    parts = _PART.findall(path)
    if not parts or _PART.sub("x", path) != ".".join("x" * len(parts)):
        raise InvalidArgumentError(
            f"{path!r} is not a path of a column", hint="write a.b, and `a.b` for a dot in a name"
        )
    return tuple(unquote(part) for part in parts)


def require_no_own_names(names: Iterable[str], table: str) -> None:
    """Refuse columns of a table that delvec could take for its own, or its own for them."""
    taken = [name for name in names if name.lower().startswith(_OWN)]
    if taken:
        raise UnsupportedFeatureError(
            f"{table} has a column {taken[0][:80]!r}: what begins with {_OWN} is delvec's own",
            feature=f"columns named {_OWN}",
            needed_by=table,
            hint="rename the column",
        )
