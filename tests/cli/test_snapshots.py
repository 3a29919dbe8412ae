"""What the commands print that need no Spark, as text on a terminal of 80 columns and as JSON.

They run one after the other on one small table. See `tests/cli/snapshot_files.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.vector import Bitmap, pack
from tests.cli.snapshot_files import PINNED, Recorder, compare, short_folder, too_long
from tests.delta.builder import TableBuilder

OLD = 1_700_000_000
JOB = """\
from delta.tables import DeltaTable
from deltalake import write_deltalake

write_deltalake("/lake/new", rows)
orders = DeltaTable.forPath(spark, "/lake/orders")
orders.delete("day < '2026-01-01'")
spark.sql("OPTIMIZE delta.`/lake/orders`")
spark.sql("ANALYZE TABLE orders COMPUTE STATISTICS")
"""


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with short_folder() as folder:
        found = Recorder(folder)
        write_table(folder / "orders")
        write_others(folder)
        look(found, f"{folder}/orders")
        define(found, f"{folder}/orders")
        maintain(found, f"{folder}/orders")
        wrong(found, f"{folder}")
        yield found


def write_table(root: Path) -> None:
    """Two days of orders; rows of the first day are deleted by a vector, and a file is removed."""
    table = TableBuilder(root, fields={"id": "long", "note": "string", "day": "integer"})
    table.partition_columns = ("day",)
    table.create()
    files = [
        table.write_file(
            f"day={day}/part-0000{day}-fae5310a-a37d-4e51-827b-c3d5516560ca.c000.snappy.parquet",
            {"id": list(range(10)), "note": [f"n{number}" for number in range(10)]},
            {"day": str(day)},
        )
        for day in (1, 2, 3)
    ]
    table.commit(*({"add": each} for each in files))
    first, *_, last = files
    table.commit({"remove": {"path": last["path"], "dataChange": True, "deletionTimestamp": 1}})
    [vectors] = pack([Bitmap([0, 3, 9])])
    (root / vectors.path).write_bytes(vectors.data)
    vector = vectors.descriptors[0].to_json()
    table.commit(
        {"remove": {"path": first["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": first | {"deletionVector": vector}},
    )
    for path in [*root.rglob("*.parquet"), *root.rglob("*.bin"), *root.rglob("*.json")]:
        os.utime(path, (OLD, OLD))


def write_others(folder: Path) -> None:
    (folder / "plain/day=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), folder / "plain/day=1/part.parquet")
    [vectors] = pack([Bitmap([0, 9]), Bitmap(range(1000))])
    (folder / "dv.bin").write_bytes(vectors.data)
    (folder / "job.py").write_text(JOB)


def look(recorder: Recorder, table: str) -> None:
    recorder.both("inspect", f"{recorder.folder}/dv.bin")
    for name in ("detail", "schema", "properties", "history", "files", "check"):
        recorder.both(name, table)
    recorder.run("files", table, "--version", "1", "--limit", "1")
    recorder.run("history", table, "--limit", "1", width=60)
    recorder.run("files", table, width=60)
    recorder.both("traces", table, "--where", "note = 'n1'")
    recorder.both("traces", table, "--where", "id = 77")
    recorder.run("migrate", f"{recorder.folder}/job.py")
    recorder.run("migrate", f"{recorder.folder}/job.py", "--json")
    recorder.run("completion", "bash")
    recorder.run("completion", "fish", "--json")


def define(recorder: Recorder, table: str) -> None:
    recorder.tried("properties", table, "--set", "delta.logRetentionDuration=interval 60 days")
    recorder.tried("properties", table, "--unset", "delta.logRetentionDuration")
    recorder.tried("clone", table, f"{recorder.folder}/clone")
    recorder.tried("convert-to-delta", f"{recorder.folder}/plain", "--partition-by", "day=int")


def maintain(recorder: Recorder, table: str) -> None:
    recorder.tried("recompute-statistics", table)
    recorder.tried("checkpoint", table)
    recorder.tried("clean-log", table)
    recorder.tried("vacuum", table, "--retention-hours", "0", "--force")
    recorder.tried("restore", f"{recorder.folder}/plain", "--version", "0")
    recorder.tried("generate-manifest", f"{recorder.folder}/plain")


def wrong(recorder: Recorder, folder: str) -> None:
    """What the commands say that cannot do what is asked for."""
    recorder.run("generate-manifest", f"{folder}/orders")
    recorder.run("restore", f"{folder}/orders", "--version", "77")
    recorder.run("restore", f"{folder}/orders", "--version", "1", "--json")
    recorder.run("vacuum", f"{folder}/orders", "--retention-hours", "1")
    recorder.run("clone", f"{folder}/orders", f"{folder}/clone")
    recorder.run("history", f"{folder}/nothing")
    recorder.run("detail", f"{folder}/plain/day=1")
    recorder.run("properties", f"{folder}/orders", "--set", "delta.enableDeletionVektors=true")


@PINNED
def test_commands_print_what_their_snapshots_show(recorder: Recorder) -> None:
    assert recorder.failed == []
    assert len(recorder.printed) == 18
    for name in recorder.printed:
        compare(name, recorder.of(name))


def test_lines_fit_the_terminal(recorder: Recorder) -> None:
    assert too_long(recorder) == []
