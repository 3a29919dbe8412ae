"""What each JVM of the tests would spend seconds on, done once: resolving jars, loading classes.

Two that download the same jars at once get in each other's way. What Spark brings itself is left
out, and so not copied for each session either.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyspark

from delvec.spark.session.iceberg_runtime import iceberg_coordinate
from tests.repository import ROOT

DELTA_SPARK = "io.delta:delta-spark_4.1_2.13:4.4.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"

_FILE = ROOT / ".cache" / f"test-jars-of-{pyspark.__version__}.json"
_RESOLVE = """
import sys
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
conf = SparkConf().set("spark.jars.packages", sys.argv[1])
conf.set("spark.jars.excludes", sys.argv[2])
print(launch_gateway(conf).jvm.java.lang.System.getProperty("spark.jars"))
"""
_ARCHIVE = ROOT / ".cache" / f"test-classes-of-{pyspark.__version__}.jsa"
_LOAD_CLASSES = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(9).groupBy("id").count().collect()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


@cache
def share_classes(*, create: bool) -> None:
    """Let JVMs map Spark's classes from an archive, if there is one: they start in half the time.

    To create it costs as much as six starts. A JVM that it does not fit loads its classes as ever.
    """
    before = os.environ["SPARK_SUBMIT_OPTS"] + " -Xlog:disable -Xlog:all=error:stderr"
    _ARCHIVE.parent.mkdir(exist_ok=True)
    with _ARCHIVE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if create and not _ARCHIVE.exists():
            made = _ARCHIVE.with_suffix(".new")
            options = {"SPARK_SUBMIT_OPTS": f"{before} -XX:ArchiveClassesAtExit={made}"}
            command = [sys.executable, "-c", _LOAD_CLASSES]
            subprocess.run(command, env=os.environ | options, capture_output=True, check=True)
            made.rename(_ARCHIVE)
    if _ARCHIVE.exists():
        os.environ["SPARK_SUBMIT_OPTS"] = f"{before} -XX:SharedArchiveFile={_ARCHIVE}"


@cache
def resolved_jars() -> list[str]:
    """Give the paths of the jars of delta-spark, Iceberg and SQLite."""
    return resolved(DELTA_SPARK, SQLITE, iceberg_coordinate())


def resolved(*coordinates: str, excludes: str = "") -> list[str]:
    """Give the paths of jars, without those that Spark brings itself."""
    wanted = ",".join(coordinates)
    _FILE.parent.mkdir(exist_ok=True)
    with _FILE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known: dict[str, list[str]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
        if wanted not in known or not all(Path(jar).exists() for jar in known[wanted]):
            known[wanted] = _resolve(wanted, excludes)
            _FILE.write_text(json.dumps(known, indent=1))
    return known[wanted]


def _resolve(wanted: str, excludes: str) -> list[str]:
    command = [sys.executable, "-c", _RESOLVE, wanted, excludes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [jar.removeprefix("file://") for jar in done.stdout.split()[-1].split(",")]
    own = {_artifact(jar.name) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    # Ivy puts the group before the name, and a `_` between them.
    return [jar for jar in found if _artifact(Path(jar).name.split("_", 1)[1]) not in own]


def _artifact(name: str) -> str:
    return re.sub(r"-\d[\w.-]*\.jar$", "", name)
