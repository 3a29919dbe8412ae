"""All attacks, from the tables of their kinds."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tests.hostile.attack import Attack

_TABLES: Final = (
    *("documents", "expressions", "iceberg", "log_names", "names", "paths", "races", "sizes"),
    "texts",
)

ATTACKS: Final[list[Attack]] = [
    attack for name in _TABLES for attack in import_module(f"tests.hostile.{name}").ATTACKS
]
