"""`delvec vacuum`: delete the files that a table no longer needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.deleted_files import show_files
from delvec.cli.exits import ExitCode
from delvec.cli.main import command as delvec_command
from delvec.cli.options import dry_run, limit_option, storage_options, table_argument
from delvec.cli.output import Column, JsonOutput
from delvec.cli.spark_tables import delta_table
from delvec.delta.maintain.vacuum.candidates import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output

__all__ = ["command"]

_COLUMNS: Final = [
    Column("kind", "file", "bold", is_unbroken=True),
    Column("name", "path", name_width=80),
    Column("modified", "modified (UTC)", is_unbroken=True, omitted=1),
    Column("size", "size", is_unbroken=True),
]


@delvec_command("vacuum", "files may have been deleted already: run it again for the others")
@table_argument
@click.option(
    "--retention-hours",
    type=click.FloatRange(min=0),
    metavar="HOURS",
    help="Keep what was removed or modified within so many hours; what the table says if absent,"
    " or else 168.",
)
@click.option(
    "--lite",
    is_flag=True,
    help="Do not list the folder: take the files from the commits since the last vacuum.",
)
@click.option("--force", is_flag=True, help="Allow a retention shorter than the table's.")
@dry_run
@limit_option("Show so many files of a dry run, 0 for all. JSON holds all of them.")
@storage_options
def command(
    output: Output,
    table: str,
    *,
    retention_hours: float | None,
    lite: bool,
    force: bool,
    dry_run: bool,
    limit: int,
    options: dict[str, str],
) -> None:
    """Delete the files below TABLE, the path or URI of a Delta table, that it no longer needs.

    Whatever is in its folder goes, unless a version within the retention needs it, it was modified
    within the retention, or its name begins with _ or a dot.

    \b
    delvec vacuum /lake/orders --dry-run
    delvec vacuum /lake/orders --retention-hours 0 --force
    """  # noqa: D301
    target = delta_table(table, options)
    with output.progress() as show:
        report = target.vacuum(
            retention_hours,
            dry_run=dry_run,
            lite=lite,
            force=force,
            on_progress=show,
        )
    output.draw(report)
    if dry_run:
        show_files(output, _COLUMNS, report.files, limit, _cells)
    if isinstance(output, JsonOutput):
        output.result({**report.to_json(), "files": report.files.to_pylist()})
    if report.files_failed:
        sys.exit(ExitCode.FAILED)


def _cells(file: Mapping[str, Any]) -> dict[str, str]:
    return {"kind": kind_of(file["path"]), "name": file["path"]}
