"""Deletes by key in Iceberg tables: reading through them, and writing them, against Iceberg's own.

Iceberg for Spark writes no equality deletes, so a DELETE of the same rows is the peer for writing.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import delvec
from benchmarks.delta import session
from benchmarks.runner import Contest, Peer, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec import IcebergTable

READ_AT_MOST = 0.5
COLUMNS_AT_MOST = 0.6  # most of the time is the scan's, which is the same
ROWS = 20_000_000
DELETES = 20
KEYS = 1_000_000
MANY = 10_000_000
ROUNDS = 3

_numbers = count()


def new_table() -> IcebergTable:
    """Return a table of 20 M rows in 8 files, whose DELETE writes vectors."""
    spark = session()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    name = f"lake.bench.keys{next(_numbers)}"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, a BIGINT, b DOUBLE, c STRING, d INT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    rows = spark.range(0, ROWS, 1, 8).selectExpr(
        "id", "id * 7 AS a", "rand(1) AS b", "concat('name-', id % 1000) AS c", "int(id % 100) AS d"
    )
    rows.writeTo(name).append()
    return delvec.IcebergTable.for_name(spark, name)


@cache
def with_deletes() -> IcebergTable:
    """Return a table with 20 equality-delete files of 50,000 random keys each."""
    table = new_table()
    keys = np.random.default_rng(1).permutation(ROWS)[:KEYS]
    for some in np.array_split(keys, DELETES):
        table.delete_keys(some, "id")
    return table


def read_contest(
    rows: Callable[[], object], stock: Callable[[], object], at_most: float
) -> Contest:
    def agree(ours: object, theirs: object) -> None:
        assert ours == theirs, (ours, theirs)

    peer = Peer("Iceberg", stock, at_most)
    return Contest(rows, [peer], agree, ROUNDS, warm_ups=1)


@benchmark("iceberg-read-20-equality-deletes")
def read_sums() -> Contest:
    table, spark = with_deletes(), session()
    sums = ("count(*)", "sum(id)", "sum(a)", "sum(d)")
    return read_contest(
        lambda: table.to_df().selectExpr(*sums).collect(),
        lambda: spark.table(table.name).selectExpr(*sums).collect(),
        READ_AT_MOST,
    )


@benchmark("iceberg-read-20-equality-deletes-all-columns")
def read_columns() -> Contest:
    table, spark = with_deletes(), session()
    return read_contest(
        lambda: table.to_df().write.format("noop").mode("overwrite").save(),
        lambda: spark.table(table.name).write.format("noop").mode("overwrite").save(),
        COLUMNS_AT_MOST,
    )


def delete_contest(keys: int) -> Contest:
    """Delete so many keys by equality deletes, and the same rows by Spark's DELETE."""
    spark = session()
    ours_table, stock_table = new_table(), new_table()
    start = {table.name: table.detail().snapshot_id for table in (ours_table, stock_table)}
    random = np.random.default_rng(2)
    chosen = random.permutation(ROWS)[:keys]
    rows = spark.createDataFrame(pa.table({"id": chosen}))
    rows.coalesce(2).write.mode("overwrite").saveAsTable("bench_keys")

    def prepare() -> None:
        for table in (ours_table, stock_table):
            if table.detail().snapshot_id != start[table.name]:
                table.rollback(snapshot_id=start[table.name])

    def stock() -> None:
        spark.sql(f"DELETE FROM {stock_table.name} WHERE id IN (SELECT id FROM bench_keys)")  # noqa: S608

    def agree(*_: object) -> None:
        counts = [spark.table(table.name).count() for table in (ours_table, stock_table)]
        assert counts == [ROWS - keys] * 2, counts

    peer = Peer("Iceberg's DELETE", stock)
    ours = lambda: ours_table.delete_keys(chosen, "id")  # noqa: E731
    return Contest(ours, [peer], agree, ROUNDS, prepare, warm_ups=1)


@benchmark("iceberg-delete-10-keys")
def delete_few() -> Contest:
    return delete_contest(10)


@benchmark("iceberg-delete-10m-keys")
def delete_many() -> Contest:
    return delete_contest(MANY)
