"""Identifiers of SQL: names in backticks, and paths of names such as `` a.`b.c` ``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "QUOTED",
    "quote",
    "quote_if_needed",
    "require_no_own_names",
    "split_path",
    "unquote",
]

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


def split_path(path: str) -> tuple[str, ...]:
    """Split a column's path at its dots; names with dots in them are in backticks.

    >>> split_path("a.element.`b.c`")
    ('a', 'element', 'b.c')

    Raises:
        InvalidArgumentError: A name is empty, or a backtick is not closed.
    """
    parts = _PART.findall(path)
    if not parts or _PART.sub("x", path) != ".".join("x" * len(parts)):
        raise InvalidArgumentError(
            f"{path!r} is no path of a column", hint="write a.b, and `a.b` for a dot in a name"
        )
    return tuple(unquote(part) for part in parts)


def require_no_own_names(names: Iterable[str], table: str) -> None:
    """Refuse columns of a table that delvec could take for its own, or its own for them.

    Raises:
        UnsupportedFeatureError: It names the first.
    """
    taken = [name for name in names if name.lower().startswith(_OWN)]
    if taken:
        raise UnsupportedFeatureError(
            f"{table} has a column {taken[0][:80]!r}: what begins with {_OWN} is delvec's own",
            feature=f"columns named {_OWN}",
            needed_by=table,
            hint="rename the column",
        )
