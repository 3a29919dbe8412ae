"""`delvec clean-target`: expire snapshots of a converted table, and delete files it alone had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.deleted_files import show_files
from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    age,
    catalog_options,
    dry_run,
    expiry_options,
    limit_option,
    table_argument,
)
from delvec.cli.output import Column, JsonOutput
from delvec.cli.spark_tables import on_spark
from delvec.cli.table_kinds import require_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from delvec.cli.output import Output

__all__ = ["command"]

_COLUMNS: Final = [
    Column("kind", "file", "bold", is_unbroken=True),
    Column("name", "name", name_width=56),
    Column("reason", "reason", omitted=1),
    Column("modified", "modified (UTC)", is_unbroken=True, omitted=2),
    Column("size", "size", is_unbroken=True),
]


@delvec_command(
    "clean-target",
    "snapshots may have expired already: run it again, files that are left are orphans then and go"
    " when they are as old as --orphan-age",
)
@table_argument
@expiry_options
@click.option(
    "--orphan-age",
    callback=age,
    default="3d",
    show_default=True,
    metavar="AGE",
    help="Delete files that no snapshot refers to if they are older; a day or more.",
)
@dry_run
@limit_option("Show so many files of a dry run, 0 for all. JSON holds all of them.")
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    older_than: timedelta | datetime | None,
    retain_last: int | None,
    orphan_age: timedelta,
    dry_run: bool,
    limit: int,
    iceberg: dict[str, Any],
) -> None:
    """Expire snapshots of TABLE, a converted Iceberg table, and delete files that it alone had.

    Without --older-than and --retain-last no snapshot expires: orphan files and branches of dead
    conversions are removed. Files of the source are never touched.

    \b
    delvec clean-target lake.db.orders --older-than 7d --dry-run
    """  # noqa: D301
    from delvec.conversion.clean_target import clean_target, retention_of  # noqa: PLC0415

    require_name(table)
    retention_of(older_than, retain_last, orphan_age)  # rejected before a JVM starts
    with on_spark(output, table, iceberg) as spark:
        report = clean_target(
            spark,
            table,
            older_than=older_than,
            retain_last=retain_last,
            orphan_age=orphan_age,
            dry_run=dry_run,
        )
    output.draw(report)
    if dry_run:
        show_files(output, _COLUMNS, report.files, limit, _cells)
    if isinstance(output, JsonOutput):
        output.result({**report.to_json(), "files": report.files.to_pylist()})


def _cells(file: Mapping[str, Any]) -> dict[str, Any]:
    return {**file, "name": file["path"].rpartition("/")[2]}
