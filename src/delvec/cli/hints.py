"""Hints of errors, in the words of the command: they name calls of Python elsewhere."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["command_hint"]

_WORDS: Final = (
    (r"DeltaTable\.convert_to_delta\(None, '([^']*)'\)", r"delvec convert-to-delta \1"),
    (r"DeltaTable\.create\(spark, '([^']*)', schema\)", r"delvec create \1 --schema ..."),
    (
        r'open it by its name: IcebergTable\.for_name\(spark, "catalog\.database\.table"\)',
        "give its name in a catalog, such as lake.db.orders",
    ),
)


def command_hint(hint: str) -> str:
    """Return a hint with commands in place of calls.

    >>> command_hint("make it one: DeltaTable.convert_to_delta(None, '/lake/orders')")
    'make it one: delvec convert-to-delta /lake/orders'
    """
    for pattern, command in _WORDS:
        hint = re.sub(pattern, command, hint)
    return hint
