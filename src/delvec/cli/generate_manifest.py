"""`delvec generate-manifest`: symlink manifests of a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.cli.main import command as delvec_command
from delvec.cli.options import dry_run, storage_options, table_argument
from delvec.cli.output import visible
from delvec.cli.spark_tables import delta_table
from delvec.delta.log.symlink_manifest import require_plain

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("generate-manifest", "some manifests may be new and others old: run it again")
@table_argument
@dry_run
@storage_options
def command(output: Output, table: str, *, dry_run: bool, options: dict[str, str]) -> None:
    """Write symlink manifests of the newest version of TABLE, the path or URI of a Delta table.

    Presto, Athena and others read the Parquet files that these list. A table with deletion vectors
    is refused, since such readers ignore them: run `delvec purge` first.

    \b
    delvec generate-manifest /lake/orders
    """  # noqa: D301
    target = delta_table(table, options)
    require_plain(target.snapshot())
    with output.working("writing the manifests"):
        version = target.version if dry_run else target.generate_manifest()
    what = "would get manifests; nothing was written" if dry_run else "has manifests"
    root = target.storage.root
    output.note((visible(root), "bold"), f": version {version:,} {what}")
    output.result({"table": root, "version": version, "dry_run": dry_run})
