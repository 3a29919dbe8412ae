"""The table of files that a command would delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.report.figures import size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from delvec.cli.output import Column, Output

__all__ = ["show_files"]


def show_files(
    output: Output,
    columns: Sequence[Column],
    files: pa.Table,
    limit: int,
    cells: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> None:
    """Show the files that would be deleted, as many as the limit; 0 for all.

    Args:
        output: Where to.
        columns: The columns; `modified` and `size` are made here.
        files: The files, with `path`, `bytes` and `modified`.
        limit: The most files that are shown.
        cells: Returns the other cells of a file.
    """
    shown = files.slice(0, limit) if limit else files
    rows = [
        {
            **cells(file),
            "modified": f"{file['modified']:%Y-%m-%d %H:%M}",
            "size": size(file["bytes"]),
        }
        for file in shown.to_pylist()
    ]
    width = max((len(row["size"]) for row in rows), default=0)
    for row in rows:
        row["size"] = row["size"].rjust(width)
    if rows:
        output.table(columns, rows)
    if left := files.num_rows - len(rows):
        output.note((f"… and {left:,} more; --limit 0 shows all", "dim"))
