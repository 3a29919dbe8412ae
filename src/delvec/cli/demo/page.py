"""The last step: what a table is made of, as a page for a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.demo.delete import NAME
from delvec.delta.table import DeltaTable
from delvec.report.figures import bar, counted, percent, size

if TYPE_CHECKING:
    from delvec.cli.demo.stage import Stage
    from delvec.inspection.figures import Share

__all__ = ["show_page"]

_FILES: Final = 4
_NAME_WIDTH: Final = len("part-00000")


def show_page(stage: Stage, file: str) -> dict[str, Any]:
    """Write the page to a file, and show a part of what is on it."""
    tell = stage.teller
    tell.begin(
        "What a table is made of, and what to run next, on a page with charts.",
        'table.inspect().write_html("report.html")',
    )
    report = DeltaTable.for_path(None, stage.path(NAME)).inspect()
    page = report.write_html(file)
    titles = {"name": "data file", "rows": "rows", "deleted": "deleted", "share": "share"}
    tell.table(titles, [_line(each) for each in report.most_deleted.shown[:_FILES]])
    tell.fact(
        f"{counted(report.vectors.count, 'vector')} in {counted(report.files, 'data file')};"
        f" a purge and a vacuum would free {size(report.freed.rewrite.freed)}"
    )
    tell.fact("written, and kept: ", (str(page), "bold"))
    tell.why("Open it in a browser: no script, no network, made to be kept or sent.")
    return {"path": str(page), "report": report.to_json()}


def _line(share: Share) -> dict[str, Any]:
    rows = share.rows or 0
    return {
        "name": share.name.rpartition("/")[2][:_NAME_WIDTH],  # the rest is a UUID
        "rows": share.rows,
        "deleted": share.deleted,
        "share": f"{bar(share.deleted, rows)} {percent(share.deleted, rows)}",
    }
