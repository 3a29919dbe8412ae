"""The clauses of UPDATE and MERGE: what they assign, and the columns that a MERGE adds by them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql import types as spark_types

from delvec.delta.schema.column_metadata import identity_fields
from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.traversal import resolve
from delvec.delta.schema.types import DataType, StructType
from delvec.errors import InvalidArgumentError
from delvec.identifiers import split_path
from delvec.spark import jvm
from delvec.spark.catalyst import column_of
from delvec.spark.delta.scan.conditions import to_sql
from delvec.spark.delta.write.conform_rows import default_column
from delvec.spark.delta.write.file_outcomes import require_ratio
from delvec.spark.jvm import items

if TYPE_CHECKING:
    from delvec.delta.write.change import SourceRead

    Path = tuple[str, ...]

SOURCE_ROW: Final = "__delvec_source_row"
"""The column that numbers the rows of a source."""
When: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]
Value: TypeAlias = "str | Column | Any"


@dataclass(frozen=True)
class Clause:
    """One clause of a MERGE, or the whole of an UPDATE.

    Its values are by column, named by itself or behind the table's alias; None for all columns of
    the source under their names.
    """

    when: When
    action: Literal["update", "delete", "insert"]
    condition: str | Column | None = None
    values: Mapping[str, Value] | None = None


@dataclass(frozen=True)
class Assigned:
    """A clause with its number, from 1, and its new values by the name of the table's column.

    Fields that a new struct lacks become NULL, unless the clause `keeps_fields` of the old one.
    """

    number: int
    clause: Clause
    values: Mapping[str, Column]
    keeps_fields: bool = False


@dataclass(frozen=True)
class MergeRequest:
    """A MERGE as the user asked for it.

    Attributes:
        source: The rows to merge, each with its number in `SOURCE_ROW`; the same for every job.
        aliases: What conditions and values call the target and the source.
        merge_schema: Whether columns that only the source has become columns of the table.
        rewrite_ratio: Rewrite a file when this share of its rows is deleted.
        reads: What the source has read of the target.
    """

    source: DataFrame
    on: str | Column
    aliases: tuple[str, str]
    clauses: tuple[Clause, ...]
    merge_schema: bool = False
    rewrite_ratio: float | None = None
    reads: tuple[SourceRead, ...] = ()

    def of(self, when: When) -> list[Clause]:
        """Return the clauses for matched, not matched, or not matched by source rows."""
        return [clause for clause in self.clauses if clause.when == when]

    def require_valid(self) -> None:
        require_ratio(self.rewrite_ratio)
        if not self.clauses:
            raise InvalidArgumentError(
                "a merge needs at least one clause",
                hint="add .when_matched_update_all() or .when_not_matched_insert_all()",
            )
        for when in ("matched", "not_matched", "not_matched_by_source"):
            if any(clause.condition is None for clause in self.of(when)[:-1]):
                raise InvalidArgumentError(
                    f"a clause for rows that are {when.replace('_', ' ')} stands behind one without"
                    " a condition, and would never apply",
                    hint="only the last clause of each kind may go without a condition",
                )

    def parameters(self) -> dict[str, Any]:
        def shown(when: When) -> list[dict[str, str]]:
            return [
                {"actionType": clause.action}
                | ({} if clause.condition is None else {"predicate": to_sql(clause.condition)})
                for clause in self.of(when)
            ]

        return {
            "predicate": [to_sql(self.on)],
            "matchedPredicates": shown("matched"),
            "notMatchedPredicates": shown("not_matched"),
            "notMatchedBySourcePredicates": shown("not_matched_by_source"),
        }


def numbered(source: DataFrame) -> DataFrame:
    """Number the rows of a source, so that those without a match can be told."""
    return source.withColumn(SOURCE_ROW, functions.monotonically_increasing_id())


def expression(value: Value) -> Column:
    """Return SQL, a column, or a plain value of Python as a column."""
    if isinstance(value, str):
        return functions.expr(value)
    return value if isinstance(value, Column) else functions.lit(value)


def bound(spark: SparkSession, each: Assigned, rows: DataFrame) -> Assigned:
    """Resolve the names in a clause against some rows, whatever these are joined with later."""

    def resolved(value: Column) -> Column:
        [found] = items(_row_wise(rows, [value]).projectList())
        is_named = jvm.class_name(found) == "Alias"
        return column_of(spark, found.child() if is_named else found)

    condition = each.clause.condition
    if condition is not None:
        condition = resolved(expression(condition))
    values = {name: resolved(value) for name, value in each.values.items()}
    return Assigned(each.number, replace(each.clause, condition=condition), values)


def require_row_wise(rows: DataFrame, clauses: Sequence[Assigned]) -> None:
    """Refuse values and conditions that depend on other rows than their own.

    Spark would compute windows over the rows of all clauses.
    """
    columns = [value for each in clauses for value in each.values.values()]
    conditions = [each.clause.condition for each in clauses]
    columns += [expression(each) for each in conditions if each is not None]
    if columns:
        _row_wise(rows, columns)


def parse_assignments(
    spark: SparkSession,
    table: str,
    clause: Clause,
    number: int,
    schema: StructType,
    old: Callable[[str], Column] | None,
    *,
    alias: str | None = None,
    named: Collection[str] = (),
) -> Assigned:
    """Resolve the columns that a clause assigns; `a.b` is a field of the struct `a`.

    The value `DEFAULT` is the column's default, NULL without one; values of generated columns, and
    of identity columns of new rows, are generated.
    """
    given = {name: tuple(path_of(schema, name, alias)) for name in clause.values or ()}
    _refuse_contradictions(given)
    values: dict[str, Column] = {}
    has_default = "default" in (each.lower() for each in named)
    for name, value in (clause.values or {}).items():
        path, column = given[name], expression(value)
        is_default = isinstance(value, str) and value.strip().lower() == "default"
        if is_default and not has_default:
            if len(path) > 1:
                raise InvalidArgumentError(
                    f"{name} has no default of its own", hint=f"give {path[0]} the value DEFAULT"
                )
            field = schema.field(path[0])
            if GENERATION in field.metadata or (old is None and field in identity_fields(schema)):
                continue
            column = default_column(spark, table, field)
        if len(path) > 1:
            if old is None:
                raise InvalidArgumentError(
                    f"an insert gives whole columns, not the field {name}",
                    hint=f"give {path[0]} a struct",
                )
            base = values.get(path[0], old(path[0]))
            column = _with_field(base, schema.field(path[0]).type, path[1:], column)
        values[path[0]] = column
    return Assigned(number, clause, values)


def path_of(schema: StructType, name: str, alias: str | None = None) -> list[str]:
    """Return the path of a column in the table's spelling; a column with dots in its name wins.

    As in Spark, `t.v` is the column `v` of the table `t` rather than a field of a column `t`.
    """
    names = {field.name.lower() for field in schema.fields}
    if name.lower() in names:
        return [schema.field(name).name]
    path = split_path(name)
    if alias is not None and len(path) > 1 and path[0].lower() == alias.lower():
        is_column = path[0].lower() in names and path[1].lower() not in names
        path = path if is_column else path[1:]
    return [each.name for each in resolve(schema, path, structs_only=True)]


def assigned_fields(
    source: spark_types.StructType, target: StructType, request: MergeRequest
) -> spark_types.StructType:
    """Return the part of a source's schema that a table may take over.

    That is all of it if a clause assigns all columns; else the columns and fields of which the
    clauses name a path. Deletes assign nothing, and clauses for rows without a match in the source
    have nothing of it. The source may have types that Delta lacks.
    """
    setting = [
        each
        for each in request.clauses
        if each.action != "delete" and each.when != "not_matched_by_source"
    ]
    if any(each.values is None for each in setting):
        return source
    names = {name for each in setting for name in each.values or ()}
    return _along(source, (), {_path(name, target, source, request.aliases[0]) for name in names})


def _row_wise(rows: DataFrame, columns: Sequence[Column]) -> Any:  # noqa: ANN401
    """Return the analysed projection; Spark adds other operators to it for more than that."""
    own: Any = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    try:
        plan: Any = rows.select(*columns)._jdf.queryExecution().analyzed()  # noqa: SLF001
    except AnalysisException:
        if len(columns) == 1:
            raise
        plan = None  # an aggregate beside other columns, or a name that is wrong
    if plan is not None and jvm.class_name(plan) == "Project" and plan.child().fastEquals(own):
        return plan
    if len(columns) > 1:
        for column in columns:
            _row_wise(rows, [column])
    raise InvalidArgumentError(
        f"values and conditions are computed from one row, and {to_sql(columns[0])} is not",
        hint="window functions, aggregates and generators can be columns of a merge's source",
    )


def _refuse_contradictions(given: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse two values for one column, or for a struct and a field of it."""
    names: dict[tuple[str, ...], str] = {}
    for name, path in given.items():
        if names.setdefault(path, name) != name:
            raise InvalidArgumentError(
                f"{names[path]} and {name} are one column, and one clause sets both",
                hint="names that differ in case only are the same: set it once",
            )
    for name, path in given.items():
        for whole in (path[:length] for length in range(1, len(path))):
            if whole in names:
                raise InvalidArgumentError(
                    f"one clause sets {names[whole]} and {name}, which is a part of it",
                    hint=f"set {names[whole]} as a whole, or only fields of it",
                )


