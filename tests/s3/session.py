"""Spark on S3: the jars, the settings, and programs of tests that run in a process of their own.

The session that tests share has no S3 file system, and a process has one JVM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from delvec.spark.session.iceberg_runtime import iceberg_coordinate
from tests.repository import ROOT
from tests.s3.server import S3Server
from tests.spark.jars import SQLITE, resolved

# hadoop-aws itself wants the bundle of Amazon's whole SDK, 640 MB; these parts are what it uses.
SDK = "2.29.52"
SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "sso", "kms")
BUNDLE = "software.amazon.awssdk:bundle"

WAREHOUSE = "s3a://lake/warehouse"


def hadoop_aws() -> list[str]:
    """The Maven coordinates of S3 for this Spark: hadoop-aws must be of its Hadoop's version."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = jar.stem.removeprefix("hadoop-client-api-")
    parts = [f"software.amazon.awssdk:{part}:{SDK}" for part in SDK_PARTS]
    return [f"org.apache.hadoop:hadoop-aws:{version}", *parts]


@cache
def s3_jars() -> tuple[str, ...]:
    aws = resolved(*hadoop_aws(), excludes=BUNDLE)
    return (*aws, *resolved(iceberg_coordinate()), *resolved(SQLITE))


@dataclass(frozen=True)
class Place:
    """What a program needs to know of the server; as JSON in its arguments."""

    storage_options: dict[str, str]
    hadoop: dict[str, str]
    jars: list[str]
    catalog: str
    """The database of the Iceberg catalog `prod`, whose warehouse is on S3."""

    @classmethod
    def of(cls, server: S3Server, folder: Path) -> Place:
        jars, catalog = list(s3_jars()), f"{folder}/catalog.db"
        return cls(server.storage_options, server.hadoop_configuration, jars, catalog)

    def session(self, master: str = "local[2]", **conf: str) -> SparkSession:
        import delvec  # noqa: PLC0415

        prod = "spark.sql.catalog.prod"
        return delvec.session(
            WAREHOUSE,
            master=master,
            conf={
                **{f"spark.hadoop.{key}": value for key, value in self.hadoop.items()},
                "spark.jars": ",".join(self.jars),
                prod: "org.apache.iceberg.spark.SparkCatalog",
                f"{prod}.type": "jdbc",
                f"{prod}.uri": f"jdbc:sqlite:{self.catalog}",
                f"{prod}.warehouse": f"{WAREHOUSE}/prod",
                "spark.sql.shuffle.partitions": "2",
                "spark.ui.enabled": "false",
                **conf,
            },
        )


def run(program: str, place: Place, *arguments: str) -> Any:  # noqa: ANN401
    """Run one of `tests.s3.programs`; return what it prints last, as JSON."""
    with started(program, place, *arguments) as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors[-6000:]
    return json.loads(output.splitlines()[-1])


def started(program: str, place: Place, *arguments: str) -> subprocess.Popen[str]:
    """Start one of `tests.s3.programs`, with pipes."""
    hidden = ("PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    command = ["-m", "tests.s3.programs", json.dumps(vars(place)), program, *arguments]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, *command], text=True, cwd=ROOT, env=environment, **pipes
    )
