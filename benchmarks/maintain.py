"""Maintenance of Delta tables, against delta-spark: the same files to rewrite, the same rows after.

Each side has a copy of its own of one table, made again before each round.
"""

from __future__ import annotations

import shutil
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import delvec
from benchmarks.delta import MILLION, clean, folder, session, written
from benchmarks.runner import Contest, Peer, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

# Goal: ratio to delta-spark's time.
DELTA_AT_MOST: Final = 1.0
ROUNDS: Final = 3
TARGET: Final = 256 << 20
SUMS: Final = ("count(*)", "sum(id)", "sum(k)", "sum(hash(*))")


@cache
def many_files() -> str:
    """Create 20 million rows in 200 files, without vectors."""
    return clean("many-files", 20 * MILLION, 200)


@cache
def with_vectors() -> str:
    """Create 20 million rows in 8 files, each of which lacks 1 %."""
    return written("with-vectors", 20 * MILLION, 8)


def copies(source: str) -> dict[str, str]:
    return {side: str(folder() / f"{Path(source).name}-{side}") for side in ("ours", "theirs")}


def made_anew(source: str) -> None:
    for path in copies(source).values():
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, path)


def contest(source: str, statement: str, act: Callable[[delvec.DeltaTable], Any]) -> Contest:
    """Let both rewrite the files of their copies."""
    spark, paths = session(), copies(source)

    def theirs() -> None:
        spark.sql(statement.format(f"delta.`{paths['theirs']}`")).collect()

    def ours() -> None:
        act(delvec.DeltaTable.for_path(spark, paths["ours"]))

    def agree(*_: object) -> None:
        found = [
            spark.read.format("delta").load(path).selectExpr(*SUMS).collect()
            for path in (source, *paths.values())
        ]
        assert found[0] == found[1] == found[2], found
        details = [delvec.DeltaTable.for_path(None, path).detail() for path in paths.values()]
        assert [each.files_with_vectors for each in details] == [0, 0], details

    peer = Peer("delta-spark", theirs, DELTA_AT_MOST)
    return Contest(ours, [peer], agree, ROUNDS, partial(made_anew, source), warm_ups=1)


@benchmark("optimize-small-files")
def optimize_small_files() -> Contest:
    # The same target for both: with its own, of 1 GiB, delta-spark would use one core of two.
    session().conf.set("spark.databricks.delta.optimize.maxFileSize", str(TARGET))
    return contest(
        many_files(), "OPTIMIZE {}", lambda table: table.optimize(target_file_size=TARGET)
    )


@benchmark("purge")
def purge() -> Contest:
    return contest(with_vectors(), "REORG TABLE {} APPLY (PURGE)", lambda table: table.purge())


@benchmark("optimize-zorder")
def optimize_zorder() -> Contest:
    session().conf.set("spark.databricks.delta.optimize.maxFileSize", str(TARGET))
    return contest(
        many_files(),
        "OPTIMIZE {} ZORDER BY (k, v)",
        lambda table: table.optimize(zorder_by=["k", "v"], target_file_size=TARGET),
    )
