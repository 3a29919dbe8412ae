"""`delvec refs`: the branches and tags of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.cli.main import command as delvec_command
from delvec.cli.options import catalog_options, table_argument
from delvec.cli.output import Column, used_columns, visible
from delvec.cli.spark_tables import opened_iceberg
from delvec.report.figures import counted

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]

_COLUMNS: Final = [
    Column("name", "name", "bold", name_width=40),
    Column("kind", "kind", "cyan", is_unbroken=True),
    Column("snapshot", "snapshot", is_unbroken=True),
    Column("staging", "staging", is_unbroken=True, omitted=1),
]


@delvec_command("refs")
@table_argument
@catalog_options
def command(output: Output, table: str, *, iceberg: dict[str, Any]) -> None:
    """Show the branches and tags of TABLE, an Iceberg table by its name in a catalog.

    \b
    delvec refs lake.db.orders
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        found = [each.asDict(recursive=True) for each in target.refs().collect()]
        name = target.name
    rows = [_row(each) for each in found]
    branches = sum(row["kind"] == "branch" for row in rows)
    count = f"{branches:,} branch" + ("" if branches == 1 else "es")
    tags = counted(len(rows) - branches, "tag")
    output.note((visible(name), "bold"), f": {count}, {tags}")
    if rows:
        output.table(used_columns(_COLUMNS, rows), rows)
    output.result({"table": name, "refs": found})


def _row(ref: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a branch or tag."""
    return {
        "name": ref["name"],
        "kind": ref["type"],
        "snapshot": str(ref["snapshot_id"]),
        "staging": "yes" if ref["is_staging"] else None,
    }
