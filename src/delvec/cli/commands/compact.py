"""Commands that rewrite files or metadata and change no row, such as `compact` and `checkpoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.commands.check import plain_comparisons
from delvec.cli.options import (
    BRANCH,
    DRY_RUN,
    FILES,
    LEASE,
    STORAGE,
    WAIT,
    WRITES,
    option,
    together,
)
from delvec.cli.tables import DELTA, ICEBERG, LOG, report_command, table_command
from delvec.delta.write.after_commit import require_plain
from delvec.report.format import escape_controls

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.delta.table import DeltaTable
    from delvec.iceberg.table import IcebergTable
    from delvec.report.rendering import Rendered


@report_command(
    "optimize",
    DELTA,
    FILES,
    option(
        "--target-file-size BYTES",
        "The most live bytes of files that become one, such as 128MB; 256MB if absent.",
    ),
    option(
        "--min-file-size BYTES",
        "Files with fewer live bytes are put together; half of the target if absent.",
    ),
    option(
        "--max-deleted-ratio SHARE",
        "A file with a larger share of deleted rows is rewritten, even alone.",
        type=click.FloatRange(0, 1),
        default=0.05,
    ),
    option(
        "--zorder-by COLUMN",
        "Sort rows by this column, and by others if repeated; rewrites all files.",
        multiple=True,
    ),
    option("--full", "Of a clustered table, sort the files of earlier clustering columns as well."),
    WRITES,
)
def optimize(table: DeltaTable, **how: Any) -> Rendered:
    """Put small files of TABLE, the path or URI of a Delta table, together.

    Files with many deleted rows are rewritten without them. No row changes; writers need not wait.

    \b
    delvec optimize /lake/orders --where "day = '2026-01-31'"
    delvec optimize /lake/orders --zorder-by customer --zorder-by day
    """
    return table.optimize(**how)


@report_command("purge", DELTA, FILES, WRITES)
def purge(table: DeltaTable, **how: Any) -> Rendered:
    """Rewrite exactly the files of TABLE, a Delta table, that have a deletion vector.

    And those that still have columns that were dropped. Afterwards no live file holds deleted rows
    or dropped columns. Old files do until `delvec vacuum` removes them, for readers of older
    versions; `delvec traces` tells where rows still are.

    \b
    delvec purge /lake/orders --dry-run
    """
    return table.purge(**how)


@report_command(
    "compact",
    ICEBERG,
    FILES,
    option(
        "--rewrite-option rewriting KEY=VALUE",
        "An option of rewrite_data_files, such as rewrite-all=true; may be repeated.",
    ),
    WAIT,
    LEASE,
    DRY_RUN,
    unfinished="the files are as they were, or rewritten",
)
def compact(table: IcebergTable, rewriting: dict[str, str], **how: Any) -> Rendered:
    """Rewrite small data files of TABLE, an Iceberg table, and those with many deleted rows.

    Iceberg's own rewrite_data_files does it, while no resolve runs. No row changes.

    \b
    delvec compact lake.db.orders --dry-run
    delvec compact lake.db.orders --rewrite-option delete-file-threshold=1
    """
    return table.compact(options=rewriting, **how)


@report_command(
    "unlock",
    ICEBERG,
    option("--force", "Remove a lock whose lease is not over, whoever has it."),
    DRY_RUN,
    unfinished="the lock is as it was, or removed",
)
def unlock(table: IcebergTable, **how: Any) -> Rendered:
    """Remove the lock that a dead resolve or compact left on TABLE, an Iceberg table.

    Others take such a lock over by themselves when its lease is over.

    \b
    delvec unlock lake.db.orders --dry-run
    delvec unlock lake.db.orders --force
    """
    return table.unlock(**how)


@report_command("consolidate", ICEBERG, BRANCH, DRY_RUN, unfinished="the deletes are as they were")
def consolidate(table: IcebergTable, **how: Any) -> Rendered:
    """Merge the many small equality deletes of TABLE, an Iceberg table, into few.

    No row changes, and no data file is read. Deletes that apply to no data file any more are
    removed.

    \b
    delvec consolidate lake.db.orders --dry-run
    delvec consolidate lake.db.orders --branch changes
    """
    return table.consolidate_deletes(**how)


def _as_comparisons(given: dict[str, Any]) -> None:
    where = given["where"]
    given["where"] = None if where is None else plain_comparisons(where)
    if where is not None and given["where"] is None:
        raise click.UsageError(
            "--where takes comparisons of partition columns here, such as"
            " \"day = '2026-01-31' and country = 'de'\""
        )


@report_command("recompute-statistics", LOG, together(FILES, check=_as_comparisons), WRITES)
def recompute_statistics(table: DeltaTable, **how: Any) -> Rendered:
    """Compute statistics of files of TABLE, a Delta table, that have none, or wide bounds.

    Deletion vectors leave the bounds of their files wide. With tight ones, queries skip files in
    which all rows of interest are deleted. No data file is written. --where compares partition
    columns with values, by = and AND.

    \b
    delvec recompute-statistics /lake/orders --dry-run
    delvec recompute-statistics /lake/orders --where "day = '2026-01-31'"
    """
    return table.recompute_statistics(**how)


@table_command(
    "checkpoint", LOG, DRY_RUN, STORAGE, unfinished="no checkpoint was written, or a whole one"
)
def checkpoint(output: Output, table: DeltaTable, *, dry_run: bool) -> None:
    """Write a checkpoint of the newest version of TABLE, the path or URI of a Delta table.

    Opening the table then takes less time. Every commit writes one by itself where the table's
    property delta.checkpointInterval says that one is due.

    \b
    delvec checkpoint /lake/orders
    """
    version = table.version if dry_run else table.checkpoint()
    _show_version(output, table, "a checkpoint", version, dry_run=dry_run)


@table_command(
    "generate-manifest",
    LOG,
    DRY_RUN,
    STORAGE,
    unfinished="some manifests may be new and others old: run it again",
)
def generate_manifest(output: Output, table: DeltaTable, *, dry_run: bool) -> None:
    """Write symlink manifests of the newest version of TABLE, the path or URI of a Delta table.

    Presto, Athena and others read the Parquet files that these list. A table with deletion vectors
    is refused, since such readers ignore them: run `delvec purge` first.

    \b
    delvec generate-manifest /lake/orders
    """
    require_plain(table.snapshot())
    version = table.version if dry_run else table.generate_manifest()
    _show_version(output, table, "manifests", version, dry_run=dry_run)


def _show_version(
    output: Output, table: DeltaTable, what: str, version: int, *, dry_run: bool
) -> None:
    got = f"would get {what}; nothing was written" if dry_run else f"has {what}"
    root = table.storage.root
    output.note((escape_controls(root), "bold"), f": version {version:,} {got}")
    output.result({"table": root, "version": version, "dry_run": dry_run})
