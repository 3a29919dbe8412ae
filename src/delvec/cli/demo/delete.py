"""The first step: rows are deleted, data files are not touched, and other readers agree."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from delvec.cli.demo.readers import has_delta_rs, readers
from delvec.delta.table import DeltaTable
from delvec.report.figures import counted, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.demo.stage import Stage

__all__ = ["NAME", "show_delete"]

NAME: Final = "orders"
"""The Delta table of most steps, as a folder."""

_ROWS: Final = 200_000
_FILES: Final = 4
_WHERE: Final = "id % 10 = 7"


def show_delete(stage: Stage) -> dict[str, Any]:
    """Make a table, delete rows all over it, and compare files and readers."""
    tell = stage.teller
    tell.begin(
        "Delete rows; the data files stay as they are.",
        f'table = delvec.DeltaTable.create(spark, "{NAME}", rows.schema)',
        "table.append(rows)",
        f'table.delete("{_WHERE}")',
    )
    ids = stage.spark.range(0, _ROWS, 1, _FILES)
    rows = ids.selectExpr("id", "'open' status", "id * 7919 % 100000 cents")
    table = DeltaTable.create(stage.spark, stage.path(NAME), rows.schema)
    table.append(rows)
    files = _data_files(table)
    found = readers(stage.spark, table)
    before = {name: read() for name, read in found.items()}
    report = table.delete(_WHERE)
    after = {name: read() for name, read in found.items()}
    same_files = _data_files(table) == files
    shown = [
        {
            "reader": name,
            "before": before[name][0],
            "after": after[name][0],
            "agrees": _agreement(after[name], next(iter(after.values()))),
        }
        for name in found
    ]
    titles = {"reader": "read by", "before": "before", "after": "after", "agrees": "same rows"}
    tell.table(titles, shown)
    data = sum(each["size"] for each in files.values())
    compared = "the same names, sizes, times and SHA-256" if same_files else "CHANGED"
    tell.fact(f"{counted(len(files), 'data file')}: ", (compared, "bold green"))
    tell.fact(
        f"written: {counted(report.vectors_added, 'deletion vector')},"
        f" {size(report.vector_bytes)}, instead of {size(data)} of new files"
    )
    if not has_delta_rs():
        tell.fact(("delta-rs was not asked: it is not installed (pip install deltalake)", "dim"))
    tell.why("A delete costs what it deletes. (The bytes are still there: see below.)")
    return {
        "table": table.storage.root,
        "report": report.to_json(),
        "readers": shown,
        "files": files,
        "files_unchanged": same_files,
    }


def _agreement(rows: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Return whether rows are those expected, by their number and sums; else how many too many."""
    return "yes" if rows == expected else f"no, {rows[0] - expected[0]:+,}"


def _data_files(table: DeltaTable) -> dict[str, Mapping[str, Any]]:
    """Return size, time and hash of each Parquet file below the table."""
    return {
        info.key: {
            "size": info.size,
            "modified_ms": info.modified_ms,
            "sha256": sha256(table.storage.read(info.key)).hexdigest(),
        }
        for info in table.storage.list(recursive=True)
        if info.key.endswith(".parquet") and not info.key.startswith("_")
    }
