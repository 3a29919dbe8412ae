"""Commands of Spark that Python carries out when Spark runs them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from delvec.spark.jvm import Java

Rows: TypeAlias = list[tuple[Any, ...]]
_KEPT: Final = 1000
_NUMBERS: Final = count(1)
_pending: Final[OrderedDict[int, tuple[StructType, Callable[[], Rows]]]] = OrderedDict()


def run(spark: SparkSession, key: int) -> Java:
    """Carry out a statement and return its rows, as Spark's own."""
    schema, carry_out = _pending[key]
    rows = carry_out()
    if not rows:
        return jvm.to_seq(spark, [])
    made = spark.createDataFrame(rows, schema)._jdf.collectAsList()  # noqa: SLF001
    return jvm.to_seq(spark, list(made))


@dataclass(frozen=True, eq=False)
class Command:
    """A statement: the columns of its result, and what returns its rows."""

    title: str
    schema: StructType
    carry_out: Callable[[], Rows]

    def of_spark(self, spark: SparkSession) -> Java:
        """Return it as a command that Spark runs, and shows in EXPLAIN."""
        return command(spark, self.title, self.schema, self.carry_out)


def command(
    spark: SparkSession, title: str, schema: StructType, carry_out: Callable[[], Rows]
) -> Java:
    """Return a command of Spark that Python carries out."""
    key = next(_NUMBERS)
    _pending[key] = schema, carry_out
    while len(_pending) > _KEPT:
        _pending.popitem(last=False)
    types = jvm.java_class(spark, "org.apache.spark.sql.catalyst.types.DataTypeUtils")
    output = types.toAttributes(jvm.java_type(spark, schema))
    return jvm.java_class(spark, "delvec.sql.Statement")(title, output, key)
