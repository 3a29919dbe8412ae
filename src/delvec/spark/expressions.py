"""Expressions for Spark: bits in binary values, digests of rows, and SQL made of a table's words.

Two DataFrames with the same rows, each as often as in the other, have the same sums, in any order.
Spark's `xxhash64` ignores nulls and does not see where a nested value ends: `(null, 5)` is
`(5, null)` to it, and `[1], [2]` is `[1, 2], []`. So each value is hashed together with whether it
is null, each array and map together with its size. Hashes are added up, since equal rows would
cancel each other out in an exclusive or. Values are equal as they are to Spark: 0.0 is -0.0, NaN is
NaN, and the entries of a map have no order.

SQL: the parser of a session first replaces `${env:X}`, `${spark.x}` and the like by what they stand
for, within quoted names and strings too: a column of that name would be one called like a secret.
So whatever is made of a table's words is parsed here, by Spark's parser without that step, and not
given to `functions.expr`, `selectExpr` or `spark.sql`. Those are for the caller's own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.catalyst import column_of

_PARSER = "org.apache.spark.sql.catalyst.parser.CatalystSqlParser"


def broadcast_bytes(spark: SparkSession, octets: bytes) -> Column:
    """Return bytes as a column that takes no room in plans: executors fetch them once.

    They live until Spark's cleaner finds that no plan refers to them.
    """
    view = jvm.view_of(spark)
    expressions = view.org.apache.spark.sql.catalyst.expressions
    types = view.org.apache.spark.sql.types
    shared = spark.sparkContext._jsc.broadcast(octets)  # noqa: SLF001
    loader = view.java.lang.Thread.currentThread().getContextClassLoader()
    kind = loader.loadClass("org.apache.spark.broadcast.Broadcast")
    handle = expressions.Literal.fromObject(shared, types.ObjectType(kind))
    nothing = jvm.to_seq(spark, [])
    value = expressions.objects.Invoke(
        handle, "value", types.DataTypes.BinaryType, nothing, nothing, True, False, True
    )
    return column_of(spark, value)


def word_at(spark: SparkSession, octets: Column, place: Column) -> Column:
    """Return `ByteBuffer.wrap(octets).getLong(place)` as a column.

    The buffer checks bounds, and costs nothing measurable: it never leaves the generated code.
    """
    view = jvm.view_of(spark)
    utils = view.org.apache.spark.sql.classic.ExpressionUtils
    objects = view.org.apache.spark.sql.catalyst.expressions.objects
    types = view.org.apache.spark.sql.types
    buffer = view.java.lang.Class.forName("java.nio.ByteBuffer")

    def arguments(*columns: Column) -> Any:  # noqa: ANN401
        return jvm.to_seq(spark, [utils.expression(each._jc) for each in columns])  # noqa: SLF001

    # The flags: a null argument makes the result null, the result may be null, the call is
    # deterministic.
    flags = (True, True, True)
    wrapped = objects.StaticInvoke(
        buffer,
        types.ObjectType(buffer),
        "wrap",
        arguments(octets),
        arguments(),
        *flags,
        view.scala.Option.empty(),
    )
    long = types.DataTypes.LongType
    word = objects.Invoke(wrapped, "getLong", long, arguments(place), arguments(), *flags)
    return column_of(spark, word)


def row_sums(rows: DataFrame, kind: StructType) -> tuple[int, ...]:
    """Return the number of rows and the sums of their hashes; one scan."""
    found = rows.agg(*sums_by_rows(kind)).first()
    if found is None:
        raise AssertionError("an aggregate without groups returns a row")
    return tuple(found)


def sums_by_rows(kind: StructType) -> list[Column]:
    """Return the aggregates: the number of rows, and the sums of the three parts of their hashes.

    The sum of a part of 22 bits is exact for two trillion rows, and faster than a sum of decimals.
    """
    hashed = _hash(
        *(part for f in kind.fields for part in _parts(F.col(quote(f.name)), f.dataType))
    )
    parts = (
        F.shiftright(hashed, 43),
        F.shiftright(hashed, 21).bitwiseAND((1 << 22) - 1),
        hashed.bitwiseAND((1 << 21) - 1),
    )
    return [F.count(F.lit(1)), *(F.coalesce(F.sum(part), F.lit(0)) for part in parts)]


def _parts(value: Column, kind: DataType) -> Iterator[Column]:
    """Yield what to hash for a value; different values have different parts."""
    yield value.isNull()
    if isinstance(kind, StructType):
        # The fields of a null struct are null. Flattened, they need no object for each row.
        for field in kind.fields:
            yield from _parts(value.getField(field.name), field.dataType)
    elif isinstance(kind, ArrayType):
        yield F.size(value)
        yield F.transform(value, lambda element: _hash(*_parts(element, kind.elementType)))
    elif isinstance(kind, MapType):
        yield F.size(value)
        yield F.sort_array(
            F.transform(
                F.map_entries(value),
                lambda entry: _hash(
                    *_parts(entry["key"], kind.keyType), *_parts(entry["value"], kind.valueType)
                ),
            )
        )
    else:
        yield value.cast(kind)


def _hash(*parts: Column) -> Column:
    return F.xxhash64(*parts)


def column(spark: SparkSession, text: str) -> Column:
    """Return the column that an expression is, with a name for it or without one."""
    return column_of(spark, _parser(spark).parseExpression(text))


def project(rows: DataFrame, *texts: str) -> DataFrame:
    spark = rows.sparkSession
    chosen = _parser(spark).parsePlan(f"SELECT {', '.join(texts)}").projectList()
    below: Any = rows._jdf  # noqa: SLF001
    plans = jvm.java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.Project")
    return jvm.frame_of(spark, plans(chosen, below.logicalPlan()), below.sparkSession())


def run(spark: SparkSession, statement: str) -> DataFrame:
    """Run a statement, as `spark.sql`; a query is lazy."""
    return jvm.frame_of(spark, _parser(spark).parsePlan(statement))


def is_of_spark(spark: SparkSession, statement: str) -> bool:
    """Tell whether Spark's own grammar has a statement, which is not run."""
    parser = jvm.java_class(spark, "org.apache.spark.sql.execution.SparkSqlParser")()
    jvm.activate(spark)
    try:
        return parser.parsePlan(statement) is not None
    except ParseException:
        return False


def _parser(spark: SparkSession) -> Any:  # noqa: ANN401
    parser = jvm.once(spark, "parser", jvm.java_class(spark, _PARSER))
    jvm.activate(spark)  # a parser takes the settings of the active session
    return parser
