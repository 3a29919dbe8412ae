"""Rows to write, brought to the columns and types of a table and checked against its constraints.

Everything here is lazy: expressions added to the plan of the job that writes the rows. For values
of identity columns the rows are staged, so that each keeps its place: row k of partition p gets the
value number p + k * n, of n partitions. The last value is committed with the metadata: of two
writers at a time one conflicts, and starts again after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql import types as spark_types

from delvec.delta.alter.table_state import TableState
from delvec.delta.schema.column_metadata import Identity, identity_fields, with_mark
from delvec.delta.schema.expressions import default_of, generation_of
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.types import ArrayType, DataType, Field, MapType, StructType
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.report.hints import argument, format_hint
from delvec.spark import jvm
from delvec.spark.delta.write.constraints import Rule, rules_of
from delvec.spark.delta.write.stored_expressions import stored_column, stored_columns
from delvec.spark.failures import fail_on_misfit, translate_errors
from delvec.spark.types import spark_type

# A column of the table that the rows lack gets its default or NULL, or the rows are refused.
# A field that a struct of the rows lacks is NULL in the table, or the rows are refused.
Lacking: TypeAlias = Literal["null", "refuse"]
_FLOATING: Final = (spark_types.FloatType, spark_types.DoubleType)
_TIMES: Final = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)
_PARTITION: Final = "__delvec_partition"
_COUNT: Final = "__delvec_count"
# Spark numbers rows by the index in their partition, with the partition's above these bits.
_INDEX: Final = (1 << 33) - 1


def conform(
    spark: SparkSession,
    table: str,
    metadata: Metadata,
    df: DataFrame,
    *,
    lacking: Lacking = "refuse",
) -> DataFrame:
    """Return rows with the table's columns: its names, order and types, struct fields included.

    Columns are matched by name, ignoring case. Types are cast as in ANSI mode, whatever the session
    says: a type that can never fit is refused here, a value that does not fit fails the job.
    Generated columns that the rows lack are NULL until `add_generated_columns` fills them.
    """
    fields = metadata.schema.fields
    refuse_twins(df.columns, "the rows")
    given = {field.name.lower(): field for field in df.schema.fields}
    _refuse_unknown(given, [field.name for field in fields], "the table")
    absent = [field for field in fields if field.name.lower() not in given]
    if not absent and _is_same(df, fields):
        return df
    conversion = Conversion(spark, lacking=lacking)
    columns = [
        conversion.column(given[field.name.lower()], field)
        if field.name.lower() in given
        else default_column(spark, table, field)
        for field in fields
    ]
    return df.select(*columns)


class Conversion:
    """Casts to the types of a table's columns; a value that does not fit fails the job.

    Types are cast that ANSI mode casts, such as strings to numbers and dates, as delta-spark does.
    What the session says of ANSI mode and store assignment does not matter. Fields of structs are
    matched by name.
    """

    def __init__(self, spark: SparkSession, lacking: Lacking = "refuse") -> None:
        self._spark, self._lacking = spark, lacking

    def column(
        self, given: spark_types.StructField, field: Field, old: Column | None = None
    ) -> Column:
        """Return a column of the rows as a column of the table; `old` is as in `value`."""
        column = functions.col(quote(given.name))
        return self.value(column, given.dataType, field.type, field.name, old).alias(field.name)

    def value(
        self,
        column: Column,
        have: spark_types.DataType,
        wanted: DataType,
        path: str,
        old: Column | None = None,
    ) -> Column:
        """Return a value cast to the type of a column."""
        target = spark_type(wanted)
        if _same_type(have, target):
            return column
        if isinstance(have, spark_types.NullType):
            return column.cast(target)
        if isinstance(have, spark_types.StructType) and isinstance(wanted, StructType):
            return self._struct(column, have, wanted, path, old)
        if isinstance(have, spark_types.ArrayType) and isinstance(wanted, ArrayType):
            element, of = have.elementType, wanted.element
            return functions.transform(
                column, lambda item: self.value(item, element, of, f"{path}.element")
            )
        if isinstance(have, spark_types.MapType) and isinstance(wanted, MapType):
            return self._map(column, have, wanted, path)
        if not jvm.allows_cast(self._spark, "canAnsiCast", have, target):
            raise InvalidArgumentError(
                f"column {path} is {target.simpleString()}, and {have.simpleString()} cannot be"
                " stored in it",
                hint=f"cast it to {target.simpleString()}",
            )
        return self._cast(column, have, target, path)

    def _cast(
        self, column: Column, have: spark_types.DataType, wanted: spark_types.DataType, path: str
    ) -> Column:
        if self._always_fits(have, wanted):
            return column.cast(wanted)
        # Without ANSI mode a plain cast gives another value, or null.
        value = column.try_cast(wanted)
        message = f"a value of column {path} does not fit into {wanted.simpleString()}"
        return functions.when(
            column.isNotNull() & value.isNull(), fail_on_misfit(path, message, column).cast(wanted)
        ).otherwise(value)

    def _always_fits(self, have: spark_types.DataType, wanted: spark_types.DataType) -> bool:
        if isinstance(wanted, spark_types.StringType):
            return True
        if isinstance(have, spark_types.StringType):
            return isinstance(wanted, spark_types.BinaryType)
        both_times = isinstance(have, _TIMES) and isinstance(wanted, _TIMES)
        if both_times or isinstance(wanted, _FLOATING):
            return True
        return jvm.allows_cast(self._spark, "canUpCast", have, wanted)

    def _struct(
        self,
        column: Column,
        have: spark_types.StructType,
        wanted: StructType,
        path: str,
        old: Column | None,
    ) -> Column:
        refuse_twins([field.name for field in have.fields], f"fields of {path}")
        given = {field.name.lower(): field for field in have.fields}
        _refuse_unknown(given, list(wanted.names), path)
        missing = [name for name in wanted.names if name.lower() not in given]
        if missing and self._lacking == "refuse":
            raise InvalidArgumentError(
                f"column {path} is {spark_type(wanted).simpleString()}, and the new values lack"
                f" its field {', '.join(missing)}",
                hint=format_hint(
                    "give every field a value; merge, append and overwrite allow for less with {}",
                    argument(merge_schema=True),
                ),
            )

        def new(field: Field) -> Column:
            found = given.get(field.name.lower())
            before = None if old is None else old.getField(field.name)
            if found is None:
                value = functions.lit(None) if before is None else before
                return value.cast(spark_type(field.type))
            inner = column.getField(found.name)
            return self.value(inner, found.dataType, field.type, f"{path}.{field.name}", before)

        is_there = column.isNotNull()
        if old is not None and _lacks_fields(have, wanted):
            is_there |= old.isNotNull()
        # functions.struct is never null, so a null struct has to stay one explicitly.
        return functions.when(
            is_there, functions.struct(*(new(field).alias(field.name) for field in wanted.fields))
        )

    def _map(self, column: Column, have: spark_types.MapType, wanted: MapType, path: str) -> Column:
        if not _same_type(have.keyType, spark_type(wanted.key)):
            column = functions.transform_keys(
                column, lambda key, _: self.value(key, have.keyType, wanted.key, f"{path}.key")
            )
        if not _same_type(have.valueType, spark_type(wanted.value)):
            column = functions.transform_values(
                column,
                lambda _, value: self.value(value, have.valueType, wanted.value, f"{path}.value"),
            )
        return column


def default_column(spark: SparkSession, table: str, field: Field) -> Column:
    """Return the value of a column that the rows lack: its default, else NULL."""
    value, stored = functions.lit(None), default_of(field)
    if stored is not None:
        value = stored_column(spark, table, StructType(()), stored)
    return value.cast(spark_type(field.type)).alias(field.name)


def refuse_twins(names: Sequence[str], where: str) -> None:
    """Refuse columns whose names differ in case only."""
    counts = Counter(name.lower() for name in names)
    twins = [name for name in names if counts[name.lower()] > 1]
    if twins:
        raise InvalidArgumentError(
            f"{where} have more than one column of a name: {', '.join(twins)}",
            hint="names that differ in case only are the same to Delta: rename or drop one",
        )


def add_generated_columns(
    spark: SparkSession, table: str, schema: StructType, rows: DataFrame, given: Collection[str]
) -> DataFrame:
    """Fill generated columns from the other ones, after their casts."""
    names = {name.lower() for name in given}
    missing = [field for field in schema.fields if field.name.lower() not in names]
    values = generated_columns(spark, table, schema, missing)
    return rows.withColumns(values) if values else rows


def generated_columns(
    spark: SparkSession, table: str, schema: StructType, fields: Sequence[Field]
) -> dict[str, Column]:
    """Return the values of those of some columns that are generated, from the other columns."""
    stored = [each for each in map(generation_of, fields) if each is not None]
    columns = stored_columns(spark, table, schema, stored)
    return {
        each.name: column.cast(spark_type(schema.field(each.name).type))
        for each, column in zip(stored, columns, strict=True)
    }


def check_constraints(
    spark: SparkSession, table: str, metadata: Metadata, df: DataFrame
) -> DataFrame:
    """Return the same rows; one that violates a constraint of the table fails the job.

    Checked are NOT NULL, CHECK constraints, invariants, generated columns, and the lengths of
    `char(n)` and `varchar(n)`. Without any there is no cost.
    """
    with translate_errors(table):
        return fail_on_violation(df, rules_of(spark, table, metadata))


def fail_on_violation(df: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return the same rows; one that violates a rule fails the job."""
    if not rules:
        return df
    # The optimiser could push the test below filters and joins, where it would see rows that are
    # not written, or merge it with them in any order. It moves nothing that is non-deterministic.
    held = functions.when(functions.monotonically_increasing_id() < 0, functions.lit(False))
    for rule in rules:
        held = held.when(~rule.holds, rule.violation)
    return df.where(held.otherwise(functions.lit(True)))


