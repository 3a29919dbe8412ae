"""Commits on the very metadata that was read, made again on newer metadata after a lost race.

So a check of that metadata, such as whether a transaction was committed before, holds for the
commit, and all parts of it appear together.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from random import uniform
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec.errors import ConflictError
from delvec.iceberg.client.catalog import load_table, pinned, reload_table
from delvec.iceberg.client.failures import explained, is_commit_state_unknown
from delvec.iceberg.client.own_location import require_own_log
from delvec.iceberg.commits.row_delta import row_changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["Committed", "committed"]

_LOG: Final = logging.getLogger("delvec")
_LONGEST_WAIT: Final = 2.0  # seconds
_COMMITTED: Final = "snapshot %d of %s was committed"
_UNKNOWN: Final = "whether snapshot %d of %s was committed is not known"


@dataclass(frozen=True)
class Committed:
    """The table after a commit.

    Attributes:
        snapshot_id: The new snapshot; None if there is none: the transaction had been committed
            before.
    """

    table: LoadedTable
    snapshot_id: int | None


def committed(
    table: LoadedTable,
    attempts: int,
    change: Callable[[LoadedTable, Any], int | None],
    *,
    is_done: Callable[[LoadedTable], bool] | None = None,
    verify: Callable[[LoadedTable, int], None] | None = None,
) -> Committed:
    """Commit a change of a transaction on the metadata that was read, so many times at most.

    Args:
        table: The table.
        attempts: How often to try.
        change: Adds what it changes to Iceberg's transaction, which was begun on the table that it
            is given; returns the id of a new snapshot.
        is_done: Whether there is nothing to commit, asked before each attempt.
        verify: Looks at the table as it would be, with the new snapshot; raises if it is wrong.

    Raises:
        ConflictError: Others committed to the table at the same time, again and again, or have
            replaced it.
        CommitStateUnknownError: The commit may have happened or not.
    """
    spark, name = table.spark, table.name
    for attempt in range(attempts):
        if attempt:
            time.sleep(uniform(0, min(_LONGEST_WAIT, 0.05 * 2**attempt)))
            table = reload_table(table)
        if is_done is not None and is_done(table):
            return Committed(table, None)
        require_own_log(table)
        with explained(str(name)):
            transaction = table.handle.newTransaction()
            if _moved(table, transaction):
                continue
            snapshot_id = change(table, transaction)
            final = transaction.currentMetadata()
        if verify is not None and snapshot_id is not None:
            try:
                verify(pinned(table, final), snapshot_id)
            except Exception:
                _discard(spark, transaction, snapshot_id)
                raise
        try:
            _commit(table, transaction, final, snapshot_id)
        except ConflictError:
            _discard(spark, transaction, snapshot_id)
            continue
        _forget(spark, str(name))
        return Committed(load_table(spark, name), snapshot_id)
    raise ConflictError(
        f"others committed to {name} at the same time, {attempts} times in a row",
        hint="run it again",
    )


def _commit(table: LoadedTable, transaction: Any, final: Any, snapshot_id: int | None) -> None:  # noqa: ANN401
    """Commit, and if the catalog does not answer look whether it has happened.

    What became of a snapshot is logged, for a caller that is interrupted.
    """
    try:
        _put(table, transaction, final, snapshot_id)
        if snapshot_id is not None:
            _LOG.info(_COMMITTED, snapshot_id, table.name, extra={"is_commit": True})
    except KeyboardInterrupt:  # the JVM goes on
        if snapshot_id is not None:
            _LOG.info(_UNKNOWN, snapshot_id, table.name, extra={"is_commit": True})
        raise


def _put(table: LoadedTable, transaction: Any, final: Any, snapshot_id: int | None) -> None:  # noqa: ANN401
    try:
        with explained(str(table.name)):
            transaction.underlyingOps().commit(transaction.startMetadata(), final)
    except Exception as error:
        if not is_commit_state_unknown(error):
            raise
        newest = load_table(table.spark, table.name)
        if snapshot_id is None or snapshot_id not in newest.metadata.snapshots:
            raise


def _forget(spark: SparkSession, table: str) -> None:
    """Let Spark's own reads see the commit.

    Spark cannot load a table with columns of types that it does not know, such as `time`: it has
    nothing to forget of it then, and the commit is done.
    """
    try:
        spark.catalog.refreshTable(table)
    except (Py4JError, PySparkException) as error:
        _LOG.debug("Spark cannot load %s: %s", table, error)


def _moved(table: LoadedTable, transaction: Any) -> bool:  # noqa: ANN401
    """Whether somebody committed between loading the table and beginning the transaction."""
    start = transaction.startMetadata()
    before, now = (
        (each.metadataFileLocation(), each.lastUpdatedMillis()) for each in (table.current, start)
    )
    return bool(before != now)


def _discard(spark: SparkSession, transaction: Any, snapshot_id: int | None) -> None:  # noqa: ANN401
    """Delete the manifests of a commit that lost the race."""
    if snapshot_id is None:
        return
    made = transaction.currentMetadata().snapshot(snapshot_id)
    with explained(str(snapshot_id)):
        row_changes(spark).deleteManifests(transaction.table().io(), made)
