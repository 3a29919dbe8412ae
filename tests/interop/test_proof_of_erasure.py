"""Random tables with a marked value in random places: `traces` misses none that a search finds.

The search decodes all files of the folder and knows nothing of Delta: JSON and other texts as they
are, Parquet as rows and footers.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, write_deltalake
from deltalake import DeltaTable as Peer
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.delta.traces.report import TracesReport
from delvec.errors import InvalidArgumentError
from tests.delta.vacuum.aging import age
from tests.spark.delta import spark_tables

pytestmark = pytest.mark.spark
SLOW_EXAMPLES = min(200, int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 200))
RETENTION = {
    "delta.deletedFileRetentionDuration": "interval 0 hours",
    "delta.logRetentionDuration": "interval 0 hours",
}
# How often the advised steps are taken: a step may leave what the next report names.
ROUNDS = 4


@dataclass
class Marked:
    """A table that is being made, with the marked value in it."""

    spark: SparkSession
    root: Path
    rng: random.Random
    writer: str
    value: str | int
    column: str
    features: frozenset[str]
    places: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.root / "_delta_log"

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.for_path(self.spark, self.root)

    @property
    def sql(self) -> str:
        literal = self.value if isinstance(self.value, int) else f"'{self.value}'"
        return f"{self.column} = {literal}"

    def rows(self, *, marked: bool) -> list[dict[str, Any]]:
        """Three rows; the marked one is a bound of its column, or none."""
        rows: list[dict[str, Any]] = [
            {"id": self.rng.randrange(1000), "name": name, "region": "north"}
            for name in ("Aaron", "Bob", "Zz")
        ]
        if marked:
            place = self.rng.randrange(3)
            rows[place][self.column] = self.value
        return rows

    def commit(self, *actions: dict[str, Any]) -> None:
        """Put a commit as some other writer would."""
        version = self.table.version + 1
        info = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "TEST"}}
        lines = actions if any("commitInfo" in each for each in actions) else (info, *actions)
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (self.log / f"{version:020}.json").write_text(text)

    def live_add(self) -> dict[str, Any]:
        """The newest add of a file that is live."""
        live = set(self.table.snapshot().files.paths.to_pylist())
        for path in sorted(self.log.glob("*.json"), reverse=True):
            for line in path.read_text().splitlines():
                add = json.loads(line).get("add")
                if add and add["path"] in live:
                    return dict(add)
        raise AssertionError("no live file")


def properties_of(it: Marked) -> dict[str, str]:
    wanted = {
        "property": {"owner.note": f"see {it.value}"},
        "default": {"delta.feature.allowColumnDefaults": "supported"},
        "mapped": {"delta.columnMapping.mode": "name"},
        "feed": {"delta.enableChangeDataFeed": "true"},
        "v2": {"delta.checkpointPolicy": "v2"},
    }
    known = set(wanted) if it.writer == "delta-spark" else {"property", "mapped", "feed"}
    chosen = [wanted[name] for name in wanted if name in known & it.features]
    return dict(ChainMap(*chosen, RETENTION))


def by_delta_spark(it: Marked) -> None:
    comment = f" COMMENT 'about {it.value}'" if "comment" in it.features else ""
    default = f" DEFAULT 'like {it.value}'" if "default" in it.features else ""
    spark_tables.create(
        it.spark,
        it.root,
        f"id bigint{comment}, name string{default}, region string",
        partitioned_by=["region"] if "partitioned" in it.features else [],
        properties=properties_of(it),
    )
    for marked in (True, False):
        values = ", ".join(
            f"({row['id']}, '{row['name']}', '{row['region']}')" for row in it.rows(marked=marked)
        )
        spark_tables.sql(it.spark, it.root, f"INSERT INTO {{T}} VALUES {values}")


def by_delvec(it: Marked) -> None:
    schema = it.spark.createDataFrame([], "id bigint, name string, region string").schema
    if "comment" in it.features:
        schema["id"].metadata["comment"] = f"about {it.value}"
    parts = ["region"] if "partitioned" in it.features else []
    table = DeltaTable.create(it.spark, it.root, schema, parts, properties_of(it))
    for marked in (True, False):
        told = f"request of {it.value}" if "commit metadata" in it.features and marked else None
        rows = [(row["id"], row["name"], row["region"]) for row in it.rows(marked=marked)]
        frame = it.spark.createDataFrame(rows, "id bigint, name string, region string")
        table.append(frame.coalesce(1), commit_metadata=told)


def by_deltalake(it: Marked) -> None:
    for number, marked in enumerate((True, False)):
        told = {"request": f"of {it.value}"} if "commit metadata" in it.features else {}
        write_deltalake(
            str(it.root),
            pa.Table.from_pylist(it.rows(marked=marked)),
            mode="append",
            partition_by=["region"] if "partitioned" in it.features and not number else None,
            configuration=None if number else {**RETENTION},
            description=f"of {it.value}" if "comment" in it.features and not number else None,
            commit_properties=CommitProperties(custom_metadata=told) if told else None,
        )


WRITERS: dict[str, Callable[[Marked], None]] = {
    "delta-spark": by_delta_spark,
    "delvec": by_delvec,
    "deltalake": by_deltalake,
}


def changed(it: Marked) -> None:
    """Delete the marked row, or drop or rename its column."""
    mapped = "mapped" in it.features and it.column == "name"
    how = it.rng.choice(
        ["no", "delete", "delete", *(["drop", "rename", "reuse"] if mapped else [])]
    )
    it.places.append(how)
    if how == "delete":
        if it.writer == "deltalake":
            Peer(str(it.root)).delete(it.sql)
        elif it.writer == "delta-spark":
            spark_tables.sql(it.spark, it.root, f"DELETE FROM {{T}} WHERE {it.sql}")
        else:
            it.table.delete(it.sql)
    elif how == "rename":
        it.table.rename_column("name", "called")
        it.column = "called"
    elif how != "no":
        it.table.drop_column("name")
        if how == "reuse":
            it.table.add_columns("name bigint")


def noted(it: Marked, name: str, value: object) -> None:
    it.commit({"commitInfo": {"operation": "TEST", name: value}})


def tagged(it: Marked) -> None:
    add = it.live_add()
    it.commit({"add": add | {"tags": {"REQUEST": f"of {it.value}"}, "dataChange": False}})


def bounded(it: Marked) -> None:
    """Name a file that is gone, with a bound that its writer cut."""
    fields = it.table.snapshot().metadata.schema.fields
    physical = next((f.physical_name for f in fields if f.name == it.column), "unknown")
    cut = it.rng.choice([8, 16, None])
    bound = it.value if isinstance(it.value, int) else it.value[:cut]
    stats = {"numRecords": 1, "minValues": {physical: bound}, "maxValues": {physical: bound}}
    values = {"region": "north"} if "partitioned" in it.features else {}
    entry = {"path": "gone.parquet", "partitionValues": values, "dataChange": True}
    add = entry | {"size": 9, "modificationTime": 1, "stats": json.dumps(stats)}
    it.commit({"add": add})
    it.commit({"remove": entry | {"deletionTimestamp": 1}})


def orphaned(it: Marked, folder: str = "") -> None:
    rows = [{k: v for k, v in row.items() if k != "region"} for row in it.rows(marked=True)]
    (it.root / folder).mkdir(exist_ok=True)
    values = "region=north" if "partitioned" in it.features else ""
    (it.root / folder / values).mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), it.root / folder / values / "orphan.parquet")


def checksummed(it: Marked) -> None:
    path = it.log / f"{it.table.version:020}.crc"
    metadata = it.table.snapshot().metadata.to_json() | {"description": f"of {it.value}"}
    path.unlink(missing_ok=True)
    (it.log / f".{path.name}.crc").unlink(missing_ok=True)
    path.write_text(json.dumps({"tableSizeBytes": 1, "numFiles": 1, "metadata": metadata}))


def hinted(it: Marked) -> None:
    it.table.checkpoint()
    hint = json.loads((it.log / "_last_checkpoint").read_text())
    (it.log / "._last_checkpoint.crc").unlink(missing_ok=True)
    hint["tags"] = {"note": f"of {it.value}"}
    (it.log / "_last_checkpoint").write_text(json.dumps(hint))


def compacted(it: Marked) -> None:
    commits = [(it.log / f"{version:020}.json").read_text().strip() for version in (0, 1)]
    noted = json.dumps({"commitInfo": {"userMetadata": f"of {it.value}"}})
    (it.log / f"{0:020}.{1:020}.compacted.json").write_text("\n".join([*commits, noted]))


def hidden_in_bytes(it: Marked, name: str) -> None:
    data = b"\x01\xff\x00" + f" {it.value} ".encode() + b"\xfe"
    (it.root / name).write_bytes(data)


EXTRAS: dict[str, Callable[[Marked], object]] = {
    "user metadata": lambda it: noted(it, "userMetadata", f"request of customer {it.value}"),
    "top-level key": lambda it: noted(it, "ticket", {"for": [it.value]}),
    "tags of a commit": lambda it: noted(it, "tags", {"t": str(it.value)}),
    "job": lambda it: noted(it, "job", {"jobName": f"erase {it.value}"}),
    "metrics": lambda it: noted(it, "operationMetrics", {"customer": str(it.value)}),
    "predicate": lambda it: noted(it, "operationParameters", {"predicate": json.dumps([it.sql])}),
    "unknown action": lambda it: it.commit({"vendorNote": {"of": it.value}}),
    "tags of a file": tagged,
    "bounds": bounded,
    "orphan": orphaned,
    "change file": lambda it: orphaned(it, "_change_data"),
    "vector": lambda it: hidden_in_bytes(it, f"deletion_vector_{uuid4()}.bin"),
    "checksum of Hadoop": lambda it: hidden_in_bytes(it, ".note.crc"),
    "checkpoint": lambda it: it.table.checkpoint(),
    "checksum file": checksummed,
    "hint": hinted,
    "compacted": compacted,
    "text": lambda it: (it.root / "export.csv").write_text(f"1,{it.value},north\n"),
}


def made(spark: SparkSession, root: Path, seed: int) -> Marked:
    rng = random.Random(seed)
    writer = rng.choice(list(WRITERS))
    column = rng.choice(["name", "name", "id"])
    known = ["comment", "default", "property", "commit metadata", "feed", "v2"]
    features = frozenset(rng.sample(known, rng.randrange(4)))
    mapped = writer != "deltalake" and rng.random() < 0.4
    features |= {"mapped"} if mapped else {"partitioned"} if rng.random() < 0.5 else set()
    if "partitioned" in features and rng.random() < 0.5:
        column = "region"
    value: str | int = rng.randrange(10_000_000, 100_000_000)
    if column != "id":
        value = f"Mk{value}x" + "y" * rng.choice([0, 0, 40])
    it = Marked(spark, root, rng, writer, value, column, features)
    WRITERS[writer](it)
    before = rng.sample(sorted(EXTRAS), rng.randrange(3))
    after = rng.sample(sorted(EXTRAS), rng.randrange(3))
    for name in before:
        EXTRAS[name](it)
    changed(it)
    for name in after:
        EXTRAS[name](it)
    it.places += [*before, *after]
    return it


def searched(root: Path, value: str | int) -> set[str]:
    """The files in whose decoded content a value is; of a long string its first 32 characters."""
    wanted = str(value)[:32]
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and wanted in decoded(path)
    }


def decoded(path: Path) -> str:
    data = path.read_bytes()
    if not data.startswith(b"PAR1"):
        return data.decode(errors="replace")
    file = pq.ParquetFile(path)
    return f"{file.read().to_pylist()} {file.schema_arrow.metadata} {file.metadata.metadata}"


def follow(it: Marked, report: TracesReport) -> None:
    """Take the steps that a report advises, and wait as long as it says."""
    steps = " ".join(str(step.action) for place in report.places for step in place.steps)
    table = it.table
    taken: dict[str, Callable[[], object]] = {
        "other comments": lambda: it.commit({"metaData": plain_metadata(it)}),
        "delete()": lambda: table.delete(it.sql),
        "purge()": table.purge,
        "optimize(": lambda: table.optimize(zorder_by=["id"]),
        "vacuum()": lambda: table.vacuum(retention_hours=0, force=True),
        "checkpoint() after": it.commit,
        "checkpoint()": table.checkpoint,
        "clean_log()": table.clean_log,
    }
    for place in report.places:
        if any("by hand" in str(step.action) for step in place.steps):
            (it.root / place.path).unlink()
    for action, take in taken.items():
        if action in steps:
            take()
            age(it.root, days=40, log=True)


def plain_metadata(it: Marked) -> dict[str, Any]:
    text = json.dumps(it.table.snapshot().metadata.to_json()).replace(str(it.value), "x")
    return dict(json.loads(text))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("seed", range(SLOW_EXAMPLES))
def test_traces_name_every_file_that_a_search_finds_until_none_is_left(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    it = made(spark, tmp_path / "t", seed)
    about = (it.writer, sorted(it.features), it.column, it.value, it.places)
    for _ in range(ROUNDS):
        found = searched(it.root, it.value)
        tuples = [(it.column, "=", it.value)]
        try:
            report = it.table.traces(it.sql if it.rng.random() < 0.3 else tuples)
        except InvalidArgumentError:
            # Nobody can ask any more: no version that is left has the column.
            assert "drop" in it.places or "reuse" in it.places, about
            break
        named = {place.path for place in report.places}
        if report.log_judged:
            assert found <= named, (about, found - named, str(report))
        assert report or not found, about
        if not report.places:
            break
        follow(it, report)
    assert not searched(it.root, it.value), (about, searched(it.root, it.value))
