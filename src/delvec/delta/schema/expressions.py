"""The expressions that a table keeps for its rows, and the names in them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.schema.types import StructType
from delvec.errors import FormatError
from delvec.identifiers import QUOTED, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import Field

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

# Where they are: CHECK constraints among the properties, all else with a column.
CONSTRAINT: Final = "delta.constraints."
CURRENT_DEFAULT: Final = "CURRENT_DEFAULT"
GENERATION: Final = "delta.generationExpression"
IDENTITY: Final = "delta.identity."
INVARIANT: Final = "delta.invariants"

# A text, a quoted name, or a word and whether it is called; in this order.
_TOKEN: Final = re.compile(
    rf"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | ({QUOTED}) | ([^\W\d]\w*)\s*(\(?)""",
    re.VERBOSE | re.DOTALL,
)


def constraints(metadata: Metadata) -> dict[str, str]:
    """Give the CHECK constraints of a table by name."""
    return {
        key.removeprefix(CONSTRAINT): text
        for key, text in metadata.configuration.items()
        if key.startswith(CONSTRAINT)
    }


def invariants(metadata: Metadata) -> dict[str, str]:
    """Give the invariants of columns, which older tables have, by the column's path."""
    return {
        path: _invariant(field.metadata[INVARIANT], path)
        for path, field in _fields(metadata.schema)
        if INVARIANT in field.metadata
    }


def names_in(expression: str) -> frozenset[str]:
    """Give all words of an expression that may be columns, in lower case; not those in texts.

    Keywords are among them: who asks looks for names that it knows.

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


def _fields(kind: StructType, parent: str = "") -> Iterator[tuple[str, Field]]:
    for field in kind.fields:
        path = f"{parent}{field.name}"
        yield path, field
        if isinstance(field.type, StructType):
            yield from _fields(field.type, f"{path}.")


def _invariant(value: Any, path: str) -> str:  # noqa: ANN401
    """Read an invariant: a JSON text in the JSON of the schema."""
    try:
        text = json.loads(value)["expression"]["expression"]
    except (TypeError, ValueError, KeyError) as error:
        raise FormatError(
            f"the invariant of column {path} is not readable",
            expected='{"expression": {"expression": "..."}}',
            found=repr(value)[:80],
        ) from error
    return str(text)
