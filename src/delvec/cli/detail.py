"""`delvec detail`: what a table is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    branch_option,
    catalog_options,
    storage_options,
    table_argument,
    version_options,
)
from delvec.cli.output import visible
from delvec.cli.spark_tables import delta_table, opened_iceberg, show_report
from delvec.cli.table_kinds import is_delta, refuse_options
from delvec.report.figures import counted, percent, size
from delvec.report.rendered import Summary

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.delta.table import TableDetail

__all__ = ["command"]


@delvec_command("detail")
@table_argument
@version_options
@branch_option
@storage_options
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    version: int | None,
    timestamp: str | None,
    branch: str,
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Show what TABLE is made of: files, rows, deletes, protocol or format, branches, tags.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog. Options of versions are for Delta tables, those of branches and catalogs for
    Iceberg tables.

    \b
    delvec detail /lake/orders
    delvec detail lake.db.orders --warehouse /warehouse
    """  # noqa: D301
    if is_delta(table):
        refuse_options("an Iceberg table", {"--branch": branch})
        found = delta_table(table, options).detail(version, timestamp)
        _show(output, found)
        output.result(found.to_json())
        return
    given = {"--version": version, "--timestamp": timestamp, "--storage-option": options}
    refuse_options("a Delta table", given)
    with opened_iceberg(output, table, iceberg) as (_, target):
        detail = target.detail(branch=branch)
    show_report(output, detail)


def _show(output: Output, found: TableDetail) -> None:
    """Print the facts of a Delta table, in the form that those of an Iceberg table have."""
    rows = "rows unknown: the log has no statistics of some files"
    if found.rows is not None:
        rows = f"{counted(found.rows, 'live row')}"
    deleted = ""
    if found.files_with_vectors:
        share = "" if found.rows is None else percent(found.deleted_rows, _all_rows(found))
        of_all = f" ({share})" if share else ""
        vectors = counted(found.files_with_vectors, "deletion vector")
        deleted = f"{counted(found.deleted_rows, 'row')}{of_all} by {vectors}"
    features = f", features {', '.join(found.features)}" if found.features else ""
    summary = Summary(
        f"{visible(found.location)}: version {found.version:,}",
        {
            "name": visible(found.name or ""),
            "about": visible(found.description or ""),
            "id": found.id or "",
            "partitions": visible(", ".join(found.partition_columns)),
            "data": f"{counted(found.files, 'file')}, {size(found.bytes)}, {rows}",
            "deleted": deleted,
            "protocol": f"reader {found.min_reader_version}, writer {found.min_writer_version}"
            f"{features}",
            "properties": visible(", ".join(f"{k}={v}" for k, v in found.properties.items())),
        },
    )
    for text, style in summary.lines():
        output.note((text, style))


def _all_rows(found: TableDetail) -> int:
    return (found.rows or 0) + found.deleted_rows
