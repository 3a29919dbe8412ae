"""Commands that tell what a table is: `detail`, `schema`, and `properties`, shown or changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text
from rich.tree import Tree

from delvec.cli.options import BRANCH, STORAGE, VERSION, WRITES, option, together
from delvec.cli.tables import either, is_delta, report_command, table_command
from delvec.cli.terminal import Column
from delvec.delta.table import DeltaTable
from delvec.errors import UnsupportedFeatureError
from delvec.identifiers import sql_string
from delvec.report.format import escape_controls, format_count

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.delta.write.report import WriteReport
    from delvec.iceberg.table import IcebergTable
    from delvec.report.rendering import Rendered

_COLUMNS: Final = [Column("key", "property", "bold"), Column("value", "value")]


@report_command("detail", either("--timestamp", "--branch"), VERSION, BRANCH, STORAGE)
def detail(table: DeltaTable | IcebergTable, *, branch: str, **which: Any) -> Rendered:
    """Show what TABLE is made of: files, rows, deletes, protocol or format, branches, tags.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog. Options of versions are for Delta tables, those of branches and catalogs for
    Iceberg tables.

    \b
    delvec detail /lake/orders
    delvec detail lake.db.orders --warehouse /warehouse
    """
    if isinstance(table, DeltaTable):
        return table.detail(**which)
    return table.detail(branch=branch)


@table_command("schema", either("--timestamp"), VERSION, STORAGE)
def schema(output: Output, table: DeltaTable | IcebergTable, **which: Any) -> None:
    """Show the columns of TABLE as a tree; --json prints the schema as Spark writes it.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog.

    \b
    delvec schema /lake/orders --version 3
    delvec schema lake.db.orders --json
    """
    if isinstance(table, DeltaTable):
        snapshot = table.snapshot(**which)
        metadata = snapshot.metadata
        name, when = snapshot.table, f"version {snapshot.version:,}"
        document: Any = metadata.schema.to_json()
        partitions: Sequence[str] = metadata.partition_columns
    else:
        name, when, document = table.name, "current schema", table.schema.jsonValue()
        fields = [field for field in table.spec["fields"] if field["transform"] == "identity"]
        partitions = [field["name"] for field in fields]
    count = format_count(len(document["fields"]), "column")
    output.note((escape_controls(name), "bold"), f": {when}, {count}")
    tree = Tree("", hide_root=True, guide_style="dim")
    _add(tree, document["fields"], partitions)
    output.draw(tree)
    output.result(document)


def _require_changes(given: dict[str, Any]) -> None:
    table = click.get_current_context().params["table"]
    wanted, unset = given["wanted"], given["unset"]
    if wanted and unset:
        raise click.UsageError("--set and --unset are two commits: give one of them")
    if is_delta(table) or not (wanted or unset):
        return
    # A value may be a secret, and hints are kept in logs.
    verb, value = ("SET", "='…'") if wanted else ("UNSET", "")
    keys = ", ".join(f"{sql_string(escape_controls(key))}{value}" for key in wanted or unset)
    raise UnsupportedFeatureError(
        f"the properties of {table}, an Iceberg table, are changed by its catalog",
        feature="properties of Iceberg tables",
        hint=f"run in Spark SQL: ALTER TABLE {table} {verb} TBLPROPERTIES ({keys})",
    )


@table_command(
    "properties",
    either("--dry-run"),
    together(
        option("--set wanted KEY=VALUE", "Set a property; may be repeated."),
        option("--unset KEY", "Unset a property; may be repeated.", multiple=True),
        check=_require_changes,
    ),
    WRITES,
)
def properties(
    output: Output,
    table: DeltaTable | IcebergTable,
    *,
    wanted: dict[str, str],
    unset: tuple[str, ...],
    **how: Any,
) -> None:
    """Show the properties of TABLE, or change them: --set or --unset, each in a commit.

    TABLE is the path or URI of a Delta table, or the name of an Iceberg table in a catalog, whose
    properties are shown only.

    \b
    delvec properties /lake/orders
    delvec properties /lake/orders --set delta.appendOnly=true
    """
    before = table.properties
    if not isinstance(table, DeltaTable):
        _show(output, table.name, before)
    elif wanted:
        _show_change(output, table.set_properties(wanted, **how), before, wanted)
    elif unset:
        report = table.unset_properties(unset, **how)
        _show_change(output, report, before, dict.fromkeys(unset))
    else:
        _show(output, table.storage.root, before)


def _add(tree: Tree, fields: Sequence[Mapping[str, Any]], partitions: Sequence[str] = ()) -> None:
    for field in fields:
        required = "" if field.get("nullable", True) else " not null"
        more = ", partition column" if field["name"] in partitions else ""
        comment = field.get("metadata", {}).get("comment")
        text = Text.assemble(
            (escape_controls(field["name"]), "bold"),
            f": {_word(field['type'])}{required}{more}",
            (f"  {escape_controls(comment)}" if comment else "", "dim"),
        )
        _add(tree.add(text), _inner(field["type"]))


def _word(kind: Any) -> str:
    """Return a type as a word; the fields of structs are lines of their own.

    >>> _word({"type": "array", "elementType": {"type": "struct", "fields": []}})
    'array<struct>'
    """
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_word(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_word(kind['keyType'])}, {_word(kind['valueType'])}>"
    return str(kind["type"])


def _inner(kind: Any) -> list[Mapping[str, Any]]:
    if isinstance(kind, str):
        return []
    if kind["type"] == "array":
        return _inner(kind["elementType"])
    if kind["type"] == "map":
        return _inner(kind["keyType"]) + _inner(kind["valueType"])
    return list(kind.get("fields", ()))


def _show_change(
    output: Output, report: WriteReport, before: Mapping[str, str], after: Mapping[str, str | None]
) -> None:
    output.draw(report)
    would = "would be " if report.dry_run else ""
    for key, value in after.items():
        old = f" (it was {escape_controls(before[key])})" if key in before else ""
        what = "unset" if value is None else f"set to {escape_controls(value)}"
        output.note(f"  {escape_controls(key)}: {would}{what}{old}")
    changes = {key: {"from": before.get(key), "to": value} for key, value in after.items()}
    output.result({**report.to_json(), "properties": changes})


def _show(output: Output, name: str, properties: Mapping[str, str]) -> None:
    count = "1 property" if len(properties) == 1 else f"{len(properties):,} properties"
    output.note((escape_controls(name), "bold"), f": {count}")
    found = dict(sorted(properties.items()))
    output.listing(_COLUMNS, [{"key": key, "value": value} for key, value in found.items()])
    output.result({"table": name, "properties": found})
