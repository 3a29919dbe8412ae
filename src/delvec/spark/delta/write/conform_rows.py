"""Rows to write, brought to the columns and types of a table and checked against its constraints.

Everything here is lazy: expressions added to the plan of the job that writes the rows.
"""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyspark.sql import functions
from pyspark.sql import types as spark_types

from delvec.delta.schema.expressions import default_of, generation_of
from delvec.delta.schema.types import ArrayType, MapType, StructType
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.delta.rules.rules import rules_of
from delvec.spark.delta.rules.stored_expressions import stored_column, stored_columns
from delvec.spark.failures import explained, misfit
from delvec.spark.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import DataType, Field
    from delvec.spark.delta.rules.rules import Rule

__all__ = [
    "Conversion",
    "Lacking",
    "Missing",
    "checked",
    "conform",
    "default_column",
    "generated_columns",
    "guarded",
    "refuse_twins",
    "with_generated",
]

# A column of the table that the rows lack gets its default or NULL, or the rows are refused.
Missing: TypeAlias = Literal["default", "refuse"]
# A field that a struct of the rows lacks is NULL in the table, or the rows are refused.
Lacking: TypeAlias = Literal["null", "refuse"]

_FLOATING: Final = (spark_types.FloatType, spark_types.DoubleType)
_TIMES: Final = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)


def conform(
    spark: SparkSession,
    table: str,
    metadata: Metadata,
    df: DataFrame,
    *,
    missing: Missing = "default",
    lacking: Lacking = "refuse",
    keep: Sequence[str] = (),
) -> DataFrame:
    """Return rows with the table's columns: its names, order and types, struct fields included.

    Columns are matched by name, ignoring case. Types are cast as in ANSI mode, whatever the session
    says: a type that can never fit is refused here, a value that does not fit fails the job.
    Generated columns that the rows lack are NULL until `with_generated` fills them.

    Args:
        spark: A classic session.
        table: Where the table is, for errors.
        metadata: The table's.
        df: The rows.
        missing: What to do about columns that the rows lack.
        lacking: What to do about fields that a struct of the rows lacks.
        keep: Columns that are not the table's, carried along after its own.

    Raises:
        InvalidArgumentError: The table has no such column, it comes twice, or its type cannot be
            stored.
    """
    fields = metadata.schema.fields
    given = _by_name(df, keep)
    _refuse_unknown(given, [field.name for field in fields], "the table")
    absent = [field for field in fields if field.name.lower() not in given]
    if absent and missing == "refuse":
        raise InvalidArgumentError(
            f"the rows lack {', '.join(field.name for field in absent)}",
            hint="give every column of the table a value",
        )
    if not absent and _is_same(df, fields, keep):
        return df
    conversion = Conversion(spark, lacking=lacking)
    columns = [
        conversion.column(given[field.name.lower()], field)
        if field.name.lower() in given
        else default_column(spark, table, field)
        for field in fields
    ]
    return df.select(*columns, *(functions.col(quote(name)) for name in keep))


def with_generated(
    spark: SparkSession, table: str, schema: StructType, rows: DataFrame, given: Collection[str]
) -> DataFrame:
    """Fill generated columns from the other ones, after their casts.

    Args:
        spark: A classic session.
        table: Where the table is, for errors.
        schema: The table's.
        rows: With all columns of the table.
        given: The columns that the rows brought along; these stay as they are.
    """
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


def checked(spark: SparkSession, table: str, metadata: Metadata, df: DataFrame) -> DataFrame:
    """Return the same rows; one that violates a constraint of the table fails the job.

    Checked are NOT NULL, CHECK constraints, invariants, generated columns, and the lengths of
    `char(n)` and `varchar(n)`. Without any there is no cost.

    Raises:
        InvalidArgumentError: An expression of the table names a column that it does not have.
        UnsupportedFeatureError: An expression of the table does what none may, see
            `stored_columns`.
    """
    with explained(table):
        return guarded(df, rules_of(spark, table, metadata))


