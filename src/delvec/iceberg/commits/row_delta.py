"""Fill Iceberg's `RowDelta` with the files of a change, by a small class in Java."""

from __future__ import annotations

from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import PlanError
from delvec.iceberg.client.file_json import json_arrays
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.iceberg.commits.changes import RowChange

__all__ = ["rewrite_deletes", "row_changes", "row_delta"]

_SEPARATOR: Final = "\0"


def row_delta(
    spark: SparkSession,
    transaction: Any,  # noqa: ANN401
    branch: str,
    head: int | None,
    change: RowChange,
    table: str,
) -> Any:  # noqa: ANN401
    """Return an uncommitted `RowDelta` with the files of a change, validated from a snapshot on.

    Args:
        spark: The session.
        transaction: Iceberg's transaction.
        branch: The branch that the snapshot is written onto.
        head: The snapshot that the change was computed on; None for a table without snapshots.
        change: The files.
        table: The name of the table, for errors.

    Raises:
        PlanError: A file to be removed is not in the snapshot `head`.
    """
    java = row_changes(spark)
    target = transaction.table()
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
    spark: SparkSession,
    transaction: Any,  # noqa: ANN401
    branch: str,
    head: int,
    added: Sequence[tuple[str, int]],
    removed: Sequence[str],
    summary: Mapping[str, str],
    table: str,
) -> Any:  # noqa: ANN401
    """Return an uncommitted `RewriteFiles` that replaces delete files.

    Args:
        spark: The session.
        transaction: Iceberg's transaction.
        branch: The branch that the snapshot is written onto.
        head: The newest snapshot of the branch.
        added: JSON objects of delete files, each with its data sequence number.
        removed: Paths of delete files of the snapshot `head`.
        summary: Further entries of the snapshot's summary.
        table: The name of the table, for errors.

    Raises:
        PlanError: A file to be removed is not in the snapshot `head`.
    """
    java = row_changes(spark)
    target = transaction.table()
    rewrite = transaction.newRewrite().toBranch(branch).validateFromSnapshot(head)
    for file, sequence_number in added:
        java.addRewritten(rewrite, target.specs(), file, sequence_number)
    found = java.removeRewritten(rewrite, target, head, _SEPARATOR.join(removed))
    _require_found(found, len(removed), table)
    for key, value in summary.items():
        rewrite = rewrite.set(key, value)
    return rewrite


def _require_found(found: int, wanted: int, table: str) -> None:
    if found != wanted:
        raise PlanError(
            f"{table} has {found} of {wanted} files that are to be removed",
            hint="was the table changed since the plan was made? Make it anew",
        )


def row_changes(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return an instance of `RowChanges.java`, compiled once per JVM."""
    cache = jvm.cache(spark)
    if "row changes" not in cache:
        source = package_files("delvec.iceberg.commits").joinpath("RowChanges.java").read_text()
        [constructor] = jvm.compiled(spark, "delvec.RowChanges", source).getConstructors()
        no_arguments = jvm.array_of(spark, jvm.view_of(spark).java.lang.Object, [])
        cache["row changes"] = constructor.newInstance(no_arguments)
    return cache["row changes"]
