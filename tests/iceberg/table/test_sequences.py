"""Which rows a change applies to, earlier ones alone, and changes of a stream once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import IcebergTable
from delvec.errors import InvalidArgumentError
from tests.iceberg.table.mirror import ENABLED, Mirror, found, stock
from tests.repository import ROOT

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, part string, n int"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rest", "partition", "rows"),
    [
        ("PARTITIONED BY (bucket(2, id))", {"id_bucket": 0}, None),
        ("PARTITIONED BY (truncate(1, part))", {"part_trunc": "a"}, ["a", "az"]),
    ],
)
def test_one_partition_of_a_transform(
    spark: SparkSession, rest: str, partition: dict[str, object], rows: list[str] | None
) -> None:
    mirror = Mirror.new(spark, COLUMNS, rest)
    mirror.append([(id_, part, 0) for id_ in range(4) for part in ("a", "az", "b")])
    files = mirror.table.files().where("content = 'data'").toArrow().to_pylist()
    assert {key for each in files for key, _ in each["partition"]} == set(partition)
    if rows is None:
        buckets = spark.sql("SELECT id, lake.system.bucket(2, id) AS b FROM range(4)").collect()
        zero = {each["id"] for each in buckets if each["b"] == 0}
        gone = zero & {0, 1, 2, 3}
        mirror.table.delete_keys([0, 1, 2, 3], "id", partition=partition)
        mirror.drop(lambda row: row[0] in gone)
    else:
        mirror.table.delete_keys([1], "id", partition=partition)
        mirror.drop(lambda row: row[0] == 1 and row[1] in rows)
    mirror.check()


class TestBatches:
    """Batches of changes in which a key is more than once."""

    @pytest.fixture(scope="class")
    @classmethod
    def mirror(cls, spark: SparkSession) -> Mirror:
        mirror = Mirror.new(spark, COLUMNS)
        mirror.append([(1, "a", 0), (2, "a", 0), (None, "a", 0)])
        return mirror

    def branch(self, mirror: Mirror, name: str) -> str:
        mirror.create_branch(name)
        return name

    def apply(
        self,
        mirror: Mirror,
        changes: list[tuple[Any, ...]],
        more: str = ", op string",
        **options: object,
    ) -> Any:  # noqa: ANN401
        frame = mirror.frame(changes, more).coalesce(1)
        given: Any = {"delete_where": "op = 'D'", **options}
        return mirror.table.upsert(frame, "id", **given)

    @pytest.mark.more
    def test_a_key_twice_is_refused(self, mirror: Mirror) -> None:
        before = mirror.table.history().count()
        for changes in (
            [(1, "a", 1, "U"), (1, "b", 2, "U")],
            [(5, "a", 1, "U"), (5, "a", 1, "D")],
            [(None, "a", 1, "U"), (None, "b", 2, "U")],
        ):
            with pytest.raises(InvalidArgumentError, match="has 2 changes of the key id="):
                self.apply(mirror, changes)
        assert mirror.table.history().count() == before
        mirror.check("main")

    def test_the_last_of_a_key_counts(self, mirror: Mirror) -> None:
        branch = self.branch(mirror, "last")
        changes = [
            (1, "a", 1, "U"),
            (2, "a", 1, "D"),
            (1, "b", 2, "U"),
            (2, "c", 3, "U"),
            (3, "a", 1, "U"),
            (3, "a", 1, "D"),
            (None, "x", 1, "U"),
            (None, "y", 2, "U"),
        ]
        report = self.apply(mirror, changes, duplicates="last", branch=branch)
        assert (report.duplicates, report.keys, report.null_keys) == (4, 4, 1)
        mirror.branches[branch] = [(1, "b", 2), (2, "c", 3), (None, "y", 2)]
        mirror.check(branch)

    @pytest.mark.more
    def test_the_last_by_an_order_counts(self, mirror: Mirror) -> None:
        branch = self.branch(mirror, "ordered")
        changes = [
            (1, "late", 1, "U", 20),
            (1, "early", 2, "D", 10),
            (2, "a", 1, "U", None),
            (2, "b", 2, "D", 5),
            (4, "only", 1, "U", None),
        ]
        more = ", op string, at int"
        self.apply(mirror, changes, more, duplicates="last", order_by="at", branch=branch)
        mirror.branches[branch] = [(1, "late", 1), (4, "only", 1), (None, "a", 0)]
        mirror.check(branch)

    @pytest.mark.slow
    def test_a_batch_of_deletes_or_of_nothing(self, mirror: Mirror) -> None:
        branch = self.branch(mirror, "deletes")
        report = self.apply(mirror, [(1, "", 0, "D"), (None, "", 0, "D")], branch=branch)
        assert (report.rows_added, report.keys) == (0, 2)
        mirror.branches[branch] = [(2, "a", 0)]
        assert self.apply(mirror, [], branch=branch).snapshot_id is None
        # What is neither true nor false is no delete.
        self.apply(mirror, [(7, "a", 1, None)], branch=branch)
        mirror.branches[branch].append((7, "a", 1))
        mirror.check(branch)

    def test_a_transaction_is_applied_once(self, mirror: Mirror) -> None:
        branch = self.branch(mirror, "txn")
        for version, again in ((1, False), (1, True), (3, False), (2, True), (3, True)):
            report = self.apply(
                mirror,
                [(100 + version, "a", version, "U"), (1, "v", version, "U")],
                branch=branch,
                txn_app_id="stream",
                txn_version=version,
            )
            assert report.replayed is again, version
        # Another application, and another branch, count for themselves.
        for options in (
            {"txn_app_id": "other", "branch": branch},
            {"txn_app_id": "stream", "branch": "txn2"},
        ):
            report = self.apply(mirror, [(200, "a", 1, "U")], txn_version=1, **options)
            assert not report.replayed
        mirror.branches["txn2"] = [*mirror.branches["main"], (200, "a", 1)]
        mirror.branches[branch] = [
            (2, "a", 0),
            (None, "a", 0),
            (101, "a", 1),
            (103, "a", 3),
            (1, "v", 3),
            (200, "a", 1),
        ]
        mirror.check(branch, "txn2")


@pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_threads_that_write_at_once_lose_nothing(spark: SparkSession, count: int) -> None:
    mirror = Mirror.new(spark, COLUMNS, "PARTITIONED BY (part)", properties=ENABLED)
    mirror.append([(number, "a", 0) for number in range(40)])
    name, rounds = mirror.table.name, 2 if count == 2 else 3

    def work(writer: int) -> None:
        table = delvec.IcebergTable.for_name(spark, name)
        for turn in range(1, rounds + 1):
            mine = [(writer, str(turn % 2), turn), (100 * (writer + 1) + turn, "new", turn)]
            table.upsert(mirror.frame(mine), "id", txn_app_id=f"w{writer}", txn_version=turn)
            table.delete_keys([10 + writer * 3 + turn - 1], "id")

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))
    writers = range(count)
    gone = {10 + writer * 3 + turn for writer in writers for turn in range(rounds)} | set(writers)
    mirror.drop(lambda row: row[0] in gone)
    for writer in writers:
        mirror.branches["main"].append((writer, str(rounds % 2), rounds))
        turns = range(1, rounds + 1)
        mirror.branches["main"].extend((100 * (writer + 1) + turn, "new", turn) for turn in turns)
    mirror.check()
    assert mirror.table.history().count() == 1 + 2 * rounds * count


@pytest.mark.slow
def test_one_transaction_of_two_threads_is_applied_once(spark: SparkSession) -> None:
    mirror = Mirror.new(spark, COLUMNS)
    mirror.append([(1, "a", 0)])

    def work(_: int) -> bool:
        table = delvec.IcebergTable.for_name(spark, mirror.table.name)
        frame = mirror.frame([(1, "b", 1), (2, "b", 1)])
        return table.append(frame, txn_app_id="once", txn_version=7).replayed

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(work, range(2))) == [False, True]
    mirror.branches["main"] += [(1, "b", 1), (2, "b", 1)]
    mirror.check()
    assert found(stock(mirror.table)).total() == 3


CHANGES = f"{COLUMNS}, op string, at int"
APPLICATION = "orders"

Change = tuple[int, str, int, str, int]


def random_changes(numbers: random.Random, count: int, start: int = 0) -> list[Change]:
    return [
        (
            numbers.randrange(30),
            numbers.choice("abc"),
            numbers.randrange(1000),
            numbers.choice("UUUD"),
            start + place,
        )
        for place in range(count)
    ]


def write_changes(folder: Path, number: int, changes: Iterable[Change]) -> None:
    """Write a file of changes, which a stream sees all at once."""
    names = ("id", "part", "n", "op", "at")
    text = "".join(json.dumps(dict(zip(names, each, strict=True))) + "\n" for each in changes)
    hidden = folder.parent / f"{number}.tmp"
    hidden.write_text(text)
    written = 1_700_000_000 + number  # a stream takes files in the order of their times
    os.utime(hidden, (written, written))
    hidden.rename(folder / f"{number:05}.json")


def applied(mirror: Mirror, changes: Iterable[Change]) -> None:
    """Apply changes to the model, one after the other."""
    for id_, part, n, op, _ in changes:
        mirror.drop(lambda row, id_=id_: row[0] == id_)  # type: ignore[misc]
        if op != "D":
            mirror.branches["main"].append((id_, part, n))


def apply_to(table: IcebergTable, batch: DataFrame, number: int) -> Any:  # noqa: ANN401
    return table.upsert(
        batch,
        "id",
        delete_where="op = 'D'",
        duplicates="last",
        order_by="at",
        txn_app_id=APPLICATION,
        txn_version=number,
    )


def run_stream(table: IcebergTable, source: Path, checkpoint: Path) -> None:
    """Apply all files of changes that there are, one in each batch."""
    stream = (
        table.spark.readStream.schema(CHANGES)
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
        .writeStream.foreachBatch(lambda batch, number: apply_to(table, batch, number))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        stream.awaitTermination()
    finally:
        stream.stop()


@pytest.mark.slow
def test_a_killed_stream_applies_each_change_once(spark: SparkSession, tmp_path: Path) -> None:
    mirror = Mirror.new(spark, COLUMNS, "PARTITIONED BY (part)", properties=ENABLED)
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse") or ""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    seed = random.randrange(1 << 32)
    numbers = random.Random(seed)
    batches = 40
    for number in range(batches):
        changes = random_changes(numbers, 20, 100 * number)
        write_changes(source, number, changes)
        applied(mirror, changes)
    arguments = [warehouse, mirror.table.name, str(source), str(checkpoint)]
    command = [sys.executable, "-m", f"{__package__}.test_sequences", *arguments]
    kills = 0
    while kills < 6:
        done = mirror.table.history().count()
        with subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL
        ) as process:
            # Not while it starts: only when it has applied something more.
            while process.poll() is None and mirror.table.history().count() <= done:
                time.sleep(0.2)
            time.sleep(numbers.uniform(0, 3))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its JVM
                kills += 1
                process.wait()
            else:
                assert process.returncode == 0
                break
    assert kills, "the stream was done before it could be killed"
    finished = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    mirror.check()
    # Spark remembers a file before it plans the batch: killed between, it takes two in the next.
    planned = sum(each.name.isdecimal() for each in (checkpoint / "offsets").iterdir())
    assert batches - kills <= planned <= batches
    versions = mirror.table.history().count()
    assert versions == planned, (seed, kills, versions)


def main(warehouse: str, name: str, source: str, checkpoint: str) -> None:
    """Run the stream in a process of its own."""
    from pathlib import Path  # noqa: PLC0415

    import delvec  # noqa: PLC0415
    from tests.spark.jars import resolved_jars  # noqa: PLC0415

    spark = delvec.session(
        warehouse,
        master="local[2]",
        conf={"spark.jars": ",".join(resolved_jars()), "spark.ui.enabled": "false"},
    )
    run_stream(delvec.IcebergTable.for_name(spark, name), Path(source), Path(checkpoint))


if __name__ == "__main__":
    main(*sys.argv[1:])
