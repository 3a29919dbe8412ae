"""Sessions for real: each test that needs one of its own runs it in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession

from delvec.errors import UnsupportedFeatureError
from delvec.spark import jvm
from delvec.spark.engine import open_storage
from delvec.spark.session.iceberg_runtime import iceberg_coordinate
from delvec.storage import Storage
from delvec.vector import Bitmap, decode_frame, encode_frame
from tests.spark.jars import resolved_jars

pytestmark = pytest.mark.spark

ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def environment() -> dict[str, str]:
    hidden = ("PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR")
    return {key: value for key, value in os.environ.items() if key not in hidden}


def run(code: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**environment(), **more},
        timeout=300,
        check=False,
    )


@pytest.mark.slow
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


@pytest.mark.more
def test_a_configured_builder_finds_the_data_source_in_an_environment_that_is_not_activated(
    tmp_path: Path,
) -> None:
    code = """
import delvec
from pyspark.sql import SparkSession
spark = delvec.configure(SparkSession.builder, iceberg=False).getOrCreate()
delvec.DeltaTable.create(spark, "t", "id long")
print(spark.read.format("delvec").load("t").count())
"""
    done = run(code, tmp_path, PATH="/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.slow
def test_without_iceberg_a_session_needs_no_jar_and_says_so_when_asked_for_it(
    tmp_path: Path,
) -> None:
    code = """
import delvec
spark = delvec.session(iceberg=False, app_name="first")
assert not spark.conf.get("spark.jars.packages", "")
print(spark.range(5).count())
spark.sparkContext._jvm.java.lang.System.err.println("a later word of the JVM")
for _ in range(2):
    try:
        delvec.session(master="local[7]", app_name="second")
    except delvec.errors.MissingDependencyError as error:
        print(error.dependency, error.hint)
    print(spark.sparkContext.appName, spark.conf.get("spark.sql.catalog.lake", "no catalog"))
    spark.stop()
    spark = delvec.session(iceberg=False, app_name="third")
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    count, first, unchanged, second, _ = done.stdout.splitlines()
    assert count == "5"
    assert first.startswith("org.apache.iceberg:iceberg-spark-runtime-4.")
    assert "new Python process" in first
    assert second == first  # stopping Spark does not stop its JVM
    assert unchanged == "first no catalog"
    assert "a later word of the JVM" in done.stderr  # only the start is quiet


