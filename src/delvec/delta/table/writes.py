"""Writing a Delta table: new rows, deletes, updates and merges. Each call is one commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.table.handle import TableHandle
from delvec.delta.table.merge import MergeBuilder
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyspark.sql import Column, DataFrame
    from typing_extensions import Unpack

    from delvec.delta.write.options import WriteOptions
    from delvec.delta.write.report import WriteReport

__all__ = ["TableWrites"]


@dataclass(frozen=True)
class TableWrites(TableHandle):
    """What changes the rows of a table.

    All of these take `dry_run=True` (plan only), `max_retries` (after a conflict begin again that
    often, 10 by default), `commit_metadata` (a text for the history), and `txn_app_id` with
    `txn_version`: what an application has committed under a version it does not commit again.
    """

    def append(
        self, df: DataFrame, *, merge_schema: bool = False, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Add rows; columns are found by their names.

        Args:
            df: The rows. Columns of the table that they lack get their default or NULL.
            merge_schema: Let columns that only the rows have become columns of the table.
            options: See the class.

        Raises:
            ConstraintError: A row breaks a rule of the table.
            InvalidArgumentError: Names or types do not fit.
        """
        from delvec.spark.delta.write.append import append  # noqa: PLC0415

        return self.run("WRITE", append(df, "merge" if merge_schema else "none"), options)

    def overwrite(
        self,
        df: DataFrame,
        where: str | Column | None = None,
        *,
        merge_schema: bool = False,
        replace_schema: bool = False,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Put rows in place of all, or of those that satisfy a condition.

        Args:
            df: The new rows; with `where` they must satisfy it.
            where: Which rows go, all by default.
            merge_schema: Let columns that only the rows have become columns of the table.
            replace_schema: Let the rows' columns be the table's from now on.
            options: See the class.
        """
        from delvec.spark.delta.write.append import overwrite  # noqa: PLC0415

        if merge_schema and replace_schema:
            raise InvalidArgumentError("merge_schema and replace_schema: choose one of them")
        evolution = "replace" if replace_schema else "merge" if merge_schema else "none"
        return self.run("WRITE", overwrite(df, where, evolution), options)  # type: ignore[arg-type]

    def delete(
        self,
        where: str | Column | None = None,
        *,
        rewrite_ratio: float | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Delete the rows that satisfy a condition; all without one.

        Files of which every row goes are removed by the log alone; of the others, those that the
        log cannot rule out are scanned once. Deleted rows are marked in vectors, or, where the
        table has these switched off, the other rows are written to new files.

        Args:
            where: Which rows; those for which it is NULL stay.
            rewrite_ratio: Write a file anew when this share of its rows is deleted.
            options: See the class.
        """
        from delvec.spark.delta.write.delete import delete  # noqa: PLC0415

        return self.run("DELETE", delete(where, rewrite_ratio), options)

    def update(
        self,
        set: Mapping[str, str | Column | Any],  # noqa: A002 - as SQL says it
        where: str | Column | None = None,
        *,
        rewrite_ratio: float | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Give columns new values in the rows that satisfy a condition; in all without one.

            t.update({"status": "'closed'", "total": "price * amount"}, where="id < 10")

        Args:
            set: New values by column, in SQL, as columns of Spark, or plain values that are no
                texts; `a.b` is a field of the struct `a`.
            where: Which rows; it is evaluated once.
            rewrite_ratio: Write a file anew when this share of its rows is gone.
            options: See the class.
        """
        from delvec.spark.delta.write.update import update  # noqa: PLC0415

        if not set:
            raise InvalidArgumentError("an update needs at least one column to set")
        return self.run("UPDATE", update(set, where, rewrite_ratio), options)

    def merge(
        self,
        source: DataFrame,
        on: str | Column,
        *,
        source_alias: str = "s",
        target_alias: str = "t",
        merge_schema: bool = False,
    ) -> MergeBuilder:
        """Update, delete and insert by the rows of a source; say how by clauses, then `execute()`.

            t.merge(orders, on="t.id = s.id").when_matched_update_all()
                .when_not_matched_insert_all().execute()

        Args:
            source: The rows; they are computed once.
            on: When a row of the table and one of the source are partners.
            source_alias: What conditions and values call the source.
            target_alias: What they call the table.
            merge_schema: Let columns that only the source has become columns of the table.
        """
        if source_alias.lower() == target_alias.lower():
            raise InvalidArgumentError(f"both sides of a merge are called {source_alias!r}")
        return MergeBuilder(self.run, source, on, (target_alias, source_alias), merge_schema)

    def changes(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        *,
        start_timestamp: datetime | str | None = None,
        end_timestamp: datetime | str | None = None,
    ) -> DataFrame:
        """Give the rows that were inserted, deleted and updated from one version to another.

        The table's columns, then `_change_type` (`insert`, `delete`, `update_preimage`,
        `update_postimage`), `_commit_version` and `_commit_timestamp`. The table must have had
        `delta.enableChangeDataFeed` switched on in all of these versions.

        Args:
            start_version: The first version; its own changes are included.
            end_version: The last version, the newest by default.
            start_timestamp: Or the first version at that time or after.
            end_timestamp: Or the last version at that time or before.
        """
        from delvec.spark.delta.scan.change_feed import changes  # noqa: PLC0415

        return changes(
            self._session("changes()", "a session"),
            self.storage,
            start_version,
            end_version,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
        )

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, from which it opens faster; give its number."""
        snapshot = self.snapshot()
        write_checkpoint(snapshot)
        return snapshot.version
