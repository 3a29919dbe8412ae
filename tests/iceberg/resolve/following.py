"""A catalog that processes share, and `delvec resolve --follow` in a process of its own.

The catalog of folders has no atomic commit among processes on a local disk; a database has.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from tests.repository import ROOT
from tests.spark.jars import resolved_jars

DEADLINE = 300.0  # seconds for what takes a few


def shared_catalog(spark: SparkSession, folder: Path) -> tuple[str, Mapping[str, str]]:
    """Make a catalog in a database; return its name, and what other sessions need."""
    name = f"shared_{uuid4().hex[:8]}"
    prefix = f"spark.sql.catalog.{name}"
    settings = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=60000",
        f"{prefix}.warehouse": str(folder),
        f"{prefix}.cache-enabled": "false",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.db")
    return name, settings


@dataclass
class Follower:
    """The process; `documents` are what it has printed, when it has ended."""

    process: subprocess.Popen[str]
    output: Path
    documents: list[dict[str, Any]] = field(default_factory=list)

    def wait(self) -> None:
        """Wait for its first cycle: a JVM takes a while to start."""
        deadline = time.monotonic() + DEADLINE
        while not self.output.with_suffix(".json").read_text():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        """Ask it to end, as a service is asked."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0, self.output.read_text()
        lines = self.output.with_suffix(".json").read_text().splitlines()
        self.documents = [json.loads(line) for line in lines]

    @property
    def metrics(self) -> dict[str, Any]:
        """What was done in all."""
        assert self.documents[-1]["stopped"]
        return self.documents[-1]


@contextmanager
def following(
    table: str, settings: Mapping[str, str], folder: Path, *options: str
) -> Iterator[Follower]:
    """Resolve a table all the while, by the command."""
    conf = {
        **settings,
        "spark.jars": ",".join(resolved_jars()),
        "spark.driver.memory": "1g",
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    run = "from delvec.cli import main; main()"
    command = [sys.executable, "-c", run, "resolve", table, "--follow", "--json", *options]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    log = folder / "follow.log"
    with log.open("w") as errors, log.with_suffix(".json").open("w") as lines:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=lines, stderr=errors, text=True, start_new_session=True
        )
        try:
            yield Follower(process, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its JVM as well
                process.wait(DEADLINE)
