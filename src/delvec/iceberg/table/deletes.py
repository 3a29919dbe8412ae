"""Deleting rows of an Iceberg table by a condition: by key if it lists keys, else by position."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.delta.table.arguments import require_condition
from delvec.iceberg.by_condition.chosen_key import chosen_key
from delvec.iceberg.by_condition.positions import delete_positions
from delvec.iceberg.by_condition.predicates import Condition, KeyList, NoKeys, keys_of
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.deletes.equality import delete_keys
from delvec.iceberg.table.handle import TableHandle
from delvec.iceberg.table.writes import checked_txn
from delvec.spark.interrupts import interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from delvec.iceberg.by_condition.position_report import PositionDeleteReport
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.commits.branch_commit import Txn
    from delvec.iceberg.deletes.report import KeyDeleteReport

__all__ = ["TableDeletes", "delete_where"]


@explained_calls()
@dataclass(frozen=True)
class TableDeletes(TableHandle):
    """The command that deletes rows by a condition."""

    def delete(
        self,
        where: str | Column | None = None,
        *,
        key: str | Sequence[str] | None = None,
        branch: str = MAIN,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        dry_run: bool = False,
    ) -> KeyDeleteReport | PositionDeleteReport:
        """Delete the rows that match a condition; all rows without one.

            t.delete("order_id IN (100, 200, 300)", key="order_id")   # by key: reads no data
            t.delete("amount < 0")                                    # by position

        A condition that lists keys (`key = 5`, `key IN (1, 2)`, `key IS NULL`, for several columns
        `a = 1 AND b = 2`) becomes an equality delete, which reads no data and holds for all rows
        that were committed before. Any other condition is evaluated by Spark, and the positions of
        the rows are written: deletion vectors, or position-delete files in a table of format 2.

        Args:
            where: The condition, in SQL or as a Column; rows for which it is NULL stay. Constants
                are cast to the column's type as Spark does.
            key: The columns of the key; by default the table property `delvec.key`, else the
                identifier fields.
            branch: The branch, which is made from `main` if it does not exist.
            txn_app_id: The id of the writing application; with `txn_version`.
            txn_version: A number that grows with each commit of the application. If the branch has
                this one or a later one already, nothing is written.
            dry_run: Whether to count rows or keys only, and write nothing.

        Returns:
            A report that says which way was taken, and why.

        Raises:
            InvalidArgumentError: The condition is wrong, or a column cannot be a key.
            UnsupportedFeatureError: The table is of format version 1.
        """
        require_condition("delete({})", where)
        txn = checked_txn(txn_app_id, txn_version)
        condition = Condition(where)
        return delete_where(
            self._load(), condition, key=key, branch=branch, txn=txn, dry_run=dry_run
        )


def delete_where(
    table: LoadedTable,
    condition: Condition,
    *,
    key: str | Sequence[str] | None = None,
    branch: str = MAIN,
    txn: Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport | PositionDeleteReport:
    """Delete the rows that match a condition, by key or by position; see `TableDeletes.delete`."""
    chosen = chosen_key(table.metadata, str(table.name), key)
    found: KeyList | NoKeys = NoKeys(chosen.reason)
    if condition.where is None:
        found = NoKeys("there is no condition")
    elif chosen.columns:
        found = keys_of(table, condition, chosen.columns)
    if isinstance(found, KeyList):
        names = [each.name for each in found.columns]
        report = delete_keys(table, found.keys, names, branch=branch, txn=txn, dry_run=dry_run)
        why = f"by key: the condition lists values of {', '.join(names)}, {chosen.reason}"
        return replace(report, notes=(why, *report.notes))
    with interruptible(table.spark):
        return delete_positions(
            table, condition, branch=branch, txn=txn, reason=found.reason, dry_run=dry_run
        )
