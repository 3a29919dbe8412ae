"""What a user does with a hostile table: with delvec, and with the engines it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import delvec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hostile.attack import Ground

__all__ = ["OPERATIONS", "Operation"]

NAME: Final = "lake.hostile.t"  # of the Iceberg table, if there is one


@dataclass(frozen=True)
class Operation:
    """What is done, and whether it needs a JVM."""

    run: Callable[[Ground], Any]
    spark: bool = False


def _offline(ground: Ground) -> delvec.DeltaTable:
    return delvec.DeltaTable.for_path(None, str(ground.table))


def _delta(ground: Ground) -> delvec.DeltaTable:
    return delvec.DeltaTable.for_path(ground.spark, str(ground.table))


OPERATIONS: Final[dict[str, Operation]] = {
    # Without a session.
    "open": Operation(_offline),
    "read": Operation(lambda ground: _offline(ground).to_arrow().to_pylist()),
    "history": Operation(lambda ground: _offline(ground).history()),
    "check": Operation(lambda ground: _offline(ground).check()),
    "inspect": Operation(lambda ground: _offline(ground).inspect()),
    "vacuum": Operation(lambda ground: _offline(ground).vacuum(retention_hours=0, force=True)),
    "checkpoint": Operation(lambda ground: _offline(ground).checkpoint()),
    # With one.
    "read on Spark": Operation(lambda ground: _delta(ground).to_df().collect(), spark=True),
    "optimize": Operation(lambda ground: _delta(ground).optimize(), spark=True),
    "purge": Operation(lambda ground: _delta(ground).purge(), spark=True),
}
