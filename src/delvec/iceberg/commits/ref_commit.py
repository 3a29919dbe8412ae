"""One commit that changes refs and properties of a table, and no rows.

A change is planned on the newest metadata and committed on exactly that. If somebody else commits
in between, it is planned anew, and refused if it makes no sense any more. If the catalog does not
answer, the table is looked at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import ConflictError, InvalidArgumentError
from delvec.iceberg.client.catalog import load_table, parsed, reload_table
from delvec.iceberg.client.failures import explained, is_commit_state_unknown
from delvec.iceberg.client.own_location import require_own_log
from delvec.iceberg.commits.row_delta import row_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["change_refs", "commit_exactly"]

_ATTEMPTS: Final = 5


def change_refs(
    table: LoadedTable,
    what: str,
    change: Callable[[LoadedTable, Any], None],
    *,
    dry_run: bool = False,
) -> LoadedTable:
    """Apply a change of refs to the newest metadata in one commit, again after lost races.

    Args:
        table: The table.
        what: The change, for errors.
        change: Validates itself on the metadata that it is given, and adds what it changes to the
            transaction; nothing if there is nothing to do.
        dry_run: Whether to commit nothing: the table that is returned has the metadata that it
            would have. Then `change` must not write files, such as those of an empty snapshot.
    """
    spark, name = table.spark, table.name
    if dry_run:
        return _tried(reload_table(table), change)
    lost: ConflictError | None = None
    for attempt in range(1, _ATTEMPTS + 1):
        newest = reload_table(table)
        try:
            with explained(str(name)):
                commit_exactly(newest, change)
        except InvalidArgumentError as error:
            if lost is None:
                raise
            # It was right until somebody else committed, such as a branch of the same name.
            lost = ConflictError(
                f"{what}: somebody else changed {name} meanwhile: {error.describe()}",
                retryable=False,
                hint=error.hint,
            )
            lost.attempts = attempt
            raise lost from error
        except ConflictError as error:
            error.attempts = attempt
            lost = error
            continue
        spark.catalog.refreshTable(str(name))
        return load_table(spark, name)
    raise lost or AssertionError


def _tried(newest: LoadedTable, change: Callable[[LoadedTable, Any], None]) -> LoadedTable:
    """Return a table as a change would leave it, which is never committed."""
    with explained(str(newest.name)):
        transaction = newest.handle.newTransaction()
        change(newest, transaction)
        final = parsed(newest.spark, transaction.currentMetadata())
    return replace(newest, metadata=final)


def commit_exactly(newest: LoadedTable, change: Callable[[LoadedTable, Any], None]) -> None:
    """Commit a change of refs and properties on the very metadata that was loaded, or not at all.

    Args:
        newest: The table.
        change: Adds what it changes to the transaction; nothing is committed if that is nothing.

    Raises:
        ConflictError: Somebody else has committed to the table since it was loaded.
        CommitStateUnknownError: The commit may have happened or not.
    """
    require_own_log(newest)
    transaction = newest.handle.newTransaction()
    start = transaction.startMetadata()
    before, now = (
        (each.metadataFileLocation(), each.lastUpdatedMillis()) for each in (newest.current, start)
    )
    if before != now:
        raise ConflictError(f"somebody else committed to {newest.name}")
    change(newest, transaction)
    final = transaction.currentMetadata()
    if final.equals(start):
        return
    try:
        with explained(str(newest.name)):
            # Not `commitTransaction`, which would repeat it on top of a concurrent commit.
            transaction.underlyingOps().commit(start, final)
    except ConflictError:
        _discard(newest, transaction)
        raise
    except Exception as error:
        if not is_commit_state_unknown(error):
            raise
        found = load_table(newest.spark, newest.name).metadata
        if not _happened(newest.metadata, parsed(newest.spark, final), found):
            raise


def _discard(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
    """Delete the manifest list of an empty snapshot that was not committed.

    The table that the transaction starts from is newer than `newest` if somebody else committed.
    """
    final, start = transaction.currentMetadata(), parsed(newest.spark, transaction.startMetadata())
    for snapshot_id in parsed(newest.spark, final).snapshots.keys() - start.snapshots:
        io = transaction.table().io()
        row_changes(newest.spark).deleteManifests(io, final.snapshot(snapshot_id))


def _happened(before: TableMetadata, wanted: TableMetadata, found: TableMetadata) -> bool:
    """Return whether the refs and properties that a commit changes are as it wanted them."""

    def is_so(old: Mapping[str, Any], new: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
        changed = (key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        return all(now.get(key) == new.get(key) for key in changed)

    return is_so(before.refs, wanted.refs, found.refs) and is_so(
        before.properties, wanted.properties, found.properties
    )
