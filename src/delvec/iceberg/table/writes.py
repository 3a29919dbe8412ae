"""Writing to an Iceberg table: rows, and deletes by key or by a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import Column

from delvec.calls import require_condition
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.commit.branch_commit import Txn
from delvec.iceberg.table.handle import TableHandle
from delvec.iceberg.write.delete_positions import delete_positions
from delvec.iceberg.write.key_predicates import Condition, KeyList, NoKeys, find_key, keys_of
from delvec.iceberg.write.report import KeyDeleteReport, PositionDeleteReport
from delvec.iceberg.write.upsert import append_rows, delete_keys, upsert_rows
from delvec.spark.input.rows import read_rows
from delvec.spark.jobs import interruptible, restart_if_lost


@dataclass(frozen=True)
class TableWrites(TableHandle):
    """The commands that write rows and deletes; each call is one commit.

    Rows come as a Spark, pandas or polars DataFrame, or as a table, batch or reader of Arrow or
    anything else with `__arrow_c_stream__`. All but Spark's are read into the memory of the driver.
    Missing values of pandas are NULL, NaN in its columns of NumPy among them.

    All of them take `branch`, which is made from `main` if it does not exist, and `txn_app_id` with
    `txn_version`: if the application has committed this version or a later one to the branch
    already, nothing is written. Others may commit meanwhile: the commit is made again on top. With
    `dry_run=True` keys and rows are checked and counted, and nothing is written.
    """

    def append(
        self,
        df: Any,  # noqa: ANN401
        *,
        branch: str = MAIN,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        dry_run: bool = False,
    ) -> KeyDeleteReport:
        """Append rows; columns are matched by name, and values cast, as Spark's `writeTo` does.

        Args:
            df: The rows, see the class.
            branch: See the class.
            txn_app_id: See the class.
            txn_version: See the class.
            dry_run: See the class.

        Raises:
            EngineError: A column is missing, or has a type that cannot be stored.
        """
        rows = read_rows(self.spark, df, "append")
        txn = checked_txn(txn_app_id, txn_version)
        return append_rows(self._load(), rows, branch=branch, txn=txn, dry_run=dry_run)

    def delete_keys(
        self,
        keys: Any,  # noqa: ANN401
        column: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        branch: str = MAIN,
        partition: Mapping[str, object] | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        dry_run: bool = False,
    ) -> KeyDeleteReport:
        """Delete all rows that have one of some keys, whether there are any or not; reads no data.

            t.delete_keys([100, 500], "order_id")
            t.delete_keys(df, columns=["day", "order_id"])

        The delete holds for all rows that were committed before; the same key may be inserted
        again. A null in a key matches null.

        Args:
            keys: A list, range, set or generator, a numpy array, Arrow, pandas or polars data, or a
                Spark DataFrame. Keys of several columns are tuples or dicts, or have columns of
                these names. The keys of a large DataFrame stay with the executors.
            column: The key column.
            columns: Instead: several key columns.
            branch: See the class.
            partition: Delete from one partition only: the value of each partition field.
            txn_app_id: See the class.
            txn_version: See the class.
            dry_run: See the class.

        Returns:
            A report that says in which form the keys were written, and why.

        Raises:
            InvalidArgumentError: A key does not fit its column, or a column cannot be a key.
            UnsupportedFeatureError: The table is of format version 1.
        """
        txn = checked_txn(txn_app_id, txn_version)
        names = _key_names(column, columns)
        how: Any = {"branch": branch, "partition": partition, "txn": txn, "dry_run": dry_run}
        return restart_if_lost(lambda: delete_keys(self._load(), keys, names, **how))

    def upsert(  # noqa: PLR0913
        self,
        df: Any,  # noqa: ANN401
        keys: str | Sequence[str],
        *,
        branch: str = MAIN,
        delete_where: str | Column | None = None,
        duplicates: Literal["error", "last"] = "error",
        order_by: str | Column | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        dry_run: bool = False,
    ) -> KeyDeleteReport:
        """Insert rows and delete all older rows with their keys, in one commit; reads no data.

            def apply(batch, number):
                t.upsert(batch, ["order_id"], delete_where="op = 'D'", duplicates="last",
                         order_by="changed_at", txn_app_id="orders", txn_version=number)

            changes.writeStream.foreachBatch(apply).option("checkpointLocation", ...).start()

        Args:
            df: The rows, see the class, with all columns of the table, and those that
                `delete_where` and `order_by` name.
            keys: The key columns.
            branch: See the class.
            delete_where: The rows that are deletes: only their keys count.
            duplicates: What to do if a key is in `df` more than once: refuse, or take the last row.
            order_by: Which row of a key is the last; by default their order in `df`.
            txn_app_id: See the class.
            txn_version: See the class.
            dry_run: See the class.

        Raises:
            InvalidArgumentError: A column is missing or unknown, or a key is there twice.
            UnsupportedFeatureError: The table is of format version 1.
        """
        rows = read_rows(self.spark, df, "upsert")
        given: object = duplicates
        if given not in ("error", "last"):
            raise InvalidArgumentError(f"duplicates is {given!r}, expected 'error' or 'last'")
        names = _key_names(None, [keys] if isinstance(keys, str) else keys)
        txn = checked_txn(txn_app_id, txn_version)
        return restart_if_lost(
            lambda: upsert_rows(
                self._load(),
                rows,
                names,
                branch=branch,
                delete_where=delete_where,
                duplicates=duplicates,
                order_by=order_by,
                txn=txn,
                dry_run=dry_run,
            )
        )


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
                identifier fields, else any one column that a vector holds, if the table property
                `write.delete.equality-vector.enabled` is true.
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
    chosen = find_key(table.metadata, str(table.name), key)
    found: KeyList | NoKeys = NoKeys(chosen.reason)
    if condition.where is None:
        found = NoKeys("there is no condition")
    elif chosen.columns:
        found = keys_of(table, condition, chosen)
    if isinstance(found, KeyList):
        names = [each.name for each in found.columns]
        report = delete_keys(table, found.keys, names, branch=branch, txn=txn, dry_run=dry_run)
        why = f"by key: the condition lists values of {', '.join(names)}, {chosen.reason}"
        return replace(report, notes=(why, *report.notes))
    with interruptible(table.spark):
        return delete_positions(
            table, condition, branch=branch, txn=txn, reason=found.reason, dry_run=dry_run
        )


def checked_txn(app_id: str | None, version: int | None) -> Txn | None:
    """Return the transaction that a call names; None if it names none."""
    if app_id is None and version is None:
        return None
    given: tuple[object, object] = (app_id, version)
    good = isinstance(given[0], str) and given[0].strip()
    if not good or not isinstance(given[1], int) or isinstance(given[1], bool) or given[1] < 0:
        raise InvalidArgumentError(
            f"txn_app_id={app_id!r} and txn_version={version!r} do not name a transaction",
            hint="give both: a string, and a number that grows with each commit",
        )
    return Txn(given[0], given[1])  # type: ignore[arg-type]


def _key_names(column: str | None, columns: Sequence[str] | None) -> list[str]:
    if (column is None) == (columns is None):
        raise InvalidArgumentError(
            "a key needs its column", hint='pass "id" for one column, or columns=["a", "b"]'
        )
    if column is not None:
        return [column]
    return [columns] if isinstance(columns, str) else list(columns or ())
