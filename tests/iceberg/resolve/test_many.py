"""Many staged commits, and a pipeline as people run it: a stream, a service beside it, readers."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import delvec
from delvec import IcebergTable
from delvec.errors import LockedError
from tests.iceberg.deletes.tables import new_table
from tests.iceberg.resolve.following import DEADLINE, following, shared_catalog

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STAGING = "changes"
OTHER = "other"  # a second target of the same changes
COLUMNS = "id bigint, n int, s string"
SECONDS = float(os.environ.get("DELVEC_SOAK") or 90)
COMMITS = int(os.environ.get("DELVEC_STAGED_COMMITS") or 200)
ROWS = 1_000_000


def million(spark: SparkSession) -> IcebergTable:
    """A table of a million rows, in a few files."""
    table = delvec.IcebergTable.for_name(spark, new_table(spark))
    ids = spark.range(0, ROWS, 1, 4)
    table.append(ids.select("id", F.lit(0).alias("n"), F.concat(F.lit("s"), "id").alias("s")))
    table.create_branch(STAGING)
    return table


def stage(table: IcebergTable, model: dict[int, int], numbers: random.Random) -> None:
    """Commit random changes to the staging branch."""
    spark = table.spark
    for number in range(1, COMMITS + 1):
        # Mostly scattered; some keys again and again.
        ids = {*numbers.sample(range(ROWS + 1000), 20), *numbers.sample(range(50), 5)}
        if number % 4 == 0:
            table.delete_keys(sorted(ids), "id", branch=STAGING)
            for each in ids:
                model.pop(each, None)
            continue
        frame = spark.createDataFrame([(each, number, f"s{each}") for each in ids], COLUMNS)
        table.upsert(frame, "id", branch=STAGING)
        model |= dict.fromkeys(ids, number)


def digest(table: IcebergTable, branch: str) -> tuple[Any, ...]:
    """The number of rows and of keys, and a sum over all values, as stock Iceberg reads them."""
    found = stock(table, branch).selectExpr(
        "count(*)", "count(DISTINCT id)", "sum(cast(xxhash64(id, n, s) AS decimal(38)))"
    )
    return tuple(found.collect()[0])


def stock(table: IcebergTable, branch: str) -> DataFrame:
    table.spark.catalog.refreshTable(table.name)
    return table.spark.sql(f"SELECT * FROM {table.name} VERSION AS OF '{branch}'")


def test_two_hundred_staged_commits_in_one_go_and_one_by_one(spark: SparkSession) -> None:
    table = million(spark)
    table.create_branch(OTHER)
    seed = random.randrange(1 << 32)
    model = dict.fromkeys(range(ROWS), 0)
    stage(table, model, random.Random(seed))
    whole = table.resolve("id", staging=STAGING)
    single = table.resolve("id", staging=STAGING, target=OTHER, max_snapshots=1)
    assert (whole.commits, single.commits) == (1, COMMITS)
    assert whole.staged_snapshots == single.staged_snapshots == COMMITS
    assert digest(table, "main") == digest(table, OTHER), seed
    assert digest(table, "main")[:2] == (len(model), len(model)), seed
    changed = {key: n for key, n in model.items() if n}
    found = stock(table, "main").where("n > 0").select("id", "n").collect()
    assert dict(map(tuple, found)) == changed, seed
    for branch in ("main", OTHER):
        assert table.check(branch).ok


# The pipeline.

CHANGES = f"{COLUMNS}, op string, at int"


class Input:
    """Files of changes, and the rows that each prefix of them makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers = random.Random(uuid4().int)
        self.states: list[dict[int, int]] = [{}]

    def write(self) -> None:
        """Write a file, which a stream sees all at once."""
        number = len(self.states)
        state = dict(self.states[-1])
        lines = []
        for place in range(30):
            # Each file changes the row -1 as well: no two states are the same.
            id_ = -1 if place == 0 else self.numbers.randrange(200)
            op = "U" if place == 0 else self.numbers.choice("UUUD")
            n = number * 100 + place
            lines.append({"id": id_, "n": n, "s": f"s{id_}", "op": op, "at": place})
            state.pop(id_, None)
            if op == "U":
                state[id_] = n
        self.states.append(state)
        hidden = self.folder.parent / f"{number}.tmp"
        hidden.write_text("".join(json.dumps(line) + "\n" for line in lines))
        when = 1_700_000_000 + number  # a stream takes files in the order of their times
        os.utime(hidden, (when, when))
        hidden.rename(self.folder / f"{number:05}.json")

    def prefix(self, found: dict[int, int]) -> int:
        """Tell after how many files the rows are what was found."""
        assert found in self.states, found
        return self.states.index(found)


