"""Attacks by the names of files in the log."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from tests.delta.builder import TableBuilder
from tests.hostile.attack import Attack

if TYPE_CHECKING:
    from tests.hostile.attack import Ground

__all__ = ["ATTACKS"]


def _half_deleted(ground: Ground) -> TableBuilder:
    """Make a table of 100 rows, of which version 2 deletes 50."""
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(100)})
    table.commit({"add": add})
    [vector] = table.write_vectors(range(50))
    table.delete(add, vector)
    return table


def _arabic_version(ground: Ground) -> None:
    table = _half_deleted(ground)
    digits = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    name = table.commit_path(2).name.translate(digits)
    shutil.copy(table.commit_path(1), table.log / name)


def _half_is_deleted(_: Ground, rows: Any) -> None:  # noqa: ANN401
    assert len(rows) == 50


ATTACKS: Final = [
    Attack(
        "comes back",
        "a commit whose name is in Arabic digits",
        "read",
        "harmless",
        put=_arabic_version,
        then=_half_is_deleted,
    ),
]
