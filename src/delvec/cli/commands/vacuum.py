"""Commands that delete files which a table no longer needs, and show them first in a dry run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.exits import ExitCode
from delvec.cli.main import command
from delvec.cli.options import CATALOG, DRY_RUN, EXPIRY, LOCATION, STORAGE, TABLE, limit, option
from delvec.cli.tables import ICEBERG, LOG, on_spark, report_command, require_name, table_command
from delvec.cli.terminal import Column
from delvec.cli.values import age
from delvec.delta.vacuum.candidates import kind_of
from delvec.report.format import format_size

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.delta.table import DeltaTable
    from delvec.iceberg.table import IcebergTable
    from delvec.report.rendering import Rendered

_AGAIN: Final = "files may have been deleted already: run it again for the others"
_LIMIT: Final = limit("Show so many files of a dry run, 0 for all. JSON holds all of them.")
_COLUMNS: Final = [
    Column("kind", "file", "bold", is_unbroken=True),
    Column("name", "path", name_width=80),
    Column("modified", "modified (UTC)", is_unbroken=True, omitted=1),
    Column("size", "size", is_unbroken=True, is_right=True),
]
_TARGET_COLUMNS: Final = [
    Column("kind", "file", "bold", is_unbroken=True),
    Column("name", "name", name_width=56),
    Column("reason", "reason", omitted=1),
    Column("modified", "modified (UTC)", is_unbroken=True, omitted=2),
    Column("size", "size", is_unbroken=True, is_right=True),
]


@table_command(
    "vacuum",
    LOG,
    option(
        "--retention-hours HOURS",
        "Keep what was removed or modified within so many hours; what the table says if absent, or"
        " else 168.",
        type=click.FloatRange(min=0),
    ),
    option(
        "--lite", "Do not list the folder: take the files from the commits since the last vacuum."
    ),
    option("--force", "Allow a retention shorter than the table's."),
    DRY_RUN,
    _LIMIT,
    STORAGE,
    unfinished=_AGAIN,
)
def vacuum(output: Output, table: DeltaTable, *, limit: int, **how: Any) -> None:
    """Delete the files below TABLE, the path or URI of a Delta table, that it no longer needs.

    Whatever is in its folder goes, unless a version within the retention needs it, it was modified
    within the retention, or its name begins with _ or a dot.

    \b
    delvec vacuum /lake/orders --dry-run
    delvec vacuum /lake/orders --retention-hours 0 --force
    """
    with output.progress() as show:
        report = table.vacuum(on_progress=show, **how)
    _show_deleted(output, report, limit, _COLUMNS)
    if report.files_failed:
        sys.exit(ExitCode.FAILED)


@report_command(
    "clean-log",
    LOG,
    DRY_RUN,
    STORAGE,
    unfinished="log files may have been deleted already: run it again for the others",
)
def clean_log(table: DeltaTable, **how: Any) -> Rendered:
    """Delete commits and checkpoints of TABLE, a Delta table, that are older than its retention.

    That is its property delta.logRetentionDuration, or else 30 days. Versions since then stay
    readable. Data files are deleted by `delvec vacuum`.

    \b
    delvec clean-log /lake/orders --dry-run
    """
    return table.clean_log(**how)


@report_command(
    "expire-snapshots",
    ICEBERG,
    EXPIRY,
    LOCATION,
    DRY_RUN,
    unfinished="snapshots may have expired already: files that only they had are orphan files then,"
    " which remove-orphan-files deletes",
)
def expire_snapshots(table: IcebergTable, **how: Any) -> Rendered:
    """Expire snapshots of TABLE, an Iceberg table, and delete files that only they had.

    Iceberg's own expire_snapshots does it. Newest snapshots of branches and tagged ones stay, and
    staging branches stay such. Targets of conversions are cleaned by `delvec clean-target`. A dry
    run counts snapshots, not files.

    \b
    delvec expire-snapshots lake.db.orders --older-than 7d --retain-last 10
    """
    return table.expire_snapshots(**how)


@report_command(
    "remove-orphan-files",
    ICEBERG,
    option(
        "--older-than AGE",
        "Files older than this, such as 7d or 2026-01-31, a day or more; 3d if absent.",
    ),
    LOCATION,
    DRY_RUN,
    unfinished=_AGAIN,
)
def remove_orphan_files(table: IcebergTable, **how: Any) -> Rendered:
    """Delete files in the location of TABLE, an Iceberg table, that no snapshot refers to.

    Iceberg's own remove_orphan_files does it. Files of running writes are among them until they
    commit, so young ones stay.

    \b
    delvec remove-orphan-files lake.db.orders --dry-run
    """
    return table.remove_orphan_files(**how)


@command(
    "clean-target",
    "snapshots may have expired already: run it again, files that are left are orphans then and go"
    " when they are as old as --orphan-age",
)
@TABLE
@EXPIRY
@option(
    "--orphan-age AGE",
    "Delete files that no snapshot refers to if they are older; a day or more.",
    type=age,
    default="3d",
)
@DRY_RUN
@_LIMIT
@CATALOG
def clean_target(
    output: Output, table: str, *, dry_run: bool, limit: int, iceberg: dict[str, Any], **ages: Any
) -> None:
    """Expire snapshots of TABLE, a converted Iceberg table, and delete files that it alone had.

    Without --older-than and --retain-last no snapshot expires: orphan files and branches of dead
    conversions are removed. Files of the source are never touched.

    \b
    delvec clean-target lake.db.orders --older-than 7d --dry-run
    """
    from delvec.conversion.clean_target import clean_target, retention_of  # noqa: PLC0415

    require_name(table)
    retention_of(**ages)  # rejected before a JVM starts
    with on_spark(output, table, iceberg) as spark:
        report = clean_target(spark, table, dry_run=dry_run, **ages)
    _show_deleted(output, report, limit, _TARGET_COLUMNS)


def _show_deleted(output: Output, report: Any, limit: int, columns: Sequence[Column]) -> None:
    """Show a report; of a dry run as many files as the limit, 0 for all; in JSON all of them."""
    if output.as_json:
        output.result({**report.to_json(), "files": report.files.to_pylist()})
        return
    output.draw(report)
    if not report.dry_run:
        return
    files = report.files
    rows: list[dict[str, Any]] = (files.slice(0, limit) if limit else files).to_pylist()
    for row in rows:
        if "kind" in row:  # a file of a target, whose paths are long
            row["name"] = row["path"].rpartition("/")[2]
        else:
            row |= {"kind": kind_of(row["path"]), "name": row["path"]}
        row["modified"] = f"{row['modified']:%Y-%m-%d %H:%M}"
        row["size"] = format_size(row["bytes"])
    output.listing(columns, rows, files.num_rows)