def require_insertable(schema: StructType, given: Collection[str]) -> None:
    """Refuse values for identity columns that are always generated."""
    names = {name.lower() for name in given}
    for field in identity_fields(schema):
        if field.name.lower() in names and not Identity.of(field).allows_explicit:
            raise InvalidArgumentError(
                f"column {field.name} is GENERATED ALWAYS AS IDENTITY: rows cannot give it a value",
                hint=f"leave {field.name} out",
            )


def missing_identities(schema: StructType, given: Collection[str]) -> list[str]:
    names = {name.lower() for name in given}
    return [each.name for each in identity_fields(schema) if each.name.lower() not in names]


def with_next_value(schema: StructType, rows: DataFrame, missing: Collection[str]) -> DataFrame:
    """Give all rows the same value, for a plan that checks rows and writes none."""
    values = {name: Identity.of(schema.field(name)).next_value for name in missing}
    return rows.withColumns({name: functions.lit(value) for name, value in values.items()})


def with_identity_values(
    state: TableState, rows: DataFrame, missing: Mapping[str, Column | None]
) -> tuple[DataFrame, TableState]:
    """Fill identity columns; return the rows, and the table with its new high water marks."""
    identities = {name: Identity.of(state.schema.field(name)) for name in missing}
    found = (
        rows.groupBy(functions.spark_partition_id().alias(_PARTITION))
        .agg(
            functions.count("*").alias(_COUNT),
            *(_furthest(each, missing[name]) for name, each in identities.items()),
        )
        .collect()
    )
    if not found:
        return rows, state
    partitions = 1 + max(row[_PARTITION] for row in found)
    last = max(row[_PARTITION] + (row[_COUNT] - 1) * partitions for row in found)
    index = functions.monotonically_increasing_id().bitwiseAND(functions.lit(_INDEX))
    number = functions.spark_partition_id() + index * functions.lit(partitions)
    values, marks = {}, {}
    for name, identity in identities.items():
        furthest = identity.next_value + last * identity.step
        identity.require_room(furthest)
        first, step = (
            functions.lit(each).cast("long") for each in (identity.next_value, identity.step)
        )
        values[name] = value = first + number * step
        if (condition := missing[name]) is not None:
            own = functions.col(quote(name))
            values[name] = functions.when(condition, value).otherwise(own)
        moved = identity
        for brought in (furthest, *(row[name] for row in found if row[name] is not None)):
            moved = replace(moved, high_water_mark=moved.mark_after(brought))
        marks[name] = mark = moved.high_water_mark
        if mark is not None:
            # After a value that rows bring it is the next one that can be generated.
            identity.require_room(mark)
    fields = (with_mark(field, marks.get(field.name)) for field in state.schema.fields)
    return rows.withColumns(values), state.with_schema(StructType(tuple(fields)))


