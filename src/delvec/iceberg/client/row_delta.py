"""Fill Iceberg's `RowDelta` with the files of a change, by a small class in Java."""

from __future__ import annotations

from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import PlanError
from delvec.iceberg.client.file_json import json_arrays
from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.iceberg.client.changes import RowChange

__all__ = ["row_delta"]

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
    java = _row_changes(spark)
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
        if found != len(names):
            raise PlanError(
                f"{table} has {found} of {len(names)} files that are to be removed",
                hint="was the table changed since the plan was made? Make it anew",
            )
    if head is not None:
        delta = delta.validateFromSnapshot(head).validateDeletedFiles()
        if len(change.data_with_new_deletes):
            java.requireDataFiles(delta, _SEPARATOR.join(change.data_with_new_deletes.to_pylist()))
    for key, value in change.summary.items():
        delta = delta.set(key, value)
    return delta


def _row_changes(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return an instance of `RowChanges.java`, compiled once per JVM."""
    cache = jvm.cache(spark)
    if "row changes" not in cache:
        source = package_files("delvec.iceberg.client").joinpath("RowChanges.java").read_text()
        [constructor] = jvm.compiled(spark, "delvec.RowChanges", source).getConstructors()
        no_arguments = jvm.array_of(spark, jvm.view_of(spark).java.lang.Object, [])
        cache["row changes"] = constructor.newInstance(no_arguments)
    return cache["row changes"]
