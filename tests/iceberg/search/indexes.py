"""What the tests of the index ask of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import plan_snapshot
from delvec.iceberg.client.files import from_content_file, snapshot_table
from delvec.iceberg.deletes.key_columns import add_dropped_key_columns
from delvec.iceberg.deletes.key_filter import ScopedDelete
from delvec.iceberg.search.finder import find_by_index
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import KeyIndex, entries_of, file_hash, open_index, wanted_key
from delvec.iceberg.search.search import FILE, KEY_HASH, PLACE, Search, find_by_join
from tests.iceberg.deletes.tables import loaded


def head_of(table: LoadedTable, branch: str = "main") -> int:
    head = table.metadata.head(branch)
    assert head is not None
    return head.id


def search_of(spark: SparkSession, name: str, branch: str = "main") -> Search:
    """The equality deletes of a branch, all of the same key columns, and where they apply."""
    table = loaded(spark, name)
    snapshot_id = head_of(table, branch)
    files = plan_snapshot(table, snapshot_id, table.metadata.schema)
    deletes = tuple(
        ScopedDelete(from_content_file(text, number), scope)
        for number, scope, text in files.deletes
    )
    ids = deletes[0].file.equality_ids
    schema = add_dropped_key_columns(table.metadata, table.metadata.schema, ids, name)
    return Search(table, snapshot_id, schema, files, deletes)


def places(rows: DataFrame) -> list[tuple[Any, ...]]:
    """The different rows that were found, in order."""
    return sorted({tuple(row) for row in rows.select(FILE, PLACE, KEY_HASH).collect()})


def found_by_both(search: Search, index: KeyIndex) -> int:
    """How many rows are found, by the index and by the join alike."""
    found = places(find_by_index(search, index))
    assert found == places(find_by_join(search))
    return len(found)


@dataclass(frozen=True)
class IndexDifference:
    """What an index has of the data files of a snapshot."""

    files: int  # data files that it does not have; they are searched without it
    missing: int  # rows of others that it lacks: deletes of these would be lost
    wrong: int  # rows that it has of these files and that they do not have: looked at in vain


def compare_index(table: LoadedTable, snapshot_id: int, index: KeyIndex) -> IndexDifference:
    """Compare an index with a build of it."""
    columns = ["hash", "file", "pos"]
    _, schema = wanted_key(table, index.key.ids)
    with translate_errors(str(table.name)):
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


RIGHT = IndexDifference(0, 0, 0)


def updated(
    spark: SparkSession, name: str, ids: Sequence[int] = (1,), branch: str = "main"
) -> KeyIndex:
    table = loaded(spark, name)
    return update_index(table, head_of(table, branch), ids)


def opened(spark: SparkSession, name: str, ids: Sequence[int] = (1,)) -> KeyIndex:
    found = open_index(loaded(spark, name), ids)
    assert found is not None
    return found


def difference(spark: SparkSession, name: str, branch: str = "main") -> IndexDifference:
    table = loaded(spark, name)
    return compare_index(table, head_of(table, branch), opened(spark, name))


def append(spark: SparkSession, name: str, start: int, stop: int, *columns: str) -> None:
    shown = columns or ("id", "CAST(id AS INT) AS n", "CAST(id AS STRING) AS s")
    spark.range(start, stop, 1, 1).selectExpr(*shown).writeTo(name).append()
