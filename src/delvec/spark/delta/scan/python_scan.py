"""Files with vectors read by Python tasks, for versions whose vectors the driver cannot hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql import functions

from delvec.datasource import DelvecDataSource
from delvec.datasource.options import ALLOWED, FOLLOWS
from delvec.delta.read.load_vectors import admit_files
from delvec.errors import UnsupportedFeatureError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.session.data_source import register
from delvec.storage.listed_files import full_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.log.snapshot import Snapshot
    from delvec.spark.delta.scan.vector_bits import ScanPart

__all__ = ["Added", "by_tasks"]

# What a scan can add to the columns of a table: the number, the position, the full name of the
# file.
Added = Literal["number", "position", "file"]

_FILE, _NUMBER = "__delvec_file", "__delvec_number"


def by_tasks(
    spark: SparkSession,
    snapshot: Snapshot,
    columns: Sequence[str],
    added: Mapping[str, Added],
    part: ScanPart,
    *,
    follows: bool = False,
) -> DataFrame:
    """Return the rows of files with vectors; lazy. Each task loads the vectors of its own files.

    Args:
        spark: The session.
        snapshot: The version.
        columns: The columns to read, in order, added ones included.
        added: Those of them that are not columns of the table, and what they hold.
        part: The files, all of them with a vector.
        follows: See `scan`.
    """
    register(spark)
    storage = snapshot.storage
    # Here, where the session's Hadoop settings are known: tasks get what they need of them.
    admit_files(storage, part.files)
    options = {f"storage.{key}": value for key, value in storage.options.items()}
    if storage.fence is not None:
        options[ALLOWED] = storage.fence.text
    options |= {
        "versionAsOf": str(snapshot.version),
        "timeZone": spark.conf.get("spark.sql.session.timeZone") or "UTC",
        "splitBytes": str(_split_bytes(spark, snapshot)),
        "_files": "vectored",
        FOLLOWS: str(follows).lower(),
    }
    source = {"file": "_file", "position": "_pos", "number": "_file"}
    own = [name for name in columns if name not in added]
    is_subset = len(part.files) < int(snapshot.files.has_vector.sum())
    needed = {source[kind] for kind in added.values()} | ({"_file"} if is_subset else set())
    taken = needed & set(snapshot.metadata.schema.names)
    if taken:  # the data source would read these instead
        raise UnsupportedFeatureError(
            f"{snapshot.table} has a column {taken.pop()}, and vectors that take more memory than"
            " the driver is allowed",
            feature="columns _file and _pos",
            needed_by=snapshot.table,
            hint="raise spark.delvec.scan.vectorMemory, or rename the column",
        )
    options["columns"] = json.dumps([*own, *sorted(needed)])
    rows = spark.read.format(DelvecDataSource.name()).options(**options).load(snapshot.table)
    if is_subset or "number" in added.values():
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


def _numbered(
    spark: SparkSession, rows: DataFrame, snapshot: Snapshot, part: ScanPart
) -> DataFrame:
    """Add the number of each row's file; drop the rows of files that are not in the part."""
    names = [full_name(snapshot.table, path) for path in part.files.paths.to_pylist()]
    table = pa.table({_FILE: names, _NUMBER: pa.array(part.numbers, pa.int64())})
    numbers = functions.broadcast(spark.createDataFrame(table))
    return rows.join(numbers, rows["_file"] == numbers[_FILE])


def _split_bytes(spark: SparkSession, snapshot: Snapshot) -> int:
    """Return the bytes of a task, by Spark's own rule: work for each core, up to a limit."""
    conf = jvm.session_of(spark).sessionState().conf()
    limit, open_cost = int(conf.filesMaxPartitionBytes()), int(conf.filesOpenCostInBytes())
    files = snapshot.files
    total = int((files.sizes + open_cost)[files.has_vector].sum())
    share = total // max(1, spark.sparkContext.defaultParallelism)
    return min(limit, max(open_cost, share))
