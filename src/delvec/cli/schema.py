"""`delvec schema`: the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.tree import Tree

from delvec.cli.main import command as delvec_command
from delvec.cli.options import catalog_options, storage_options, table_argument, version_options
from delvec.cli.output import visible
from delvec.cli.spark_tables import delta_table, opened_iceberg
from delvec.cli.table_kinds import is_delta, refuse_options
from delvec.report.figures import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("schema")
@table_argument
@version_options
@storage_options
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    version: int | None,
    timestamp: str | None,
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Show the columns of TABLE as a tree; --json prints the schema as Spark writes it.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog.

    \b
    delvec schema /lake/orders --version 3
    delvec schema lake.db.orders --json
    """  # noqa: D301
    if is_delta(table):
        target = delta_table(table, options)
        snapshot = target.snapshot(version, timestamp)
        metadata = snapshot.metadata
        name, when = snapshot.table, f"version {snapshot.version:,}"
        document: Any = metadata.schema.to_json()
        partitions: Sequence[str] = metadata.partition_columns
    else:
        refuse_options("a Delta table", "--version", "--timestamp", "--storage-option")
        with opened_iceberg(output, table, iceberg) as (_, named):
            name, when, document = named.name, "current schema", named.schema.jsonValue()
            fields = [field for field in named.spec["fields"] if field["transform"] == "identity"]
            partitions = [field["name"] for field in fields]
    count = counted(len(document["fields"]), "column")
    output.note((visible(name), "bold"), f": {when}, {count}")
    output.draw(_tree(document["fields"], partitions))
    output.result(document)


def _tree(fields: Sequence[Mapping[str, Any]], partitions: Sequence[str]) -> Tree:
    tree = Tree("", hide_root=True, guide_style="dim")
    for field in fields:
        _add(tree, field, ", partition column" if field["name"] in partitions else "")
    return tree


def _add(tree: Tree, field: Mapping[str, Any], more: str = "") -> None:
    """Add a field, and the fields of structs in it below."""
    from rich.text import Text  # noqa: PLC0415

    required = "" if field.get("nullable", True) else " not null"
    comment = field.get("metadata", {}).get("comment")
    text = Text.assemble(
        (visible(field["name"]), "bold"),
        f": {_word(field['type'])}{required}{more}",
        (f"  {visible(comment)}" if comment else "", "dim"),
    )
    branch = tree.add(text)
    for inner in _inner(field["type"]):
        _add(branch, inner)


def _word(kind: Any) -> str:  # noqa: ANN401 - JSON of a type
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


def _inner(kind: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 - JSON of a type
    """Return the fields of the structs in a type."""
    if isinstance(kind, str):
        return []
    if kind["type"] == "array":
        return _inner(kind["elementType"])
    if kind["type"] == "map":
        return _inner(kind["keyType"]) + _inner(kind["valueType"])
    return list(kind.get("fields", ()))