def _refuse_unknown(
    given: dict[str, spark_types.StructField], known: list[str], where: str
) -> None:
    lower = {name.lower(): name for name in known}
    unknown = [field.name for key, field in given.items() if key not in lower]
    if not unknown:
        return
    near = {
        lower[found]: None
        for name in unknown
        for found in get_close_matches(name.lower(), lower, 3)
        if found not in given
    }
    meant = f"did you mean {' or '.join(near)}? If not, " if near else ""
    raise InvalidArgumentError(
        f"{where} has no column {', '.join(unknown)}, only {', '.join(known)}",
        hint=format_hint("{}{} adds new columns", meant, argument(merge_schema=True)),
    )


def _is_same(df: DataFrame, fields: Sequence[Field]) -> bool:
    return df.columns == [field.name for field in fields] and all(
        _same_type(have.dataType, spark_type(field.type))
        for have, field in zip(df.schema.fields, fields, strict=True)
    )


def _same_type(have: spark_types.DataType, wanted: spark_types.DataType) -> bool:
    return have.simpleString() == wanted.simpleString()


def _lacks_fields(have: spark_types.StructType, wanted: StructType) -> bool:
    """Return whether a struct lacks a field, itself or in the structs directly inside of it."""
    given = {field.name.lower(): field.dataType for field in have.fields}
    for field in wanted.fields:
        inner = given.get(field.name.lower())
        if inner is None:
            return True
        if (
            isinstance(field.type, StructType)
            and isinstance(inner, spark_types.StructType)
            and _lacks_fields(inner, field.type)
        ):
            return True
    return False


def _furthest(identity: Identity, missing: Column | None) -> Column:
    """Return the furthest value that rows bring themselves."""
    own = functions.col(quote(identity.name))
    brought = functions.lit(None).cast("long") if missing is None else functions.when(~missing, own)
    furthest = functions.max if identity.step > 0 else functions.min
    return furthest(brought).alias(identity.name)
