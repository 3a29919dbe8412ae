"""The plan of a conversion, file by file, for `delvec convert --dry-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.cli.output import Column, JsonOutput, used_columns
from delvec.report.figures import counted, percent, size

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.conversion.plan import ConversionPlan

__all__ = ["show_plan"]

# Changed files first, unchanged ones last.
_ORDER: Final = ("add", "remove", "vector-add", "vector-replace", "vector-drop", "keep")
_STYLES: Final = {"version": "cyan", "action": "bold", "new_vector": "red"}
_TITLES: Final = {
    "version": "version",
    "action": "action",
    "file": "file",
    "rows": "rows",
    "deleted_rows": "deleted",
    "old_vector": "old vector",
    "new_vector": "new vector",
    "size": "size",
}
_WIDTHS: Final = {"file": 34, "old_vector": 10, "new_vector": 10}
_OMITTED: Final = {"size": 1, "old_vector": 2}
_COLUMNS: Final = [
    Column(
        key,
        title,
        _STYLES.get(key, ""),
        is_unbroken=key in ("action", "size", "old_vector", "new_vector"),
        name_width=_WIDTHS.get(key),
        omitted=_OMITTED.get(key, 0),
    )
    for key, title in _TITLES.items()
]


def show_plan(output: Output, plan: ConversionPlan, limit: int) -> None:
    """Show a plan: JSON with all files, text with as many as the limit."""
    files = plan.to_arrow()
    total = _total(files)
    if isinstance(output, JsonOutput):
        output.result({**plan.to_json(), "total": total, "files": files.to_pylist()})
        return
    output.draw(plan)
    ranks = pc.index_in(files["action"].combine_chunks(), value_set=pa.array(_ORDER))
    order = np.lexsort((ranks.to_numpy(), files["version"].to_numpy()))
    shown = files.take(order[:limit] if limit else order)
    rows = [_row(file) for file in shown.to_pylist()]
    if len(plan.planned.steps) == 1:
        for row in rows:
            row["version"] = None
    width = max((len(row["size"]) for row in rows), default=0)
    for row in rows:
        row["size"] = row["size"].rjust(width)
    if rows:
        output.table(used_columns(_COLUMNS, rows), rows)
    if left := len(files) - len(rows):
        output.note((f"… and {left:,} more; --limit 0 shows all", "dim"))
    output.note(_sentence(total, "file" if len(plan.planned.steps) < 2 else "change"))


def _total(files: pa.Table) -> dict[str, int]:
    names = ("rows", "deleted_rows", "bytes", "vector_bytes")
    sums = {name: pc.sum(files[name], min_count=0).as_py() for name in names}
    return {"files": len(files), **sums}


def _sentence(total: dict[str, int], noun: str) -> str:
    deleted = f"{total['deleted_rows']:,} of them deleted"
    if total["deleted_rows"]:
        deleted += f" ({percent(total['deleted_rows'], total['rows'])})"
    figures = [counted(total["files"], noun), size(total["bytes"]), counted(total["rows"], "row")]
    return f"{', '.join([*figures, deleted])}; nothing was written"


def _row(file: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a file."""
    *folders, name = file["path"].split("/")
    # Of the folders, only those of partitions are shown.
    partition = "/".join(folder for folder in folders if "=" in folder)
    return {
        **file,
        "file": f"{partition}/{name}".lstrip("/"),
        "deleted_rows": file["deleted_rows"] or None,
        "size": size(file["bytes"]),
    }
