"""`delvec merge`: update, delete and insert rows of a table by those of a source."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from delvec.cli.clauses import UPSERT, parse_clause
from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    source_options,
    spark_options,
    table_argument,
    txn_options,
    write_options,
)
from delvec.cli.sources import rows_from
from delvec.cli.spark_tables import opened, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("merge")
@table_argument
@source_options()
@click.option("--on", required=True, metavar="SQL", help='Which rows match, as in "t.id = s.id".')
@click.option(
    "--when",
    "clauses",
    multiple=True,
    metavar="CLAUSE",
    help="What to do with which rows; of several that fit a row the first decides.",
)
@click.option(
    "--upsert",
    is_flag=True,
    help='Short for --when "matched then update set *" --when "not matched then insert *".',
)
@click.option("--merge-schema", is_flag=True, help="Add columns that the table does not have.")
@txn_options
@write_options
@spark_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    source: str,
    kind: str | None,
    on: str,
    clauses: tuple[str, ...],
    upsert: bool,
    merge_schema: bool,
    txn: dict[str, Any],
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Change rows of TABLE, the path or URI of a Delta table, by those of a source.

    In conditions and values the table is `t` and the source `s`. The clauses are those of SQL:

    \b
    matched [and SQL] then delete
    matched [and SQL] then update set *
    matched [and SQL] then update set COLUMN = SQL, ...
    not matched [and SQL] then insert *
    not matched [and SQL] then insert (COLUMN, ...) values (SQL, ...)
    not matched by source [and SQL] then delete
    not matched by source [and SQL] then update set COLUMN = SQL, ...

    \b
    delvec merge /lake/orders --source changes.parquet --on "t.id = s.id" \\
      --when "matched and s.gone then delete" --when "not matched then insert *"
    """  # noqa: D301
    if bool(clauses) == upsert:
        raise click.UsageError("give --upsert, or one --when or more")
    parsed = UPSERT if upsert else tuple(map(parse_clause, clauses))
    with opened(output, table, options, session=session) as (spark, target):
        rows = rows_from(spark, target, source, kind, options)
        merge = target.merge(rows, on, merge_schema=merge_schema)
        report = reduce(lambda built, clause: clause.add_to(built), parsed, merge).execute(
            **txn, **how
        )
    show_report(output, report)