def test_a_start_that_fails_tells_what_the_jvm_said(tmp_path: Path) -> None:
    code = """
import delvec
try:
    delvec.session(iceberg=False, conf={"spark.driver.memory": "nonsense"})
except delvec.errors.EngineError as error:
    print(error)
"""
    done = run(code, tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("Spark's JVM did not start\n")
    assert "nonsense" in done.stdout
    assert "Hint: Spark needs Java 17 or 21" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_two_first_starts_at_once_download_one_after_the_other(tmp_path: Path) -> None:
    code = f"""
import delvec
conf = {{"spark.jars.ivy": {str(tmp_path / "ivy")!r}}}
print(delvec.session("w", master="local[1]", conf=conf).range(3).count())
"""
    with ThreadPoolExecutor() as pool:
        for done in pool.map(run, [code, code], [tmp_path, tmp_path]):
            assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@pytest.mark.slow
def test_a_downloaded_runtime_that_somebody_changed_is_refused(tmp_path: Path) -> None:
    [jar] = [Path(each) for each in resolved_jars() if "iceberg-spark-runtime" in each]
    assert jar.name.startswith("org.apache.iceberg_")
    changed = tmp_path / "changed jars" / jar.name
    changed.parent.mkdir()
    shutil.copy(jar, changed)
    with ZipFile(changed, "a") as archive:
        archive.writestr("added", b"")
    code = f"""
import delvec
for _ in range(2):
    try:
        delvec.session("w", conf={{"spark.jars": {str(changed)!r}}})
    except delvec.errors.ChecksumError as error:
        print(error.path)
"""
    done = run(code, tmp_path)
    assert done.stdout.splitlines() == [str(changed)] * 2, done.stderr


@pytest.mark.slow
def test_a_second_session_joins_the_first_or_is_refused(tmp_path: Path) -> None:
    code = """
import threading
import delvec
spark = delvec.session("wa", app_name="mine", master="local[1]")
assert delvec.session("wa", master="local[3]").sparkContext.master == "local[1]"
assert delvec.session().conf.get("spark.sql.catalog.lake.warehouse").endswith("/wa")
other = []
thread = threading.Thread(target=lambda: other.append(delvec.session("wa")))
thread.start()
thread.join()
assert other[0].sparkContext is spark.sparkContext
try:
    delvec.session("wb")
except delvec.errors.InvalidArgumentError as error:
    print(error)
delvec.session("wb", catalog="second").sql("CREATE TABLE second.db.t (id BIGINT) USING iceberg")
spark.stop()
delvec.session("wb").sql("CREATE TABLE lake.db.u (id BIGINT) USING iceberg")
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the catalog lake is configured already, in" in done.stdout
    assert (tmp_path / "wb" / "db" / "t").is_dir()
    assert (tmp_path / "wb" / "db" / "u").is_dir()


@pytest.mark.slow
def test_what_spark_submit_was_told_stays(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("""
import delvec
spark = delvec.session()
try:
    delvec.session("elsewhere")
except delvec.errors.InvalidArgumentError as error:
    print(error.message)
print(spark.sparkContext.master, spark.sparkContext.appName)
print(spark.conf.get("spark.sql.extensions"))
spark.sql("CREATE TABLE lake.db.t (id BIGINT) USING iceberg")
""")
    folder = tmp_path / "mine"
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[1]", "--name", "mine", "--packages", iceberg_coordinate()),
        *("--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"),
        *("--conf", "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog"),
        *("--conf", "spark.sql.catalog.lake.type=hadoop"),
        *("--conf", f"spark.sql.catalog.lake.warehouse={folder}"),
        str(tmp_path / "app.py"),
    ]
    place = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=place, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        f"the catalog lake is configured already, in {folder}, not in elsewhere",
        "local[1] mine",
        f"io.delta.sql.DeltaSparkSessionExtension,{ICEBERG_EXTENSIONS}",
    ]
    assert (folder / "db" / "t").is_dir()


@pytest.mark.usefixtures("spark")
def test_classes_of_added_jars_are_found() -> None:
    assert jvm.class_exists("org.apache.iceberg.spark.SparkCatalog")
    assert jvm.class_exists("io.delta.tables.DeltaTable")
    assert not jvm.class_exists("no.such.Class")


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
        assert jvm.hadoop_setting(spark)("fs.s3a.no.such.key") is None
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


def test_storage_and_bitmaps_travel_to_workers(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    for number in range(4):
        storage.write(f"{number}.bin", encode_frame(Bitmap([number])))
    base = Bitmap([100])

    def decode(number: int) -> Bitmap:
        return decode_frame(storage.read(f"{number}.bin")) | base

    found = spark.sparkContext.parallelize(range(4), 2).map(decode).collect()
    assert found == [Bitmap([number, 100]) for number in range(4)]
    assert storage.requests.gets == 0  # each copy counts its own


def test_a_connect_client_is_refused_where_a_jvm_is_needed(tmp_path: Path) -> None:
    class ConnectSession:
        """As pyspark.sql.connect.session.SparkSession, which has no JVM."""

        class conf:  # noqa: N801
            get = staticmethod(lambda _key, default=None: default)

    client: Any = ConnectSession()
    with pytest.raises(UnsupportedFeatureError, match="Spark Connect"):
        jvm.view_of(client)
    assert open_storage(client, tmp_path).root == str(tmp_path)
