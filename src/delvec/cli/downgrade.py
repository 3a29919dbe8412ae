"""`delvec downgrade`: turn a table into one that readers without deletion vectors open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import spark_options, table_argument, write_options
from delvec.cli.spark_tables import delta_table, opened, show_report
from delvec.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output
    from delvec.delta.table import DeltaTable

__all__ = ["command"]


@delvec_command("downgrade")
@table_argument
@click.option(
    "--truncate-history",
    is_flag=True,
    help="Delete older versions that need vectors, once they are old enough, for a lower protocol.",
)
@write_options
@spark_options
def command(
    output: Output,
    table: str,
    *,
    truncate_history: bool,
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Turn TABLE into one that readers without deletion vectors open.

    TABLE is the path or URI of a Delta table. Files with vectors are rewritten, and the protocol
    does without the feature. Older versions stay readable, unless --truncate-history deletes them:
    then it ends with exit code 5, and says when to come back, while they are too young. Run it
    again after an interruption: it goes on where it was.

    \b
    delvec downgrade /lake/orders --dry-run
    """  # noqa: D301
    plain = _without_spark(table, options, dry_run=how["dry_run"])
    if plain is not None:
        with output.working("reading the log"):
            report = plain.drop_deletion_vectors(truncate_history=truncate_history, **how)
    else:
        with opened(output, table, options, session=session) as (_, target):
            report = target.drop_deletion_vectors(truncate_history=truncate_history, **how)
    show_report(output, report)


def _without_spark(table: str, options: Mapping[str, str], *, dry_run: bool) -> DeltaTable | None:
    """Open a table that Spark has nothing to do for; None if it may have."""
    try:
        found = delta_table(table, options)
        return found if dry_run or not found.snapshot().files.has_vector.any() else None
    except StorageError:
        if "://" in table:
            return None  # the keys of a bucket may be the session's
        raise
