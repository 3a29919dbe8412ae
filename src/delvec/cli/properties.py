"""`delvec properties`: the properties of a table, shown or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import catalog_options, pairs, table_argument, write_options
from delvec.cli.output import Column, visible
from delvec.cli.spark_tables import delta_table, opened_iceberg
from delvec.cli.table_kinds import is_delta, refuse_delta_options
from delvec.errors import UnsupportedFeatureError
from delvec.report.figures import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output
    from delvec.delta.write.report import WriteReport

__all__ = ["command"]

_COLUMNS: Final = [Column("key", "property", "bold"), Column("value", "value")]


@delvec_command("properties")
@table_argument
@click.option(
    "--set",
    "wanted",
    multiple=True,
    metavar="KEY=VALUE",
    callback=pairs,
    help="Set a property; may be repeated.",
)
@click.option("--unset", multiple=True, metavar="KEY", help="Unset a property; may be repeated.")
@write_options
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    wanted: dict[str, str],
    unset: tuple[str, ...],
    how: dict[str, Any],
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Show the properties of TABLE, or change them: --set or --unset, each in a commit.

    TABLE is the path or URI of a Delta table, or the name of an Iceberg table in a catalog, whose
    properties are shown only.

    \b
    delvec properties /lake/orders
    delvec properties /lake/orders --set delta.appendOnly=true
    """  # noqa: D301
    if wanted and unset:
        raise click.UsageError("--set and --unset are two commits: give one of them")
    if not is_delta(table):
        _refuse_changes(table, wanted, unset)
        refuse_delta_options("--dry-run")
        with opened_iceberg(output, table, iceberg) as (_, named):
            _show(output, named.name, named.properties)
        return
    target = delta_table(table, options)
    if not (wanted or unset):
        _show(output, target.storage.root, target.properties)
        return
    before = target.properties
    report = (
        target.set_properties(wanted, **how) if wanted else target.unset_properties(unset, **how)
    )
    _show_change(output, report, before, dict.fromkeys(unset) | wanted)


def _show_change(
    output: Output,
    report: WriteReport,
    before: Mapping[str, str],
    after: Mapping[str, str | None],
) -> None:
    """Show the report, and what each property was and is, or would be."""
    output.draw(report)
    would = "would be " if report.dry_run else ""
    for key, value in after.items():
        old = f" (it was {visible(before[key])})" if key in before else ""
        what = "unset" if value is None else f"set to {visible(value)}"
        output.note(f"  {visible(key)}: {would}{what}{old}")
    changes = {key: {"from": before.get(key), "to": value} for key, value in after.items()}
    output.result({**report.to_json(), "properties": changes})


def _refuse_changes(table: str, wanted: Mapping[str, str], unset: tuple[str, ...]) -> None:
    if not (wanted or unset):
        return
    if wanted:
        # A value may be a secret, and hints are kept in logs.
        given = ", ".join(f"{_literal(key)}='…'" for key in wanted)
        statement = f"ALTER TABLE {table} SET TBLPROPERTIES ({given})"
    else:
        given = ", ".join(map(_literal, unset))
        statement = f"ALTER TABLE {table} UNSET TBLPROPERTIES ({given})"
    raise UnsupportedFeatureError(
        f"the properties of {table}, an Iceberg table, are changed by its catalog",
        feature="properties of Iceberg tables",
        hint=f"run in Spark SQL: {statement}",
    )


def _literal(text: str) -> str:
    r"""Return a literal of Spark SQL.

    >>> print(_literal("it's"))
    'it\'s'
    """
    escaped = visible(text).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _show(output: Output, name: str, properties: Mapping[str, str]) -> None:
    count = f"{len(properties):,} properties"
    shown = counted(1, "property") if len(properties) == 1 else count
    output.note((visible(name), "bold"), f": {shown}")
    rows = [{"key": key, "value": value} for key, value in sorted(properties.items())]
    if rows:
        output.table(_COLUMNS, rows)
    output.result({"table": name, "properties": dict(sorted(properties.items()))})
