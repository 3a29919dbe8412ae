"""Comparing an index with what a build of it would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import snapshot_table
from delvec.iceberg.search.index_rows import entries_of, file_hash
from delvec.iceberg.search.key_index import wanted_key

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.search.key_index import KeyIndex

__all__ = ["IndexDifference", "compare_index"]


@dataclass(frozen=True)
class IndexDifference:
    """What an index has of the data files of a snapshot.

    Attributes:
        files: Data files that it does not have; they are searched without it.
        missing: Rows of others that it lacks: deletes of these would be lost.
        wrong: Rows that it has of these files and that they do not have: looked at in vain.
    """

    files: int
    missing: int
    wrong: int


def compare_index(table: LoadedTable, snapshot_id: int, index: KeyIndex) -> IndexDifference:
    """Compare an index with a build of it; all their rows are shuffled.

    The driver holds the paths of the snapshot's data files.

    Args:
        table: The table.
        snapshot_id: A snapshot of it; files that it does not have are left out.
        index: An index of the table.
    """
    columns = ["hash", "file", "pos"]
    _, schema = wanted_key(table, index.key.ids)
    with explained(str(table.name)):
        live = snapshot_table(table, "data_files", snapshot_id).select(
            F.col("file_path").alias("path")
        )
        marks = index.indexed_paths().withColumn("indexed", F.lit(1))
        files = live.distinct().join(marks, "path", "left").toArrow()
        is_indexed = pc.is_valid(files.column("indexed"))
        paths = files.filter(is_indexed).select(["path"])
        hashes = table.spark.createDataFrame(paths).select(
            file_hash("path", index.key).alias("file")
        )
        built = entries_of(table, snapshot_id, schema, index.key, None).select(*columns)
        known = index.entries().where("pos >= 0").select(*columns)
        both = built.withColumn("side", F.lit(1)).unionAll(known.withColumn("side", F.lit(2)))
        sides = (
            both.join(F.broadcast(hashes.distinct()), "file", "left_semi")
            .groupBy(*columns)
            .agg(F.min("side").alias("lowest"), F.max("side").alias("highest"))
            .groupBy("lowest", "highest")
            .count()
        )
        counts = {(row[0], row[1]): row[2] for row in sides.collect()}
    missing, wrong = counts.get((1, 1), 0), counts.get((2, 2), 0)
    return IndexDifference(files.num_rows - paths.num_rows, missing, wrong)
