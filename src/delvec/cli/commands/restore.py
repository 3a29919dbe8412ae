"""Commands that make a table of files that are there, such as `restore` and `clone`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command
from delvec.cli.options import PROPERTY, SPARK, VERSION, WRITES, option, present, together
from delvec.cli.tables import LOG, Opening, open_delta, open_log, report_command, require_path
from delvec.cli.values import completes
from delvec.delta.table import DeltaTable
from delvec.errors import StorageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from delvec.cli.output import Output
    from delvec.report.rendering import Rendered


def _require_version(given: dict[str, Any]) -> None:
    if given["version"] is None and given["timestamp"] is None:
        raise click.UsageError("give --version or --timestamp")


@report_command("restore", LOG, together(VERSION, check=_require_version), WRITES)
def restore(table: DeltaTable, **how: Any) -> Rendered:
    """Bring TABLE, the path or URI of a Delta table, back to an earlier version.

    The versions since then stay in its history. All files of that version must still exist.

    \b
    delvec restore /lake/orders --version 3
    delvec restore /lake/orders --timestamp "2026-01-31 10:00:00" --dry-run
    """
    return table.restore(**how)


@report_command(
    "clone",
    LOG,
    click.argument("target", shell_complete=completes("dir")),
    option("--replace", "Replace a table at TARGET, if it has no rows."),
    VERSION,
    WRITES,
)
def clone(table: DeltaTable, target: str, **how: Any) -> Rendered:
    """Make TARGET, a new folder, a Delta table with the data files of TABLE: a shallow clone.

    Both can be changed independently. But a `delvec vacuum` of TABLE deletes files that only the
    clone still needs.

    \b
    delvec clone /lake/orders /scratch/orders --version 3
    """
    return table.clone(target, **how)


def _open_as_needed(
    output: Output, table: str, options: dict[str, str], session: dict[str, Any]
) -> AbstractContextManager[DeltaTable]:
    """Open a table without Spark if there is nothing to do for it."""
    dry_run = click.get_current_context().params["dry_run"]
    try:
        with open_log(output, table, options) as found:
            if dry_run or not found.snapshot().files.has_vector.any():
                return open_log(output, table, options)
    except StorageError:
        if "://" not in table:  # else the keys of a bucket may be the session's
            raise
    return open_delta(output, table, options, session)


@report_command(
    "downgrade",
    Opening(_open_as_needed, (SPARK,)),
    option(
        "--truncate-history",
        "Delete older versions that need vectors, once they are old enough, for a lower protocol.",
    ),
    WRITES,
)
def downgrade(table: DeltaTable, **how: Any) -> Rendered:
    """Turn TABLE into one that readers without deletion vectors open.

    TABLE is the path or URI of a Delta table. Files with vectors are rewritten, and the protocol
    does without the feature. Older versions stay readable, unless --truncate-history deletes them:
    then it ends with exit code 5, and says when to come back, while they are too young. Run it
    again after an interruption: it goes on where it was.

    \b
    delvec downgrade /lake/orders --dry-run
    """
    return table.drop_deletion_vectors(**how)


@command("convert-to-delta")
@click.argument("folder", shell_complete=completes("dir"))
@option(
    "--partition-by COLUMN[=TYPE]",
    "A partition column, whose values are in the names of folders, such as day=date; may be"
    " repeated. If absent, the folders tell.",
    multiple=True,
)
@PROPERTY
@WRITES
def convert_to_delta(
    output: Output,
    folder: str,
    *,
    partition_by: tuple[str, ...],
    properties: dict[str, str],
    options: dict[str, str],
    **how: Any,
) -> None:
    """Make FOLDER, the path or URI of Parquet files, a Delta table; no file is written again.

    \b
    delvec convert-to-delta /lake/orders --partition-by day=date
    """
    require_path(folder)
    given = [each.partition("=") for each in partition_by]
    if len({bool(sign) for _, sign, _ in given}) > 1:
        raise click.UsageError("give the types of all partition columns, or of none")
    columns: Any = {name: kind for name, sign, kind in given if sign} or list(partition_by) or None
    with output.progress("reading the footers"):
        report = DeltaTable.convert_to_delta(
            None, folder, columns, properties or None, storage_options=options, **present(how)
        )
    output.report(report)
