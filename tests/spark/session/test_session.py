"""Sessions for real: each test that needs one of its own runs it in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession

from delvec.spark import jvm
from delvec.spark.engine import open_storage
from delvec.spark.session.iceberg_runtime import iceberg_coordinate
from tests.spark.jars import resolved_jars

pytestmark = pytest.mark.spark

ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def environment() -> dict[str, str]:
    hidden = ("PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR")
    return {key: value for key, value in os.environ.items() if key not in hidden}


def run(code: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**environment(), **more},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


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
    count, workers = done.stdout.splitlines()
    assert count == "2"
    assert workers == str([sys.executable])
    assert done.stderr == ""
    assert (tmp_path / "warehouse" / "db" / "t" / "metadata").is_dir()


@pytest.mark.more
def test_a_builder_finds_the_data_source_without_an_activated_environment(tmp_path: Path) -> None:
    code = """
import delvec
from pyspark.sql import SparkSession
spark = delvec.configure(SparkSession.builder, iceberg=False).getOrCreate()
delvec.DeltaTable.create(spark, "t", "id long")
print(spark.read.format("delvec").load("t").count())
"""
    assert run(code, tmp_path, PATH="/usr/bin:/bin").stdout == "0\n"


@pytest.mark.slow
def test_without_iceberg_a_session_needs_no_jar_and_says_so_when_asked(tmp_path: Path) -> None:
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
            assert done.stdout == "3\n"


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
    assert done.stdout.splitlines() == [str(changed)] * 2


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


def test_storage_takes_the_credentials_of_the_session(spark: SparkSession) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    settings = {"access.key": "key of the session", "secret.key": "s"}
    settings["endpoint.region"] = "eu-west-1"
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


# What other users of the machine, and of its network, see and reach of a session.
SECRET = "s3cr3t of a store"  # noqa: S105 - the point of it

START = """
import os, socket, threading
import delvec
from delvec.spark import jvm

spark = delvec.session(
    "w", iceberg=False, master="local[2]",
    conf={"spark.hadoop.fs.s3a.secret.key": %r, "spark.driver.memory": "600m", "spark.b": "ours"},
)
get = spark.conf.get
assert jvm.hadoop_setting(spark)("fs.s3a.secret.key") == %r
assert [get("spark." + key) for key in "abc"] == ["a", "ours", "c"], "of the user's own places"
assert spark.sparkContext.uiWebUrl is None
runtime = jvm.java_class(spark, "java.lang.Runtime").getRuntime()
assert 500 < runtime.maxMemory() >> 20 <= 600
print("up", jvm.java_class(spark, "java.lang.ProcessHandle").current().pid(), flush=True)
input()

table = delvec.DeltaTable.create(spark, "t", "id BIGINT")
table.append(spark.range(1, 3))
assert table.to_df().where("id > 1").count() == 1
gateway = spark.sparkContext._gateway
[proxy, *_] = [name for name in gateway.gateway_property.pool.dict if name.startswith("p")]
port = gateway._callback_server.port
for greeting in ("", "A\\nnone\\n"):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        stranger.sendall(f"{greeting}c\\n{proxy}\\ntoString\\ne\\n".encode())
        try:
            answer = stranger.recv(100)
        except ConnectionResetError:
            answer = b""
        assert b"y" not in answer, answer  # as answers to calls begin
found = []
thread = threading.Thread(target=lambda: found.append(table.to_df().count()))
thread.start()
thread.join()
assert found == [2]
batches = []
rows = spark.readStream.format("rate").load().writeStream
stream = rows.foreachBatch(lambda rows, number: batches.append(number)).start()
while stream.isActive and not batches:
    stream.awaitTermination(0.2)
stream.stop()
assert stream.exception() is None and batches
"""


def command_lines() -> Iterator[bytes]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes()
        except OSError:  # noqa: PERF203 - it has ended
            continue


def listening(process: int) -> set[str]:
    """The addresses that a process listens on, as the kernel writes them."""
    links = [str(fd.readlink()) for fd in Path(f"/proc/{process}/fd").iterdir() if fd.is_symlink()]
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:]
    ]
    own = [line for line in lines if f"socket:[{line[9]}]" in links]
    return {line[1].partition(":")[0] for line in own if line[3] == "0A"}


@pytest.mark.more
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_session_shows_no_secret_and_listens_to_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a a\nspark.b b\nspark.c no\n")
    place = environment() | {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.c=c pyspark-shell",
        "TMPDIR": str(tmp_path),
    }
    script = tmp_path / "start.py"  # not -c, which is a command line
    script.write_text(START % (SECRET, SECRET))
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=place,
    ) as process:
        output = process.stdout
        assert output is not None
        lines: list[str] = []
        reader = Thread(target=lambda: lines.append(output.readline()))
        reader.start()
        seen, submits = set(), 0
        while reader.is_alive():
            for line in command_lines():
                submits += b"--properties-file" in line
                if SECRET.encode() in line:
                    seen.add(line[:300])
            reader.join(0.02)
        assert lines[0].startswith("up "), process.communicate()[1][-3000:]
        assert seen == set()
        assert submits
        assert listening(int(lines[0].split()[1])) == {"0000000000000000FFFF00000100007F"}
        assert list(tmp_path.glob("delvec-*")) == []  # the file is gone
        _, errors = process.communicate("\n")
    assert process.returncode == 0, errors[-3000:]
