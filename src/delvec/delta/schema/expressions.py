"""The expressions that a table has for its rows, and the names in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.schema.walk import walk
from delvec.documents import parse_json
from delvec.errors import FormatError
from delvec.identifiers import QUOTED, unquote

if TYPE_CHECKING:
    from delvec.delta.schema.metadata import Metadata

__all__ = [
    "CONSTRAINT",
    "CURRENT_DEFAULT",
    "GENERATION",
    "IDENTITY",
    "INVARIANT",
    "constraints",
    "invariants",
    "names_in",
]

# CHECK constraints are properties of the table, all else is in the metadata of a column.
CONSTRAINT: Final = "delta.constraints."
CURRENT_DEFAULT: Final = "CURRENT_DEFAULT"
GENERATION: Final = "delta.generationExpression"
IDENTITY: Final = "delta.identity."
INVARIANT: Final = "delta.invariants"

# A string, a quoted name, or a word and whether it is called; in this order.
_TOKEN: Final = re.compile(
    rf"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | ({QUOTED}) | ([^\W\d]\w*)\s*(\(?)""",
    re.VERBOSE | re.DOTALL,
)


def constraints(metadata: Metadata) -> dict[str, str]:
    """Return the CHECK constraints of a table by name."""
    return {
        key.removeprefix(CONSTRAINT): text
        for key, text in metadata.configuration.items()
        if key.startswith(CONSTRAINT)
    }


def invariants(metadata: Metadata) -> dict[str, str]:
    """Return the invariants of columns, which older tables may have, by the column's path."""
    found = {
        ".".join(each.name for each in path): path[-1].metadata[INVARIANT]
        for path in walk(metadata.schema, structs_only=True)
        if INVARIANT in path[-1].metadata
    }
    return {name: _invariant(value, name) for name, value in found.items()}


def names_in(expression: str) -> frozenset[str]:
    """Return all words of an expression that may be columns, in lower case; none inside strings.

    Keywords are among them: callers look for the names of columns.

    >>> sorted(names_in("length(`My Name`) > 3 AND s.x <> 'y'"))
    ['and', 'my name', 's', 'x']
    """
    names = set()
    for quoted, word, called in _TOKEN.findall(expression):
        if quoted:
            names.add(unquote(quoted).lower())
        elif word and not called:
            names.add(word.lower())
    return frozenset(names)


def _invariant(value: Any, path: str) -> str:  # noqa: ANN401
    """Read an invariant: a string of JSON in the JSON of the schema."""
    try:
        text = parse_json(value, "the invariant")["expression"]["expression"]
    except (TypeError, ValueError, KeyError) as error:
        raise FormatError(
            f"the invariant of column {path} is not readable",
            expected='{"expression": {"expression": "..."}}',
            found=repr(value)[:80],
        ) from error
    return str(text)