def guarded(df: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return the same rows; one that violates a rule fails the job."""
    if not rules:
        return df
    # The optimiser could push the test below filters and joins, where it would see rows that are
    # not written, or merge it with them in any order. It moves nothing that is non-deterministic.
    held = functions.when(functions.monotonically_increasing_id() < 0, functions.lit(False))
    for rule in rules:
        held = held.when(~rule.holds, rule.violation)
    return df.where(held.otherwise(functions.lit(True)))


def _by_name(df: DataFrame, keep: Sequence[str]) -> dict[str, spark_types.StructField]:
    """Return the columns of rows by their names in lower case."""
    kept = set(keep)
    columns = [field for field in df.schema.fields if field.name not in kept]
    refuse_twins([field.name for field in columns], "the rows")
    return {field.name.lower(): field for field in columns}


def refuse_twins(names: Sequence[str], where: str) -> None:
    """Refuse columns whose names differ in case only.

    Raises:
        InvalidArgumentError: It names them.
    """
    counts = Counter(name.lower() for name in names)
    twins = [name for name in names if counts[name.lower()] > 1]
    if twins:
        raise InvalidArgumentError(
            f"{where} have more than one column of a name: {', '.join(twins)}",
            hint="names that differ in case only are the same to Delta: rename or drop one",
        )


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
        hint=f"{meant}merge_schema=True adds new columns",
    )


def _is_same(df: DataFrame, fields: Sequence[Field], keep: Sequence[str]) -> bool:
    names = [*(field.name for field in fields), *keep]
    return df.columns == names and all(
        _same_type(have.dataType, spark_type(field.type))
        for have, field in zip(df.schema.fields, fields, strict=False)
    )


def _same_type(have: spark_types.DataType, wanted: spark_types.DataType) -> bool:
    return have.simpleString() == wanted.simpleString()


def default_column(spark: SparkSession, table: str, field: Field) -> Column:
    """Return the value of a column that the rows lack: its default, else NULL."""
    stored = default_of(field)
    value = (
        functions.lit(None)
        if stored is None
        else stored_column(spark, table, StructType(()), stored)
    )
    return value.cast(spark_type(field.type)).alias(field.name)


class Conversion:
    """Casts to the types of a table's columns; a value that does not fit fails the job.

    Types are cast that ANSI mode casts, such as strings to numbers and dates, as delta-spark does.
    What the session says of ANSI mode and store assignment does not matter. Fields of structs are
    matched by name.

    Args:
        spark: A classic session.
        lacking: What to do about fields that a struct lacks.
    """

    def __init__(self, spark: SparkSession, lacking: Lacking = "refuse") -> None:
        self._view, self._lacking = jvm.view_of(spark), lacking

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
        """Return a value cast to the type of a column.

        Args:
            column: The value.
            have: Its type.
            wanted: The type of the column.
            path: The column's name, for errors.
            old: The value that it replaces, of the type `wanted`: fields that a struct lacks are
                taken from it. Elements of arrays and maps replace nothing.
        """
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
        if not self._allows("canAnsiCast", have, target):
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
            column.isNotNull() & value.isNull(),
            misfit(path, message, column).cast(wanted),
        ).otherwise(value)

    def _allows(self, rule: str, have: spark_types.DataType, wanted: spark_types.DataType) -> bool:
        """Ask a predicate of Spark's `Cast` about two types."""
        of_json = self._view.org.apache.spark.sql.types.DataType.fromJson
        cast = self._view.org.apache.spark.sql.catalyst.expressions.Cast
        return bool(getattr(cast, rule)(of_json(have.json()), of_json(wanted.json())))

    def _always_fits(self, have: spark_types.DataType, wanted: spark_types.DataType) -> bool:
        if isinstance(wanted, spark_types.StringType):
            return True
        if isinstance(have, spark_types.StringType):
            return isinstance(wanted, spark_types.BinaryType)
        if isinstance(wanted, _FLOATING) or (
            isinstance(have, _TIMES) and isinstance(wanted, _TIMES)
        ):
            return True
        return self._allows("canUpCast", have, wanted)

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
        self._require_all(given, wanted, path)

        def new(field: Field) -> Column:
            found = given.get(field.name.lower())
            before = None if old is None else old.getField(field.name)
            if found is None:
                return (functions.lit(None) if before is None else before).cast(
                    spark_type(field.type)
                )
            inner = column.getField(found.name)
            return self.value(inner, found.dataType, field.type, f"{path}.{field.name}", before)

        is_there = column.isNotNull()
        if old is not None and _lacks_fields(have, wanted):
            is_there |= old.isNotNull()
        # functions.struct is never null, so a null struct has to stay one explicitly.
        return functions.when(
            is_there, functions.struct(*(new(field).alias(field.name) for field in wanted.fields))
        )

    def _require_all(
        self, given: Mapping[str, spark_types.StructField], wanted: StructType, path: str
    ) -> None:
        missing = [name for name in wanted.names if name.lower() not in given]
        if missing and self._lacking == "refuse":
            raise InvalidArgumentError(
                f"column {path} is {spark_type(wanted).simpleString()}, and the new values lack"
                f" its field {', '.join(missing)}",
                hint="give every field a value; merge, append and overwrite allow for less with"
                " merge_schema=True",
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
