"""Files with vectors read by Python tasks, for versions whose vectors the driver cannot hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions

from delvec.datasource import DelvecDataSource
from delvec.errors import UnsupportedFeatureError
from delvec.identifiers import quote
from delvec.spark.session.data_source import register
from delvec.storage.listed_files import full_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.log.snapshot import Snapshot
    from delvec.spark.delta.scan.file_index import Part
    from delvec.spark.delta.scan.scan import Added

__all__ = ["by_tasks"]

_FILE, _NUMBER = "__delvec_file", "__delvec_number"


def by_tasks(
    spark: SparkSession,
    snapshot: Snapshot,
    columns: Sequence[str],
    added: Mapping[str, Added],
    part: Part,
) -> DataFrame:
    """Read those files of a version that have vectors; each task loads the vectors of its own.

    Args:
        spark: The session.
        snapshot: The version.
        columns: The columns to give, in that order, the added ones included.
        added: Which of them are no columns of the table, and what they hold.
        part: The files that are meant, numbered.
    """
    register(spark)
    options = {f"storage.{key}": value for key, value in snapshot.storage.options.items()}
    options |= {
        "versionAsOf": str(snapshot.version),
        "timeZone": spark.conf.get("spark.sql.session.timeZone") or "UTC",
        "splitBytes": str(_split_bytes(spark, snapshot)),
        "_files": "vectored",
    }
    source = {"file": "_file", "position": "_pos", "number": "_file"}
    own = [name for name in columns if name not in added]
    is_chosen = len(part.files) < int(snapshot.files.has_vector.sum())
    needed = {source[kind] for kind in added.values()} | ({"_file"} if is_chosen else set())
    taken = needed & set(snapshot.metadata.schema.names)
    if taken:  # the source would give these, and no row would find its file
        raise UnsupportedFeatureError(
            f"{snapshot.table} has a column {taken.pop()}, and vectors that take more memory than"
            " the driver is allowed",
            feature="columns _file and _pos",
            needed_by=snapshot.table,
            hint="raise spark.delvec.scan.vectorMemory, or rename the column",
        )
    options["columns"] = json.dumps([*own, *sorted(needed)])
    rows = spark.read.format(DelvecDataSource.name()).options(**options).load(snapshot.table)
    if is_chosen or "number" in added.values():
        rows = _numbered(spark, rows, snapshot, part)
    name_of = source | {"number": _NUMBER}
    return rows.select(
        *(
            functions.col(quote(name_of[added[name]])).alias(name)
            if name in added
            else functions.col(quote(name))
            for name in columns
        )
    )


def _numbered(spark: SparkSession, rows: DataFrame, snapshot: Snapshot, part: Part) -> DataFrame:
    """Add the number of each row's file; rows of files that are not meant are left out."""
    names = [full_name(snapshot.table, path) for path in part.files.paths.to_pylist()]
    table = pa.table({_FILE: names, _NUMBER: pa.array(part.numbers, pa.int64())})
    numbers = functions.broadcast(spark.createDataFrame(table))
    return rows.join(numbers, rows["_file"] == numbers[_FILE])


def _split_bytes(spark: SparkSession, snapshot: Snapshot) -> int:
    """Give each core something to do, and no task too much: Spark's own rule."""
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001
    limit, open_cost = int(conf.filesMaxPartitionBytes()), int(conf.filesOpenCostInBytes())
    files = snapshot.files
    total = int((files.sizes + open_cost)[files.has_vector].sum())
    share = total // max(1, spark.sparkContext.defaultParallelism)
    return min(limit, max(open_cost, share))
