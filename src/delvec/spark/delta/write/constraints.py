"""The constraints of a table as conditions on rows, and ADD CONSTRAINT, which reads all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, SparkSession, functions
from pyspark.sql import types as spark_types

from delvec.delta.alter.definition import add_constraint
from delvec.delta.alter.operations import state_change
from delvec.delta.alter.table_state import TableState
from delvec.delta.schema.expressions import StoredExpression, names_in, stored_expressions
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.partition_values import HIVE_NULL
from delvec.delta.schema.types import CHAR_TYPE, ArrayType, DataType, MapType, StructType
from delvec.delta.skipping.predicate import Always
from delvec.delta.write.change import ReadSet
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import ConstraintError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.stored_expressions import stored_column, stored_columns
from delvec.spark.failures import violation
from delvec.spark.types import spark_type


@dataclass(frozen=True)
class Rule:
    """A condition that is never NULL, and the column that fails the job where it is false."""

    holds: Column
    violation: Column


def rules_of(spark: SparkSession, table: str, metadata: Metadata) -> list[Rule]:
    """Return all rules of a table, over its columns by their logical names."""
    return [
        *_not_null(metadata.schema),
        *_null_texts(metadata),
        *_lengths(spark, metadata.schema),
        *_stored(spark, table, metadata),
    ]


def _column(name: str) -> Column:
    return functions.col(quote(name))


def _not_null(schema: StructType) -> Iterator[Rule]:
    for path, holds in _complete(schema, None):
        name, values = ".".join(path), {path[0]: _column(path[0])}
        yield Rule(holds, violation(f"NOT NULL {name}", f"column {name} takes no NULL", values))


def _null_texts(metadata: Metadata) -> Iterator[Rule]:
    """Yield a condition for each partition column in which a string would be stored as null."""
    for field in metadata.partition_fields:
        if field.nullable or str(field.type) not in ("string", "binary"):
            continue
        text = _column(field.name).cast("string")
        yield Rule(
            functions.coalesce(~text.isin("", HIVE_NULL), functions.lit(True)),
            violation(
                f"NOT NULL {field.name}",
                f"partition column {field.name} takes no NULL, and this string is stored as one",
                {field.name: text},
            ),
        )


def _complete(kind: StructType, parent: Column | None) -> Iterator[tuple[tuple[str, ...], Column]]:
    """Yield a condition for each field that takes no NULL, nested structs included.

    For Delta such a field of a struct must have a value even where the struct is null.
    """
    for field in kind.fields:
        column = _column(field.name) if parent is None else parent.getField(field.name)
        if not field.nullable:
            yield (field.name,), column.isNotNull()
        if isinstance(field.type, StructType):
            for path, holds in _complete(field.type, column):
                yield (field.name, *path), holds
        elif (inner := _inner_complete(field.type, column)) is not None:
            yield (field.name,), inner


def _inner_complete(kind: DataType, column: Column) -> Column | None:
    """Return the condition on the items of an array or a map, None if there is none."""
    if isinstance(kind, ArrayType):
        return _each(column, kind.element, nullable=kind.contains_null)
    if isinstance(kind, MapType):
        keys = _each(functions.map_keys(column), kind.key, nullable=True)
        values = functions.map_values(column)
        return _all([keys, _each(values, kind.value, nullable=kind.value_contains_null)])
    return None


def _each(items: Column, kind: DataType, *, nullable: bool) -> Column | None:
    if nullable and not _demands(kind):
        return None

    def holds(item: Column) -> Column:
        inner = _inner_complete(kind, item)
        if isinstance(kind, StructType):
            inner = _all(each for _, each in _complete(kind, item))
        if nullable:
            return functions.lit(True) if inner is None else item.isNull() | inner
        return item.isNotNull() if inner is None else item.isNotNull() & inner

    return _forall(items, holds)


def _demands(kind: DataType) -> bool:
    """Return whether a type has a nested field or item that takes no NULL."""
    if isinstance(kind, StructType):
        return any(not field.nullable or _demands(field.type) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return not kind.contains_null or _demands(kind.element)
    if isinstance(kind, MapType):
        return not kind.value_contains_null or _demands(kind.key) or _demands(kind.value)
    return False


def _all(conditions: Iterable[Column | None]) -> Column | None:
    listed = [each for each in conditions if each is not None]
    return reduce(and_, listed) if listed else None


def _forall(items: Column, holds: Callable[[Column], Column]) -> Column:
    return functions.coalesce(functions.forall(items, holds), functions.lit(True))


def _lengths(spark: SparkSession, schema: StructType) -> Iterator[Rule]:
    for field in schema.fields:
        text = field.metadata.get(CHAR_TYPE)
        if text is None:
            continue
        column, kinds = _column(field.name), "org.apache.spark.sql.types.DataType"
        declared = jvm.java_class(spark, kinds).fromDDL(str(text)).json()
        fits = _fits(spark_types._parse_datatype_json_string(declared), column)  # noqa: SLF001
        if fits is not None:
            message = f"a string in column {field.name} is longer than {text}"
            yield Rule(fits, violation(f"{text} {field.name}", message, {field.name: column}))


def _fits(kind: spark_types.DataType, column: Column) -> Column | None:
    """Return the condition that strings are no longer than declared; None without lengths."""
    if isinstance(kind, (spark_types.CharType, spark_types.VarcharType)):
        return functions.coalesce(functions.length(column) <= kind.length, functions.lit(True))
    if isinstance(kind, spark_types.StructType):
        return _all(_fits(each.dataType, column.getField(each.name)) for each in kind.fields)
    if isinstance(kind, spark_types.ArrayType):
        return _each_fits(kind.elementType, column)
    if isinstance(kind, spark_types.MapType):
        keys = _each_fits(kind.keyType, functions.map_keys(column))
        return _all([keys, _each_fits(kind.valueType, functions.map_values(column))])
    return None


def _each_fits(kind: spark_types.DataType, items: Column) -> Column | None:
    if _fits(kind, functions.lit(None)) is None:
        return None

    def holds(item: Column) -> Column:
        condition = _fits(kind, item)
        return functions.lit(True) if condition is None else condition

    return _forall(items, holds)


def _stored(spark: SparkSession, table: str, metadata: Metadata) -> Iterator[Rule]:
    """Yield what the expressions of the table demand; defaults demand nothing."""
    schema = metadata.schema
    stored = [each for each in stored_expressions(metadata) if each.kind != "default"]
    for each, column in zip(stored, stored_columns(spark, table, schema, stored), strict=True):
        names = names_in(each.text)
        fields = (field for field in schema.fields if field.name.lower() in names)
        values = {field.name: _column(field.name) for field in fields}
        if each.kind == "generated":
            own = _column(each.name)
            holds = own.eqNullSafe(column.cast(spark_type(schema.field(each.name).type)))
            message = f"{each.holder} is not {each.shown}"
            yield Rule(holds, violation(each.holder, message, {each.name: own, **values}))
        else:
            message = f"{each.holder} demands {each.shown}"
            # NULL is false, as Delta has it.
            holds = functions.coalesce(column.cast("boolean"), functions.lit(False))
            yield Rule(holds, violation(each.name, message, values))


def constrain(name: str, expression: str) -> Callable[[Attempt], Outcome]:
    """Prepare a CHECK constraint; all live rows are read, since they must satisfy it."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "alter")
            was = TableState.of(snapshot)
            now = add_constraint(was, name, expression)
        with attempt.phase("check"):
            stored = StoredExpression("constraint", name, expression)
            column = stored_column(attempt.spark, snapshot.table, now.schema, stored)
            holds = functions.coalesce(column, functions.lit(False))
            rows = scan(attempt.spark, snapshot).where(~holds).limit(1).collect()
        if rows:
            raise ConstraintError(
                f"a row of {snapshot.table} does not satisfy {expression}: {rows[0].asDict()}",
                constraint=name,
                table=snapshot.table,
                hint="mend or delete such rows first",
            )
        parameters = {"name": name, "expr": expression}
        return state_change("ADD CONSTRAINT", parameters, was, now, ReadSet(Always()))

    return prepare