def read(table: IcebergTable) -> dict[int, int]:
    """The rows of the target, as stock Iceberg reads them; no key is there twice."""
    rows = table.spark.sql(f"SELECT id, n FROM {table.name}").collect()
    found = dict(map(tuple, rows))
    assert len(rows) == len(found)
    return found


def equality_deletes(table: IcebergTable) -> int:
    rows = table.spark.sql(f"SELECT content FROM {table.name}.delete_files WHERE content = 2")
    return rows.count()


class Reader(Thread):
    """Reads the target all the while; each time it is what some files make, and never older."""

    def __init__(self, table: IcebergTable, changes: Input) -> None:
        super().__init__()
        self.table, self.changes = table, changes
        self.prefixes = [0]
        self.failure: BaseException | None = None
        self.stopped = Event()

    def run(self) -> None:
        try:
            while not self.stopped.wait(0.5):
                prefix = self.changes.prefix(read(self.table))
                assert prefix >= self.prefixes[-1], "the target went back"
                self.prefixes.append(prefix)
                assert equality_deletes(self.table) == 0
        except BaseException as error:  # noqa: BLE001
            self.failure = error

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        self.stopped.set()
        self.join(DEADLINE)
        assert not self.is_alive()


def test_a_stream_a_service_and_readers(spark: SparkSession, tmp_path: Path) -> None:
    catalog, settings = shared_catalog(spark, tmp_path)
    name = f"{catalog}.db.t"
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING iceberg TBLPROPERTIES"
        " ('format-version' = '3', 'write.delete.equality-vector.enabled' = 'true')"
    )
    table = delvec.IcebergTable.for_name(spark, name)
    source = tmp_path / "source"
    source.mkdir()
    changes = Input(source)
    # A table without a snapshot has no branches: it begins with a row, which each file changes.
    table.append(spark.createDataFrame([(-1, 0, "s-1")], COLUMNS))
    changes.states[0][-1] = 0
    table.create_branch(STAGING, staging=True)

    def apply(batch: DataFrame, number: int) -> None:
        table.upsert(
            batch,
            "id",
            branch=STAGING,
            delete_where="op = 'D'",
            duplicates="last",
            order_by="at",
            txn_app_id="pipeline",
            txn_version=number,
        )

    stream = (
        spark.readStream.schema(CHANGES)
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
        .writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="6 seconds")
        .start()
    )
    # It waits while the table is compacted: else it would come again an interval later.
    options = ["--key", "id", "--staging", STAGING, "--interval", "10s", "--wait", "30s"]
    reader = Reader(table, changes)
    with following(name, settings, tmp_path, *options) as follower:
        try:
            follower.wait()
            reader.start()
            written(changes, table, reader)
            stream.processAllAvailable()
        finally:
            stream.stop()
            if reader.ident is not None:
                reader.end()
        follower.stop()
    reader.check()
    table.resolve("id", staging=STAGING, restart_staging=True)
    assert read(table) == changes.states[-1]
    assert table.check().ok
    metrics = follower.metrics
    cycles = [each for each in follower.documents if each.get("snapshot_id")]
    assert metrics["commits"] == len(cycles) > 1
    assert reader.prefixes[-1] > 1


def written(changes: Input, table: IcebergTable, reader: Reader) -> None:
    """Write files, and compact the table meanwhile."""
    begin, is_compacted = time.monotonic(), False
    while time.monotonic() < begin + SECONDS or not is_compacted:
        assert time.monotonic() < begin + SECONDS + DEADLINE
        reader.check()
        changes.write()
        next_file = time.monotonic() + 6
        if not is_compacted and time.monotonic() > begin + SECONDS / 2:
            is_compacted = compacted(table)
        time.sleep(max(0.0, next_file - time.monotonic()))


def compacted(table: IcebergTable) -> bool:
    """Compact once the service does not resolve."""
    try:
        table.compact(options={"rewrite-all": "true"}, wait=5)
    except LockedError:
        return False
    return True
