"""Sessions for real: each test that needs one of its own runs it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from delvec.errors import UnsupportedFeatureError
from delvec.spark import jvm
from delvec.spark.stores import open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    hidden = ("PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=300,
        check=False,
    )


def test_a_session_of_the_defaults_is_quiet_and_has_the_catalog_lake(tmp_path: Path) -> None:
    code = """
import delvec
spark = delvec.session()
spark.sql("CREATE TABLE lake.db.t (id BIGINT) USING iceberg")
spark.sql("INSERT INTO lake.db.t VALUES (1), (2)")
print(spark.table("lake.db.t").count())
print(spark.range(3).rdd.map(lambda row: __import__("sys").executable).distinct().collect())
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    count, workers = done.stdout.splitlines()
    assert count == "2"
    assert workers == str([sys.executable])
    assert done.stderr == ""
    assert (tmp_path / "warehouse" / "db" / "t" / "metadata").is_dir()


def test_without_iceberg_a_session_needs_no_jar_and_says_so_when_asked_for_it(
    tmp_path: Path,
) -> None:
    code = """
import delvec
spark = delvec.session(iceberg=False)
assert not spark.conf.get("spark.jars.packages", "")
print(spark.range(5).count())
spark.sparkContext._jvm.java.lang.System.err.println("a later word of the JVM")
try:
    delvec.session()
except delvec.errors.MissingDependencyError as error:
    print(error.dependency)
    print(error.hint)
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    count, dependency, hint = done.stdout.splitlines()
    assert count == "5"
    assert dependency.startswith("org.apache.iceberg:iceberg-spark-runtime-4.")
    assert "iceberg=False" in hint
    assert "a later word of the JVM" in done.stderr  # only the start is quiet


def test_a_start_that_fails_shows_what_the_jvm_said(tmp_path: Path) -> None:
    code = """
import delvec
delvec.session(iceberg=False, conf={"spark.driver.memory": "nonsense"})
"""
    done = run(code, tmp_path)
    assert done.returncode != 0
    assert "nonsense" in done.stderr


def test_settings_of_the_hadoop_configuration_can_be_read(spark: SparkSession) -> None:
    get = jvm.hadoop_setting(spark)
    assert get("fs.s3a.no.such.key") is None
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set("fs.s3a.access.key", "from the session")
    try:
        assert get("fs.s3a.access.key") == "from the session"
    finally:
        configuration.unset("fs.s3a.access.key")


def test_classes_of_added_jars_are_found(spark: SparkSession) -> None:
    assert jvm.class_exists(spark, "org.apache.iceberg.spark.SparkCatalog")
    assert jvm.class_exists(spark, "io.delta.tables.DeltaTable")
    assert not jvm.class_exists(spark, "no.such.Class")


def test_storage_takes_the_credentials_of_the_session(spark: SparkSession) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    settings = {
        "access.key": "key of the session",
        "secret.key": "s",
        "endpoint.region": "eu-west-1",
    }
    for name, value in settings.items():
        configuration.set(f"fs.s3a.{name}", value)
    try:
        storage = open_storage(spark, "s3a://lake/orders")
        own = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "mine"}
        mine = open_storage(spark, "s3a://lake/orders", own)
    finally:
        for name in settings:
            configuration.unset(f"fs.s3a.{name}")
    assert dict(storage._options) == {
        "aws_access_key_id": "key of the session",
        "aws_secret_access_key": "s",
        "aws_region": "eu-west-1",
    }
    assert dict(mine._options) == own | {"aws_region": "eu-west-1"}
    assert "key of the session" not in repr(storage)


def test_a_connect_client_is_refused_where_a_jvm_is_needed(tmp_path: Path) -> None:
    class ConnectSession:
        """As pyspark.sql.connect.session.SparkSession, which has no JVM."""

    client: Any = ConnectSession()
    with pytest.raises(UnsupportedFeatureError, match="Spark Connect"):
        jvm.view_of(client)
    assert open_storage(client, tmp_path).root == str(tmp_path)
