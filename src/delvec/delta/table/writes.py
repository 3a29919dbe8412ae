"""Writing rows of a Delta table: append, overwrite, delete, update and merge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from delvec.calls import explained_calls
from delvec.delta.table.arguments import (
    require_condition,
    require_on,
    require_source,
    require_values,
)
from delvec.delta.table.handle import TableHandle
from delvec.delta.table.merge import MergeBuilder
from delvec.delta.table.named_columns import by_name
from delvec.delta.write.options import WriteOptions
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from typing_extensions import Unpack

    from delvec.delta.write.report import WriteReport

__all__ = ["TableWrites"]


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class TableWrites(TableHandle):
    """The commands that change rows; each call is one commit.

    All of them take the keywords of `WriteOptions`: `dry_run=True` (plan only), `max_retries` (how
    often to start again after a conflict, 10 by default), `commit_metadata` (a string for the
    history), and `txn_app_id` with `txn_version`: if the application has committed this version or
    a later one already, nothing is written.
    """

    def append(
        self, df: DataFrame, *, merge_schema: bool = False, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Append rows; columns are matched by name.

        Args:
            df: The rows. Columns of the table that are missing get their default value or NULL.
            merge_schema: Add columns that only `df` has to the table.
            options: See the class.

        Raises:
            ConstraintError: A row violates a constraint, an invariant or a generated column.
            InvalidArgumentError: A column has no counterpart, or its type cannot be stored.
        """
        from delvec.spark.delta.write.append import append  # noqa: PLC0415

        require_source("append", df)
        return self.run("WRITE", append(df, "merge" if merge_schema else "none"), options)

    def overwrite(
        self,
        df: DataFrame,
        where: str | Column | None = None,
        *,
        partitions: Literal["static", "dynamic"] = "static",
        merge_schema: bool = False,
        replace_schema: bool = False,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Replace all rows, those that match a condition, or the partitions of the new rows.

        Args:
            df: The new rows; with `where` they must match it.
            where: The rows to replace, all by default.
            partitions: With `dynamic` only partitions that the new rows are in are replaced, as
                by Spark's `partitionOverwriteMode`; without new rows nothing changes. A table
                without partition columns is replaced as a whole.
            merge_schema: Add columns that only `df` has to the table.
            replace_schema: Replace the schema of the table by that of `df`.
            options: See the class.
        """
        from delvec.spark.delta.write.append import overwrite  # noqa: PLC0415

        require_source("overwrite", df)
        require_condition("overwrite(df, where={})", where)
        if merge_schema and replace_schema:
            raise InvalidArgumentError("merge_schema and replace_schema: choose one of them")
        if partitions not in ("static", "dynamic"):
            raise InvalidArgumentError(
                f'partitions={partitions!r}: expected "static" or "dynamic"',
                hint="to replace certain partitions, name them in `where`",
            )
        by_partition = partitions == "dynamic"
        evolution = "replace" if replace_schema else "merge" if merge_schema else "none"
        prepare = overwrite(df, by_name(self, where), evolution, by_partition=by_partition)  # type: ignore[arg-type]
        return self.run("WRITE", prepare, options)

    def delete(
        self,
        where: str | Column | None = None,
        *,
        rewrite_ratio: float | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Delete the rows that match a condition; all rows without one.

        Partition values and statistics in the log decide which files match as a whole and are
        removed unread, and which cannot match. The other files are scanned once. Their deleted
        rows go into deletion vectors or, if the table has these switched off, the rows that are
        left are written to new files.

            t.delete("amount < 0")

        Args:
            where: The condition; rows for which it is NULL stay.
            rewrite_ratio: Rewrite a file, instead of giving it a deletion vector, when the vector
                would delete at least this share of its rows, earlier deletes included.
            options: See the class.
        """
        from delvec.spark.delta.write.delete import delete  # noqa: PLC0415

        require_condition("delete({})", where)
        return self.run("DELETE", delete(by_name(self, where), rewrite_ratio), options)

    def update(
        self,
        set: Mapping[str, str | Column | Any],  # noqa: A002 - as SQL says it
        where: str | Column | None = None,
        *,
        rewrite_ratio: float | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Set columns of the rows that match a condition; of all rows without one.

            t.update({"status": "'closed'", "total": "price * amount"}, where="id < 10")

        Args:
            set: New values by column: SQL, columns of Spark, or plain values other than strings,
                which are taken as SQL; `a.b` is a field of the struct `a`. `DEFAULT` is the
                column's default. They are cast to the column's type as in ANSI mode.
            where: The condition; it is evaluated once.
            rewrite_ratio: Rewrite a file, instead of giving it a deletion vector, when the vector
                would delete at least this share of its rows, earlier deletes included.
            options: See the class.
        """
        from delvec.spark.delta.write.update import update  # noqa: PLC0415

        require_values("update", set, where)
        require_condition("update(set, where={})", where)
        values = {name: by_name(self, value) for name, value in set.items()}
        return self.run("UPDATE", update(values, by_name(self, where), rewrite_ratio), options)

    def merge(
        self,
        source: DataFrame,
        on: str | Column,
        *,
        source_alias: str = "s",
        target_alias: str = "t",
        merge_schema: bool = False,
    ) -> MergeBuilder:
        """Update, delete and insert rows by those of a source: add clauses, then `execute()`.

            t.merge(orders, on="t.id = s.id").when_matched_update_all()
                .when_not_matched_insert_all().execute()

        Args:
            source: The source rows; they are computed once.
            on: The condition by which a row of the table and a row of the source match.
            source_alias: The name of the source in conditions and values.
            target_alias: The name of the table in conditions and values.
            merge_schema: Add columns and fields that clauses assign and only the source has.
        """
        self._engine()
        require_source("merge", source)
        require_on(on)
        if source_alias.lower() == target_alias.lower():
            raise InvalidArgumentError(f"both sides of a merge are called {source_alias!r}")
        aliases = (target_alias, source_alias)
        named = partial(by_name, self, target_alias=target_alias, source=(source_alias, source))
        return MergeBuilder(self, source, named(on), aliases, merge_schema, _by_name=named)
