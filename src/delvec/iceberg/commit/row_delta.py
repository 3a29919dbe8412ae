"""Fill Iceberg's `RowDelta` with the files of a change, by a small class in Java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.errors import PlanError
from delvec.iceberg.client.content_files import json_arrays
from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable

_SEPARATOR: Final = "\0"


def _no_files() -> pa.Array:
    return pa.array([], pa.string())


@dataclass(frozen=True, eq=False)
class RowChange:
    """The files that one snapshot adds and removes, as columns.

    Files to add are JSON objects, see `content_files`. Those to remove, and data files of the table
    that get new deletes, are paths; for a vector in a Puffin file `path@offset`. `summary` has
    additional entries of the snapshot's summary.
    """

    data_files: pa.Array = field(default_factory=_no_files)
    delete_files: pa.Array = field(default_factory=_no_files)
    removed_data: pa.Array = field(default_factory=_no_files)
    removed_deletes: pa.Array = field(default_factory=_no_files)
    data_with_new_deletes: pa.Array = field(default_factory=_no_files)
    summary: Mapping[str, str] = field(default_factory=dict)


def row_delta(
    table: LoadedTable,
    transaction: Any,  # noqa: ANN401
    branch: str,
    head: int | None,
    change: RowChange,
) -> Any:  # noqa: ANN401
    """Return an uncommitted `RowDelta` with the files of a change, validated from a snapshot on.

    `transaction` is Iceberg's own, and `head` the snapshot that the change was computed on, None
    for a table without snapshots; a file to be removed must be in it.
    """
    java, target = row_changes(table.spark), transaction.table()
    specs = target.specs()
    delta = transaction.newRowDelta().toBranch(branch)
    for files in (change.data_files, change.delete_files):
        for array in json_arrays(files):
            java.add(delta, specs, array)
    for remove, names in (
        (java.removeRows, change.removed_data),
        (java.removeDeletes, change.removed_deletes),
    ):
        if not len(names):
            continue
        joined = _SEPARATOR.join(names.to_pylist())
        found = 0 if head is None else remove(delta, target, head, joined)
        _require_found(found, len(names), table)
    if head is not None:
        delta = delta.validateFromSnapshot(head).validateDeletedFiles()
        if len(change.data_with_new_deletes):
            java.requireDataFiles(delta, _SEPARATOR.join(change.data_with_new_deletes.to_pylist()))
    for key, value in change.summary.items():
        delta = delta.set(key, value)
    return delta


def rewrite_deletes(
    table: LoadedTable,
    transaction: Any,  # noqa: ANN401
    branch: str,
    added: Sequence[tuple[str, int]],
    removed: Sequence[str],
    summary: Mapping[str, str],
) -> Any:  # noqa: ANN401
    """Return an uncommitted `RewriteFiles` that replaces delete files; see `commit_rewrite`."""
    java, target = row_changes(table.spark), transaction.table()
    head = table.metadata.refs[branch].snapshot_id
    rewrite = transaction.newRewrite().toBranch(branch).validateFromSnapshot(head)
    for file, sequence_number in added:
        java.addRewritten(rewrite, target.specs(), file, sequence_number)
    found = java.removeRewritten(rewrite, target, head, _SEPARATOR.join(removed))
    _require_found(found, len(removed), table)
    for key, value in summary.items():
        rewrite = rewrite.set(key, value)
    return rewrite


def _require_found(found: int, wanted: int, table: LoadedTable) -> None:
    if found != wanted:
        raise PlanError(
            f"{table.name} has {found} of {wanted} files that are to be removed",
            hint="was the table changed since the plan was made? Make it again",
        )


def row_changes(spark: SparkSession) -> Any:  # noqa: ANN401
    return jvm.load_java(spark, "delvec.iceberg.commit", "RowChanges")