def _with_field(base: Column, kind: DataType, path: Sequence[str], value: Column) -> Column:
    """Return a struct with a new value for a field; a null struct becomes one with that field.

    Spark's `withField` keeps a null struct, and would lose the value.
    """
    if not path:
        return value
    columns = []
    for field in kind.fields if isinstance(kind, StructType) else ():
        column = base.getField(field.name)
        if field.name == path[0]:
            column = _with_field(column, field.type, path[1:], value)
        columns.append(column.alias(field.name))
    return functions.struct(*columns)


def _path(name: str, target: StructType, source: spark_types.StructType, alias: str) -> Path:
    """Return the path that a clause assigns, in lower case: one of the table, else of the source.

    A name that nobody knows is refused where the clause is resolved.
    """
    path: Sequence[str] = [name]
    with suppress(InvalidArgumentError):
        if name.lower() not in (each.lower() for each in source.names):
            path = split_path(name)
        path = path_of(target, name, alias)
    return tuple(each.lower() for each in path)


def _along(
    struct: spark_types.StructType, prefix: Path, paths: Collection[Path]
) -> spark_types.StructType:
    """Return the fields of a struct, and of those inside of it, that are on a path."""
    kept = []
    for field in struct.fields:
        path, kind = (*prefix, field.name.lower()), field.dataType
        if path in paths:
            kept.append(field)
        elif isinstance(kind, spark_types.StructType) and any(
            each[: len(path)] == path for each in paths
        ):
            inner = _along(kind, path, paths)
            kept.append(spark_types.StructField(field.name, inner, field.nullable, field.metadata))
    return spark_types.StructType(kept)
