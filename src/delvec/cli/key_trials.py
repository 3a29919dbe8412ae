"""Dry runs of commands on keys of Iceberg tables: everything is computed, nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.output import visible
from delvec.report.figures import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from delvec.cli.output import Output
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.deletes.key_columns import KeyColumn
    from delvec.iceberg.table import IcebergTable

__all__ = ["try_delete_keys", "try_drop_index", "try_index", "try_upsert"]


def try_delete_keys(
    output: Output,
    target: IcebergTable,
    keys: Any,  # noqa: ANN401
    columns: Sequence[str],
    branch: str,
    partition: Mapping[str, object] | None,
) -> None:
    """Check keys, branch and partition as the delete does, and show how many keys there are."""
    from delvec.iceberg.deletes.key_frame import opened_keys  # noqa: PLC0415
    from delvec.iceberg.deletes.scopes import scope_of  # noqa: PLC0415

    table, wanted = _opened(target, columns, branch)
    if partition is not None:
        scope_of(table, branch, partition)
    with opened_keys(keys, wanted, target.name) as opened:
        facts = {"keys": len(opened), "null_keys": opened.nulls}
    shown = f"{counted(facts['keys'], 'key')} would be deleted"
    _show(output, "DELETE KEYS", target.name, shown, {"branch": branch, **facts})


def try_upsert(
    output: Output,
    target: IcebergTable,
    rows: DataFrame,
    keys: Sequence[str],
    branch: str,
    **choices: Any,  # noqa: ANN401 - of `change_batch`
) -> None:
    """Split the changes as the upsert does, and show how many rows and keys there are."""
    from delvec.iceberg.deletes.change_batch import change_batch  # noqa: PLC0415
    from delvec.iceberg.deletes.key_frame import opened_keys  # noqa: PLC0415

    table, wanted = _opened(target, keys, branch)
    schema, name = table.metadata.schema, target.name
    with (
        change_batch(rows, schema, wanted, **choices, table=name) as batch,
        opened_keys(batch.keys, wanted, name) as opened,
    ):
        facts = {
            "keys": len(opened),
            "null_keys": opened.nulls,
            "rows_added": batch.rows.count(),
            "duplicates": batch.duplicates,
        }
    added = counted(facts["rows_added"], "row")
    shown = f"{counted(facts['keys'], 'key')} would be deleted and {added} added"
    _show(output, "UPSERT", name, shown, {"branch": branch, **facts})


def try_index(output: Output, target: IcebergTable, keys: Sequence[str], branch: str) -> None:
    """Show whether the index would be made, updated or kept."""
    from delvec.errors import UnsupportedFeatureError  # noqa: PLC0415
    from delvec.iceberg.client.catalog import load_table  # noqa: PLC0415
    from delvec.iceberg.client.named_snapshots import branch_head  # noqa: PLC0415
    from delvec.iceberg.deletes.key_columns import key_columns  # noqa: PLC0415
    from delvec.iceberg.search.key_index import open_index, why_no_index  # noqa: PLC0415

    table = load_table(target.spark, target.identifier)
    ids = [each.id for each in key_columns(table.metadata.schema, keys, target.name)]
    head = branch_head(table.metadata, target.name, branch)
    if reason := why_no_index(table, ids):
        raise UnsupportedFeatureError(
            f"a key of {target.name} cannot be indexed: {reason}",
            feature="an index of such a key",
            hint="resolve with --index join",
        )
    found = open_index(table, ids)
    action = "updated"
    if found is None or not found.is_usable:
        action = "built"
    elif head is not None and found.snapshot_id == head.id:
        action = "kept"
    shown = f"the index on {visible(', '.join(keys))} would be {action}"
    _show(output, "INDEX", target.name, shown, {"branch": branch, "action": action})


def try_drop_index(output: Output, target: IcebergTable) -> None:
    """Show whether there is an index to drop."""
    from delvec.iceberg.client.catalog import find_table  # noqa: PLC0415
    from delvec.iceberg.search.key_index import index_name  # noqa: PLC0415

    there = find_table(target.spark, index_name(target.identifier)) is not None
    shown = "the index would be dropped" if there else "there is no index"
    _show(output, "INDEX", target.name, shown, {"dropped": there})


def _opened(
    target: IcebergTable, columns: Sequence[str], branch: str
) -> tuple[LoadedTable, tuple[KeyColumn, ...]]:
    from delvec.iceberg.client.catalog import load_table  # noqa: PLC0415
    from delvec.iceberg.commits.branch_commit import require_branch  # noqa: PLC0415
    from delvec.iceberg.deletes.key_columns import key_columns  # noqa: PLC0415
    from delvec.iceberg.deletes.writable import require_writable  # noqa: PLC0415

    table = load_table(target.spark, target.identifier)
    wanted = key_columns(table.metadata.schema, columns, target.name)
    require_branch(table.metadata, branch, target.name)
    require_writable(table)
    return table, wanted


def _show(output: Output, operation: str, table: str, what: str, facts: Mapping[str, Any]) -> None:
    output.note((f"{operation} of {visible(table)}: dry run, {what}", "bold"))
    more = listed(
        **{"keys with a null": facts.get("null_keys", 0)},
        **{"rows of the source replaced by later ones": facts.get("duplicates", 0)},
    )
    if more:
        output.note(f"  {more}")
    output.result({"operation": operation, "table": table, "dry_run": True, **facts})
