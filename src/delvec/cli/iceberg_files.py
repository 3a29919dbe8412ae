"""The files of an Iceberg table, for `delvec files`: data files and every form of deletes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from delvec.cli.output import Column, used_columns, visible
from delvec.inspection.columns import partition_word
from delvec.report.figures import counted, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.cli.output import Output
    from delvec.iceberg.table import IcebergTable

__all__ = ["show_iceberg_files"]

_COLUMNS: Final = [
    Column("path", "file", name_width=40),
    Column("content", "content", "cyan"),
    Column("partition", "partition", "cyan", name_width=32, omitted=2),
    Column("rows", "rows or keys"),
    Column("size", "size", is_unbroken=True, omitted=1),
]
# The files that rows are in first, then what deletes some of them.
_ORDER: Final = ("data", "deletion-vector", "position-deletes", "equality-deletes")


def show_iceberg_files(
    output: Output, target: IcebergTable, which: Mapping[str, Any], limit: int
) -> None:
    """Show the files of a snapshot, the largest of each kind first.

    Args:
        output: Where to.
        target: The table.
        which: The snapshot: arguments of `IcebergTable.files`.
        limit: How many files are shown as text; 0 for all.
    """
    found = [each.asDict(recursive=True) for each in target.files(**which).collect()]
    found.sort(key=_order)
    output.note((visible(target.name), "bold"), f": {_sentence(found)}")
    rows = [_row(each) for each in (found[:limit] if limit else found)]
    width = max((len(row["size"]) for row in rows), default=0)
    for row in rows:
        row["size"] = row["size"].rjust(width)
    if rows:
        output.table(used_columns(_COLUMNS, rows), rows)
    if left := len(found) - len(rows):
        output.note((f"… and {counted(left, 'file')} more; --limit 0 shows all", "dim"))
    output.result({"table": target.name, **which, "files": found})


def _order(file: Mapping[str, Any]) -> tuple[Any, ...]:
    content = file["content"]
    place = _ORDER.index(content) if content in _ORDER else len(_ORDER)
    return place, -file["rows"], file["sequence_number"], file["path"]


def _sentence(files: Sequence[Mapping[str, Any]]) -> str:
    """Return how many files of each kind there are, and the rows of the data files."""
    kinds = Counter(each["content"] for each in files)
    rows = sum(each["rows"] for each in files if each["content"] == "data")
    parts = [
        f"{counted(kinds.pop('data', 0), 'data file')} with {counted(rows, 'row')}",
        *(f"{count:,} {kind}" for kind, count in sorted(kinds.items())),
    ]
    return ", ".join([*parts, size(sum(each["bytes"] for each in files))])


def _row(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table row of a file; its folder repeats that of the table."""
    values = file["partition"].items()
    return {
        "path": file["path"].rpartition("/")[2],
        "content": file["content"],
        "partition": " ".join(f"{name}={partition_word(text)}" for name, text in values),
        "rows": file["rows"],
        "size": size(file["bytes"]),
    }
