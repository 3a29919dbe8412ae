"""In which form deletion vectors reach the filter of a scan.

constant   as a hidden constant column of its file, loaded when the query is planned and only
for files that it reads
join       by a broadcast join on the number of the file: where Spark reads by rows it would
copy the constant for every row
tasks      not at all: Python tasks read these files and their vectors, where all vectors
together may take more than `spark.delvec.scan.vectorMemory` on the driver
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from delvec.delta.schema.types import StructType
from delvec.spark.conf import bytes_setting
from delvec.spark.types import leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.schema.types import Field
    from delvec.spark.delta.scan.vector_bits import ScanPart

__all__ = ["VECTOR_MEMORY", "VectorForm", "choose_form"]

VectorForm = Literal["constant", "join", "tasks"]

VECTOR_MEMORY: Final = "spark.delvec.scan.vectorMemory"
# Half of the default of spark.rpc.message.maxSize, the limit of a task's message.
_TASK_BYTES: Final = 64 << 20


def choose_form(
    spark: SparkSession, part: ScanPart, fields: Sequence[Field], added: int
) -> VectorForm:
    """Return the form of the vectors of some files, by the rows that the log says they have.

    Args:
        spark: A classic session.
        part: The files, at least one. Vectors in memory never go to tasks.
        fields: The columns of the table that are read.
        added: How many more columns are read.
    """
    total = part.files.bitmap_bytes().sum()
    if total > bytes_setting(spark, VECTOR_MEMORY, "256m") and not part.vectors:
        return "tasks"
    if _reads_by_rows(spark, fields, added):
        return "join"
    if _heaviest_task(spark, part.files) <= _TASK_BYTES:
        return "constant"
    return "join" if part.vectors else "tasks"


def _heaviest_task(spark: SparkSession, files: FileSet) -> float:
    """Return the most bytes of vectors that the message of one task may have to carry."""
    partition = bytes_setting(spark, "spark.sql.files.maxPartitionBytes")
    open_cost = bytes_setting(spark, "spark.sql.files.openCostInBytes")
    bits = files.bitmap_bytes()
    density = bits / np.maximum(files.sizes, max(open_cost, 1))
    return float(max(bits.max(), density.max() * partition))


def _reads_by_rows(spark: SparkSession, fields: Sequence[Field], added: int) -> bool:
    """Whether Spark may turn columns into rows before it filters."""
    conf = spark.conf
    count = leaves(StructType(tuple(fields))) + added + 2
    nested = any(leaves(field.type) > 1 or hasattr(field.type, "element") for field in fields)
    return (
        conf.get("spark.sql.parquet.enableVectorizedReader") != "true"
        or conf.get("spark.sql.codegen.wholeStage") != "true"
        or count > int(conf.get("spark.sql.codegen.maxFields") or 100)
        or (nested and conf.get("spark.sql.parquet.enableNestedColumnVectorizedReader") != "true")
    )
