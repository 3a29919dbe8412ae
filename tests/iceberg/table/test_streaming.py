"""Changes of a stream, upserted batch by batch: each is applied once, whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import IcebergTable
from tests.iceberg.table.mirror import ENABLED, Mirror
from tests.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "id bigint, part string, n int"
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
    command = [sys.executable, "-m", "tests.iceberg.table.test_streaming", *arguments]
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
