"""A Delta table with deleted rows in some files, for tests of its inspection; no JVM."""

from __future__ import annotations

import os
from pathlib import Path

from tests.delta.builder import Action, TableBuilder

ROWS = 100
_OLD = 1_600_000_000


def partitioned_table(
    root: Path, days: tuple[str | None, ...] = ("2026-01-30", "2026-01-31", None), files: int = 4
) -> tuple[TableBuilder, list[Action]]:
    """Make a table with some files of 100 rows in each partition; rows of every second are deleted.

    The first file of each partition has no deleted rows, the second has 10, the third none, the
    fourth 30, and so on. Beside them is an old file that the log does not name.
    """
    table = TableBuilder(root, fields={"id": "long", "day": "string"}, partition_columns=["day"])
    table.create()
    adds: list[Action] = []
    for place, day in enumerate(days):
        made = [
            table.write_file(
                f"day={place}/part-{place}-{number}.parquet",
                {"id": list(range(ROWS))},
                {"day": day},
            )
            for number in range(files)
        ]
        table.commit(*({"add": add} for add in made))
        adds += made
    for place in range(1, len(adds), 2):
        [vector] = table.write_vectors(range(10 * (place % files)))
        adds[place] = table.delete(adds[place], vector)
    (root / "orphan.parquet").write_bytes(bytes(1000))
    os.utime(root / "orphan.parquet", (_OLD, _OLD))
    return table, adds
