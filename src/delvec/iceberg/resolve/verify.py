"""Whether a snapshot is what it should be, before it is published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame

from delvec.errors import VerificationError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import SEPARATOR, plan_snapshot, read_data_files
from delvec.iceberg.client.files import from_content_file
from delvec.iceberg.deletes.key_columns import add_dropped_key_columns
from delvec.iceberg.deletes.key_filter import ScopedDelete, filter_deleted
from delvec.iceberg.deletes.read_plan import plan_read
from delvec.iceberg.resolve.staged import Staged, staged_files
from delvec.identifiers import quote
from delvec.spark.expressions import row_sums


def require_balance(after: LoadedTable, snapshot_id: int, balance: Mapping[str, int]) -> None:
    """Check a snapshot by arithmetic: how its totals differ from those of the one before.

    Live rows are those of the snapshot before, with those that were added, without those whose keys
    were deleted.
    """
    snapshot = after.metadata.snapshots[snapshot_id]
    parent = None if snapshot.parent_id is None else after.metadata.snapshots[snapshot.parent_id]
    for name, change in balance.items():
        before, now = 0 if parent is None else parent.count(name), snapshot.count(name)
        # Totals are optional; writers that leave them out make them unknown from there on.
        if before is not None and now is not None and now != before + change:
            raise VerificationError(
                f"a snapshot of {after.name} has wrong {name}: expected {before + change}, found"
                f" {now}; it was not published",
                hint="run delvec check on the table",
            )


def require_deletes(after: LoadedTable, snapshot_id: int, resolved: Collection[str]) -> None:
    """Check that no data file has two vectors, and no resolved delete is left.

    Reads the delete manifests of the snapshot; the driver holds the path of each data file with a
    vector.
    """
    with translate_errors(str(after.name)):
        parts = staged_files(after.spark).deletes(after.handle, snapshot_id).split(SEPARATOR)
    for kind, path in zip(parts[0:-1:2], parts[1:-1:2], strict=True):
        if kind == "twice" or path in resolved:
            what = "two vectors" if kind == "twice" else "an equality delete that was resolved"
            raise VerificationError(
                f"a snapshot of {after.name} would have {what}: {path}; it was not published",
                hint="run delvec check on the table",
            )


def expected_sums(
    table: LoadedTable, snapshot_id: int | None, staged: Staged | None
) -> tuple[int, ...]:
    """Return the digest of the rows that a target is to have, by reading them through all deletes.

    Two scans of all columns in the worst case, of the target and of the staged data files.
    """
    parts = []
    if snapshot_id is not None:
        further = () if staged is None else staged.deletes
        parts += live_rows(table, snapshot_id, None, further)
    if staged is not None and staged.data:
        parts += live_rows(table, staged.head.id, staged.data, ())
    rows = reduce(DataFrame.unionAll, parts)
    return row_sums(rows, rows.schema)


def live_rows(
    table: LoadedTable, snapshot_id: int, chosen: Collection[str] | None, further: Sequence[str]
) -> list[DataFrame]:
    """Return the live rows of a snapshot, or of some data files of it, in parts; lazy."""
    schema = table.metadata.schema
    names = [quote(field["name"]) for field in schema["fields"]]
    planned = plan_snapshot(table, snapshot_id, schema, further=further)
    deletes = tuple(
        ScopedDelete(from_content_file(text, number), scope)
        for number, scope, text in planned.deletes
    )
    all_paths = planned.files.column("path").to_pylist()
    paths = [path for path in all_paths if chosen is None or path in chosen]
    parts = []
    if paths:
        ids = {each for delete in deletes for each in delete.file.equality_ids}
        wide = add_dropped_key_columns(table.metadata, schema, ids, str(table.name))
        rows = read_data_files(table, snapshot_id, wide, paths, chosen=True)
        parts.append(filter_deleted(table, snapshot_id, wide, rows, planned, deletes))
    if chosen is None:
        parts.append(read_data_files(table, snapshot_id, schema, all_paths, chosen=False))
    elif rest := [path for path in chosen if path not in set(paths)]:
        parts.append(read_data_files(table, snapshot_id, schema, rest, chosen=True))
    return [part.select(*names) for part in parts]


def require_sums(after: LoadedTable, snapshot_id: int, expected: tuple[int, ...]) -> None:
    """Check all rows of a snapshot by a digest; one scan of all columns."""
    rows = plan_read(after, snapshot_id, after.metadata.schema).to_df()
    found = row_sums(rows, rows.schema)
    if found != expected:
        raise VerificationError(
            f"a snapshot of {after.name} has other rows than it should: expected {expected[0]:,},"
            f" found {found[0]:,}, or as many of other values; it was not published",
            hint="run delvec check on the table",
        )


def require_unique(after: LoadedTable, snapshot_id: int, keys: Sequence[str]) -> None:
    """Check that no two live rows of a snapshot have the same key; one scan of the key columns."""
    rows = plan_read(after, snapshot_id, after.metadata.schema).to_df()
    twice = rows.groupBy(*map(quote, keys)).count().where("count > 1").limit(1).collect()
    if twice:
        found = ", ".join(f"{key}={twice[0][key]}" for key in keys)
        raise VerificationError(
            f"{twice[0]['count']:,} rows of {after.name} would have the same key, expected 1 of"
            f" {found}; nothing was published",
            hint="rows were written that did not replace others: delete one of them first",
        )
