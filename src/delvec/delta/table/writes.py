"""Writing rows of a Delta table: append, overwrite, delete, update, and the builder of a MERGE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from delvec.calls import Explained, explained_class, require_condition
from delvec.delta.schema.types import Field, PrimitiveType
from delvec.delta.table.arguments import by_name, in_order, require_keys, require_on, require_values
from delvec.delta.table.handle import TableHandle, run_with
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Attempt, Outcome, WriteOptions
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from typing_extensions import Unpack

    from delvec.spark.delta.write.clauses import Clause, When

    Condition = str | Column | None
    Values = Mapping[str, str | Column | Any]
    Rows: TypeAlias = DataFrame | Any


@dataclass(frozen=True)
class TableWrites(TableHandle):
    """The commands that change rows; each call is one commit.

    Rows come as a Spark, pandas or polars DataFrame, or as a table, batch or reader of Arrow or
    anything else with `__arrow_c_stream__`. All but Spark's are read into the memory of the driver.
    Missing values of pandas are NULL, NaN in its columns of NumPy among them. A timestamp without a
    time zone is stored in a column of type `timestamp` as a time of the session's zone.

    All of them take the keywords of `WriteOptions`: `dry_run=True` (plan only), `max_retries` (how
    often to start again after a conflict, 10 by default), `commit_metadata` (a string for the
    history), and `txn_app_id` with `txn_version`: if the application has committed this version or
    a later one already, nothing is written.
    """

    def append(
        self, df: Rows, *, merge_schema: bool = False, **options: Unpack[WriteOptions]
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

        rows = self._rows("append", df)
        return self.run("WRITE", append(rows, "merge" if merge_schema else "none"), options)

    def overwrite(
        self,
        df: Rows,
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
        rows = self._rows("overwrite", df)
        prepare = overwrite(rows, by_name(self, where), evolution, by_partition=by_partition)  # type: ignore[arg-type]
        return self.run("WRITE", prepare, options)

    def delete(
        self,
        where: str | Column | None = None,
        *,
        keys: Any = ...,  # noqa: ANN401
        on: str | Sequence[str] | EllipsisType | None = ...,
        rewrite_ratio: float | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Delete the rows that match a condition, or have one of some keys; all without either.

        Partition values and statistics in the log decide which files match as a whole and are
        removed unread, and which cannot match. The other files are scanned once. Their deleted
        rows go into deletion vectors or, if the table has these switched off, the rows that are
        left are written to new files.

            t.delete("amount < 0")
            t.delete(keys=[17, 42], on="id")
            t.delete(keys=df, on=["day", "id"])

        Args:
            where: The condition; rows for which it is NULL stay. It may call the table `t`.
            keys: Instead: keys of the rows to delete. A list, range or array for one column, a list
                of tuples or dicts for several, or a Spark DataFrame, or a table of Arrow, pandas or
                polars that has the columns of `on`. A key that is NULL matches no row.
            on: The key columns.
            rewrite_ratio: Rewrite a file, instead of giving it a deletion vector, when the vector
                would delete at least this share of its rows, earlier deletes included.
            options: See the class.

        Raises:
            InvalidArgumentError: A condition or a column is wrong, or a key is not a value of its
                column's type.
        """
        if keys is not ... or on is not ...:  # None is no key: it would delete all rows
            named = None if on is ... else on
            require_keys(where, None if keys is ... else keys, named)
            return self._delete_keys(keys, named or (), rewrite_ratio, options)
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
            where: The condition; it is evaluated once. It and the values may call the table `t`.
                Condition and values may change places, as in delta-spark's `update`.
            rewrite_ratio: Rewrite a file, instead of giving it a deletion vector, when the vector
                would delete at least this share of its rows, earlier deletes included.
            options: See the class.
        """
        from delvec.spark.delta.write.update import update  # noqa: PLC0415

        given, condition = in_order(set, where)
        require_values("update", given)
        require_condition("update(set, where={})", condition)
        values = {name: by_name(self, value) for name, value in given.items()}
        return self.run("UPDATE", update(values, by_name(self, condition), rewrite_ratio), options)

    def merge(
        self,
        source: Rows,
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
        require_on(on)
        if source_alias.lower() == target_alias.lower():
            raise InvalidArgumentError(f"both sides of a merge are called {source_alias!r}")
        rows = self._rows("merge", source)
        aliases = (target_alias, source_alias)
        named = partial(by_name, self, target_alias=target_alias, source=(source_alias, rows))
        return MergeBuilder(self, rows, named(on), aliases, merge_schema, _by_name=named)

    def _delete_keys(
        self, keys: object, on: str | Sequence[str], ratio: float | None, options: WriteOptions
    ) -> WriteReport:
        from delvec.spark.delta.scan.read_versions import reads_of  # noqa: PLC0415
        from delvec.spark.delta.write.delete import ByKeys, delete_keys  # noqa: PLC0415
        from delvec.spark.engine import SparkEngine  # noqa: PLC0415
        from delvec.spark.input.key_values import SparkColumn  # noqa: PLC0415
        from delvec.spark.input.keys import to_frame  # noqa: PLC0415
        from delvec.spark.types import spark_type  # noqa: PLC0415

        session = self._session("delete(keys=...)")
        self._engine()  # a session that cannot write is refused first
        root, schema = self.storage.root, self.schema
        fields = [_key_field(schema.field(name)) for name in ([on] if isinstance(on, str) else on)]
        names = tuple(key.name for key in fields)
        columns = [SparkColumn(key.name, spark_type(key.type), key.char_width) for key in fields]
        with SparkEngine(session).translate_errors(root):
            wanted = to_frame(session, keys, columns, "delete")
            # Before the keys are read, so that no commit falls between the two.
            reads = reads_of(wanted, root, lambda: self.version)

        def prepare(rows: DataFrame) -> Callable[[Attempt], Outcome]:
            return delete_keys(ByKeys(rows, names, reads), ratio)

        return run_with(self, wanted, "DELETE", prepare, options)

    def _rows(self, call: str, rows: Rows) -> DataFrame:
        from delvec.spark.input.rows import read_rows  # noqa: PLC0415

        return read_rows(self._session(f"{call}()"), rows, call)


@explained_class(WriteOptions)
@dataclass(frozen=True)
class MergeBuilder(metaclass=Explained):
    """A MERGE to be run: each method returns a builder with one more clause, `execute` runs it.

    Each row is handled by the first clause of its kind whose condition holds, and left as it is
    if there is none. Conditions and values are SQL or columns of Spark; they refer to the table
    and the source by their aliases, which assigned columns may have as well: `{"t.v": "s.w"}`. The
    value `DEFAULT` is the column's default; values are cast to its type as in ANSI mode. Condition
    and values may change places, as delta-spark has them.
    """

    _table: TableHandle
    source: DataFrame
    on: str | Column
    aliases: tuple[str, str]
    merge_schema: bool = False
    clauses: tuple[Clause, ...] = ()
    _by_name: Callable[[Any], Any] = field(default=lambda value: value, repr=False)

    def when_matched_update(self, set: Values, condition: Condition = None) -> MergeBuilder:  # noqa: A002
        """Set columns of a row of the table that matches a row of the source."""
        return self._with("matched", "update", condition, set)

    def when_matched_update_all(self, condition: Condition = None) -> MergeBuilder:
        """Set all columns of a matched row to the values of the source row, by name."""
        return self._with("matched", "update", condition, None)

    def when_matched_delete(self, condition: Condition = None) -> MergeBuilder:
        """Delete a row of the table that matches a row of the source."""
        return self._with("matched", "delete", condition, None)

    def when_not_matched_insert(self, values: Values, condition: Condition = None) -> MergeBuilder:
        """Insert a row for a row of the source that matches no row of the table."""
        return self._with("not_matched", "insert", condition, values)

    def when_not_matched_insert_all(self, condition: Condition = None) -> MergeBuilder:
        """Insert a row of the source that matches no row of the table, columns by name."""
        return self._with("not_matched", "insert", condition, None)

    def when_not_matched_by_source_update(
        self,
        set: Values,  # noqa: A002
        condition: Condition = None,
    ) -> MergeBuilder:
        """Set columns of a row of the table that matches no row of the source."""
        return self._with("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: Condition = None) -> MergeBuilder:
        """Delete a row of the table that matches no row of the source."""
        return self._with("not_matched_by_source", "delete", condition, None)

    def execute(
        self, *, rewrite_ratio: float | None = None, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Run the merge as one commit.

        The source is computed once, even if a conflict with another writer makes the merge start
        again. A source that reads the table itself is not used again: if rows of the table have
        changed since it was read, the caller has to read it again.

        Args:
            rewrite_ratio: Rewrite a file, instead of giving it a deletion vector, when the vector
                would delete at least this share of its rows, earlier deletes included.
            options: See `WriteOptions`.

        Raises:
            InvalidArgumentError: Clauses or names are wrong, or several rows of the source match
                one row of the table that a clause changes.
            ConflictError: Another writer won, see `ConflictError.retryable`.
        """
        from delvec.spark.delta.scan.read_versions import reads_of  # noqa: PLC0415
        from delvec.spark.delta.write.clauses import MergeRequest, numbered  # noqa: PLC0415
        from delvec.spark.delta.write.merge import merge  # noqa: PLC0415
        from delvec.spark.engine import SparkEngine  # noqa: PLC0415

        # Before the source is read, so that no commit falls between the two.
        root, newest = self._table.storage.root, lambda: self._table.version
        reads = reads_of(self.source, root, newest)
        with SparkEngine(self.source.sparkSession).translate_errors(root):
            rows = numbered(self.source)

        def prepare(source: DataFrame) -> Callable[[Attempt], Outcome]:
            asked = (self.on, self.aliases, self.clauses, self.merge_schema)
            return merge(MergeRequest(source, *asked, rewrite_ratio, reads))

        return run_with(self._table, rows, "MERGE", prepare, options)

    def _with(
        self,
        when: When,
        action: Literal["update", "delete", "insert"],
        condition: Condition,
        values: Values | None,
    ) -> MergeBuilder:
        from delvec.spark.delta.write.clauses import Clause  # noqa: PLC0415

        call = f"when_{when}_{action}"
        if values is not None:
            values, condition = in_order(values, condition)
        first = {"update": "set, ", "insert": "values, "}.get(action, "") if values else ""
        require_condition(f"{call}({first}condition={{}})", condition)
        if values is not None:
            require_values(call, values)
            values = {name: self._by_name(value) for name, value in values.items()}
        clause = Clause(when, action, self._by_name(condition), values)
        return replace(self, clauses=(*self.clauses, clause))


def _key_field(field: Field) -> Field:
    if isinstance(field.type, PrimitiveType):
        return field
    raise InvalidArgumentError(
        f"column {field.name} is of type {field.type}, and cannot be a key",
        hint="name columns of plain types, or delete by a merge",
    )
