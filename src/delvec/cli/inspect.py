"""`delvec inspect`: a table at a glance with what to run next, or a file of deletion vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.advised import with_commands
from delvec.cli.inspect_file import VECTOR_FILES, show_file
from delvec.cli.main import command as delvec_command
from delvec.cli.options import storage_options, version_options
from delvec.cli.session_options import catalog_options
from delvec.cli.spark_tables import delta_table, opened_iceberg
from delvec.cli.table_kinds import is_delta, refuse_options
from delvec.errors import InvalidArgumentError
from delvec.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output

__all__ = ["command"]

_HISTORY: Final = 100


@delvec_command("inspect")
@click.argument("table", metavar="TABLE|FILE")
@click.option(
    "--html", type=click.Path(), metavar="PATH", help="Write a page with charts to this file too."
)
@version_options
@click.option("--branch", metavar="NAME", help="Iceberg: the branch; main if absent.")
@click.option("--snapshot-id", type=int, metavar="ID", help="Iceberg: instead, a snapshot.")
@click.option(
    "--history",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Look at so many of the newest commits; {_HISTORY} if absent.",
)
@click.option(
    "--listing/--no-listing",
    default=None,
    help="Look for what a vacuum, or expired snapshots, would free. By default where that takes"
    " little: up to 100,000 live files, or 100 snapshots.",
)
@storage_options
@catalog_options
def command(  # noqa: PLR0913 - one for each option
    output: Output,
    table: str,
    *,
    html: str | None,
    version: int | None,
    timestamp: str | None,
    branch: str | None,
    snapshot_id: int | None,
    history: int | None,
    listing: bool | None,
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Show TABLE at a glance, and what to run next and why; or what is in FILE.

    TABLE is the path or URI of a Delta table, or the name of an Iceberg table in a catalog. Rows
    live and deleted, deletion vectors and their ages, equality deletes that wait, the files with
    the most deleted rows, and the bytes that maintenance would free. Metadata alone is read.

    FILE is a Delta `.bin` or an Iceberg Puffin file. Every vector is decoded and held against its
    checksum and what the file says of it. Exit code 4 if one is damaged.

    \b
    delvec inspect /lake/orders --html report.html
    delvec inspect lake.db.orders --warehouse /warehouse --branch changes
    delvec inspect /lake/orders/deletion_vector_4c….bin
    """  # noqa: D301
    of_iceberg = {"--branch": branch, "--snapshot-id": snapshot_id}
    of_tables = {"--html": html, "--version": version, "--timestamp": timestamp, **of_iceberg}
    if _is_file(table, options):
        _refuse_for_files(of_tables | {"--history": history})
        show_file(output, table, options)
        return
    limit = _HISTORY if history is None else history
    if is_delta(table):
        refuse_options("an Iceberg table", *of_iceberg)
        target = delta_table(table, options)
        with output.progress() as show:
            report = target.inspect(
                version, timestamp, history=limit, listing=listing, on_progress=show
            )
    else:
        refuse_options("a Delta table", "--version", "--storage-option")
        with opened_iceberg(output, table, iceberg) as (_, named):
            report = named.inspect(
                snapshot_id, timestamp, branch=branch, history=limit, listing=listing
            )
    report = with_commands(report, table)
    output.lines(report.lines)
    page = None if html is None else report.write_html(html)
    if page is not None:
        output.note(("Page: ", "bold"), str(page))
    output.result(report.to_json() | ({} if page is None else {"html": str(page)}))


def _is_file(name: str, options: Mapping[str, str]) -> bool:
    """Return whether a file is named: one that is there, or whose name says that it is one."""
    is_named = name.endswith(VECTOR_FILES)
    try:
        storage, key = Storage.open_file(name, options)
    except InvalidArgumentError:  # a folder, with a slash at its end
        return False
    if "://" in storage.root:
        return is_named
    path = Path(storage.root, key)
    return path.is_file() or (is_named and not path.is_dir())


def _refuse_for_files(given: Mapping[str, object]) -> None:
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise click.UsageError(f"{wrong[0]} is for a table, and this is a file")
