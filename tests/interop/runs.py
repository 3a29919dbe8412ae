"""A plan carried out on a real table: after each step all readers must see what the model says."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.delta.write.report import WriteReport
from tests.delta import log_files
from tests.delta.rows import rows_of
from tests.interop.engines import READERS, as_arrow, by_delta_spark, by_delvec, create
from tests.interop.model import Operation, Outcome, Rows
from tests.interop.plans import COLUMNS, Engine, Kind, Step
from tests.spark.delta import spark_tables

LOG = logging.getLogger(__name__)
LOG.setLevel("INFO")
# A file of ten rows then has several row groups.
SMALL_ROW_GROUPS: dict[str, object] = {
    "parquet.block.size": 64,
    "parquet.block.size.row.check.min": 2,
    "parquet.block.size.row.check.max": 2,
    "parquet.page.size.row.check.min": 2,
    "parquet.page.size.row.check.max": 2,
}
PROPERTIES = {"delta.checkpointInterval": "3"}


@dataclass
class Run:
    """A table, the rows that it should have, and what was seen of it so far."""

    spark: SparkSession
    path: Path
    kind: Kind
    rows: Rows = field(default_factory=list)
    states: dict[int, Rows] = field(default_factory=dict)
    steps: dict[int, tuple[Step, Outcome]] = field(default_factory=dict)
    checkpoints: dict[int, Engine] = field(default_factory=dict)
    reads: Counter[str] = field(default_factory=Counter)

    @property
    def version(self) -> int:
        return log_files.newest_version(self.path)

    def start(self, by: Engine) -> None:
        LOG.info("%s creates %s", by, self.kind)
        create(self.spark, self.path, self.kind, by=by, properties=PROPERTIES)
        self.states[self.version] = []

    def do(self, step: Step) -> None:
        LOG.info("version %d: %s", self.version + 1, step)
        before, outcome = self.version, step.operation.apply(self.rows)
        self.rows = outcome.rows
        if step.engine == "delvec":
            report = by_delvec(self.spark, self.path, step.operation)
            check_report(report, step.operation, outcome)
            assert (report.version or before) == self.version
        else:
            by_delta_spark(self.spark, self.path, step.operation)
        if self.version > before:
            assert self.version == before + 1
            self.steps[self.version] = step, outcome
        self.check()
        self._note_checkpoints(step.engine)
        if step.checkpoint and self.version not in self.checkpoints:
            DeltaTable.for_path(self.spark, self.path).checkpoint()
            self._note_checkpoints("delvec")

    def sql(self, statement: str, rows: Rows | None = None) -> None:
        """Let delta-spark run a statement, after which the table has these rows or as before."""
        LOG.info("version %d: %s", self.version + 1, statement)
        self.rows = self.rows if rows is None else rows
        spark_tables.sql(self.spark, self.path, statement)
        self.check()

    def check(self, path: Path | None = None, only: Sequence[str] = tuple(READERS)) -> None:
        """Hold what each reader finds against the model."""
        expected = rows_of(as_arrow(self.rows))
        for name in only:
            if name == "deltalake" and self.kind.mapped:
                continue  # it does not know column mapping
            found = bag(READERS[name](self.spark, path or self.path))
            wrong = f"{name}, version {self.version}"
            assert not found - expected, f"{wrong}: rows too many: {list(found - expected)[:5]}"
            assert not expected - found, f"{wrong}: rows missing: {list(expected - found)[:5]}"
            self.reads[name] += 1
        self.states[self.version] = self.rows

    def _note_checkpoints(self, by: Engine) -> None:
        for version in checkpoints(self.path):
            self.checkpoints.setdefault(version, by)


def bag(table: pa.Table) -> Counter[Any]:
    return rows_of(table.select(COLUMNS))


def check_report(report: WriteReport, operation: Operation, outcome: Outcome) -> None:
    assert report.rows_inserted == outcome.inserted
    if operation.name != "overwrite":
        assert (report.rows_deleted, report.rows_updated) == (outcome.deleted, outcome.updated)


def checkpoints(path: Path) -> list[int]:
    """List the versions that have a checkpoint."""
    names = [file.name for file in (path / "_delta_log").glob("*.checkpoint*.parquet")]
    return sorted({int(name.split(".")[0]) for name in names})


def vector_updates(path: Path) -> set[tuple[str, str]]:
    """Name the engines that put a vector in place of another: of the old one, of the new one."""
    writers: dict[str, str] = {}
    updates = set()
    for actions in log_files.commits(path):
        [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
        engine = "delvec" if info["engineInfo"].startswith("delvec") else "delta-spark"
        removed = {
            action["remove"]["path"]
            for action in actions
            if action.get("remove", {}).get("deletionVector")
        }
        for add in (action["add"] for action in actions if "add" in action):
            if add.get("deletionVector"):
                if add["path"] in removed:
                    updates.add((writers[add["path"]], engine))
                writers[add["path"]] = engine
    return updates
