"""SHOW PARTITIONS of a Delta table: the values of its partition columns, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.types import table_schema
from delvec.statements.commands import Rows, command
from delvec.statements.known_tables import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.spark.jvm import Java


def shown(spark: SparkSession, plan: Java) -> Java | None:
    """Return the command for SHOW PARTITIONS of a Delta table; None if it is of another."""
    found = table_of(spark, [str(each) for each in jvm.items(plan.table().multipartIdentifier())])
    if found is None:
        return None
    metadata = found.snapshot.metadata
    if not metadata.partition_columns:
        raise InvalidArgumentError(
            f"{found.name} has no partitions", hint="DESCRIBE TABLE names a table's columns"
        )
    columns = table_schema(metadata.partition_fields)
    pattern = plan.pattern()
    given = jvm.items(pattern.get().spec()) if pattern.isDefined() else ()
    values = {str(each._1()): each._2() for each in given}  # noqa: SLF001

    def carry_out() -> Rows:
        rows = found.table.to_df().select(*map(quote, metadata.partition_columns))
        for name, value in values.items():
            rows = rows.where(functions.col(quote(name)) == functions.lit(value))
        return [tuple(row) for row in rows.distinct().collect()]

    return command(spark, f"SHOW PARTITIONS {found.name}", columns, carry_out)
