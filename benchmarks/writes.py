"""Delta writes: DELETE, UPDATE and MERGE against delta-spark, and vectors against rewriting files.

Every run changes a copy of its own, made of hard links and opened before the clock starts.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import delvec
from benchmarks.delta import MILLION, folder, session
from benchmarks.runner import Contest, Peer, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

# The goal: at least 2.5 times as fast as delta-spark.
AT_MOST = 0.4
ROUNDS = 3
ROWS = 20 * MILLION
SCATTERED = "pmod(hash(id), 100) = 0"

_numbers = count()


def made(name: str, rows: int, files: int) -> Path:
    path = folder() / name
    spark = session()
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, k BIGINT, v DOUBLE, s STRING, i INT)"
        " USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.range(0, rows, 1, files).selectExpr(
        "id",
        "id % 1000 k",
        "rand(1) * 1000 v",
        "cast(id * 7919 % 100000 as string) s",
        "cast(id % 77 as int) i",
    ).write.format("delta").mode("append").save(str(path))
    return path


@cache
def large() -> Path:
    return made("writes", ROWS, 8)


@cache
def thousand_files() -> Path:
    return made("thousand", MILLION, 1000)


def copied(path: Path) -> str:
    target = folder() / f"copy-{next(_numbers)}"
    subprocess.run(["cp", "-al", str(path), str(target)], check=True)
    return str(target)


def objects(path: str) -> int:
    return sum(
        1 for each in Path(path).rglob("*") if each.is_file() and not each.name.endswith(".crc")
    )


@cache
def source() -> DataFrame:
    """150,000 rows: every 200th id of the table, and half as many that it does not have."""
    spark = session()
    old = spark.range(100_000).selectExpr("id * 200 id")
    new = spark.range(50_000).selectExpr(f"{ROWS} + id id")
    rows = old.union(new).selectExpr(
        "id", "id % 1000 k", "cast(-1 as double) v", "'merged' s", "cast(id % 77 as int) i"
    )
    path = str(folder() / "source")
    rows.coalesce(2).write.parquet(path)
    return spark.read.parquet(path)


OURS: dict[str, Callable[[Any], object]] = {
    "delete-1%-scattered": lambda t: t.delete(SCATTERED),
    "delete-one-row": lambda t: t.delete("id = 12345678"),
    "delete-10%-range": lambda t: t.delete("id between 5100000 and 7099999"),
    "update-1%": lambda t: t.update({"v": "v + 1"}, where=SCATTERED),
    "merge-150k": lambda t: (
        t.merge(source(), on="t.id = s.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
}
THEIRS: dict[str, Callable[[str], object]] = {
    "delete-1%-scattered": lambda p: sql(f"DELETE FROM delta.`{p}` WHERE {SCATTERED}"),
    "delete-one-row": lambda p: sql(f"DELETE FROM delta.`{p}` WHERE id = 12345678"),
    "delete-10%-range": lambda p: sql(
        f"DELETE FROM delta.`{p}` WHERE id between 5100000 and 7099999"
    ),
    "update-1%": lambda p: sql(f"UPDATE delta.`{p}` SET v = v + 1 WHERE {SCATTERED}"),
    "merge-150k": lambda p: sql(
        f"MERGE INTO delta.`{p}` t USING source s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
}


def sql(text: str) -> object:
    return session().sql(text).collect()


def contest(
    path: Path, ours: Callable[[Any], object], theirs: Callable[[str], object], rounds: int
) -> Contest:
    spark = session()
    before = objects(str(path))
    mine: list[Any] = []
    other: list[str] = []

    def prepare() -> None:
        for each in (*(table.storage.root for table in mine), *other):
            shutil.rmtree(each)
        mine[:] = [delvec.DeltaTable.for_path(spark, copied(path))]
        len(mine[0].snapshot().files)
        other[:] = [copied(path)]
        sql(f"SELECT count(*) FROM delta.`{other[0]}`")

    def agree(*_: object) -> None:
        paths = [mine[0].storage.root, other[0]]
        sums = [
            spark.read.format("delta")
            .load(each)
            .selectExpr("count(*)", "sum(id)", "round(sum(v))", "sum(hash(s))")
            .collect()
            for each in paths
        ]
        assert sums[0] == sums[1], sums
        written = [objects(each) - before for each in paths]
        assert written[0] <= written[1], f"{written[0]} objects written, delta-spark {written[1]}"

    return Contest(
        lambda: ours(mine[0]),
        [Peer("delta-spark 4.4", lambda: theirs(other[0]), AT_MOST)],
        agree,
        rounds,
        prepare,
    )


def named(name: str) -> Contest:
    session().conf.set("spark.sql.autoBroadcastJoinThreshold", "64m")
    source().createOrReplaceTempView("source")
    return contest(large(), OURS[name], THEIRS[name], ROUNDS)


for _name in OURS:
    benchmark(f"delta-write/20M-rows/{_name}")(lambda name=_name: named(name))  # type: ignore[misc]


@benchmark("delta-write/1000-files/100-small-deletes")
def small_deletes() -> Contest:
    ids = [random.Random(1).randrange(MILLION) for _ in range(100)]

    def ours(table: Any) -> None:
        for each in ids:
            table.delete(f"id = {each}")

    def theirs(path: str) -> None:
        for each in ids:
            sql(f"DELETE FROM delta.`{path}` WHERE id = {each}")

    return contest(thousand_files(), ours, theirs, 1)
