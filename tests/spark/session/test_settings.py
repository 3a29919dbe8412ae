"""What `configure` puts into a builder; nothing here starts a JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.door.sessions import _with_context
from delvec.errors import (
    ChecksumError,
    InvalidArgumentError,
    MissingDependencyError,
    UnsupportedFeatureError,
)
from delvec.spark import jvm
from delvec.spark.session import iceberg_runtime, settings
from delvec.spark.session.iceberg_runtime import iceberg_coordinate, with_iceberg
from delvec.spark.session.settings import privately_submitted, setting

RUNTIME = iceberg_coordinate()
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE", "MASTER")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # else a start would set it for good
    # As in a process of its own: other tests may have started a JVM in this one.
    monkeypatch.setattr(jvm, "is_running", lambda: False)


def options(builder: SparkSession.Builder) -> dict[str, str]:
    return builder._options


def test_the_jar_of_a_runtime_is_known_by_its_checksum(tmp_path: Path) -> None:
    assert iceberg_runtime._CHECKSUMS.keys() == iceberg_runtime._VERSIONS.keys()
    _, artifact, version = RUNTIME.split(":")
    downloaded = tmp_path / f"org.apache.iceberg_{artifact}-{version}.jar"
    downloaded.write_bytes(b"something else")
    with pytest.raises(ChecksumError, match=r"not the one that was published in .*\.jar") as caught:
        iceberg_runtime._verify(str(downloaded))
    assert str(caught.value.found).startswith("f41f3")
    iceberg_runtime._verify(str(downloaded.with_name(f"{artifact}-{version}.jar")))  # not ours


def test_the_runtime_is_chosen_by_the_version_of_spark() -> None:
    for spark, runtime in (("4.0.1", "4.0_2.13:1.11.0"), ("4.1.4", "4.1_2.13:1.12.0")):
        assert iceberg_coordinate(spark) == f"org.apache.iceberg:iceberg-spark-runtime-{runtime}"
    for spark in ("3.5.1", "4.2.0", "5.0.0"):
        with pytest.raises(MissingDependencyError, match=f"no runtime for Spark {spark}") as caught:
            iceberg_coordinate(spark)
        assert caught.value.dependency == "pyspark~=4.1.0"
        assert "pip install 'delvec[spark]'" in str(caught.value.hint)


@pytest.mark.parametrize(("iceberg", "expected"), [(None, False), (True, True), (False, False)])
def test_a_spark_without_a_runtime_goes_without_unless_iceberg_is_asked_for(
    iceberg: bool | None,  # noqa: FBT001
    expected: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    iceberg_runtime._warn.cache_clear()
    for _ in range(2):
        found = with_iceberg(SparkSession.builder, iceberg=iceberg, spark_version="4.3.0")
        assert found == expected
    told = [record.message for record in caplog.records]
    assert len(told) == (iceberg is None)  # once
    if told:
        assert told[0].startswith("Iceberg has no runtime for Spark 4.3.0: this session is for")
        assert "pip install 'delvec[spark]'" in told[0]


def test_a_runtime_of_the_users_own_is_taken_on_any_spark() -> None:
    own = "org.apache.iceberg:iceberg-spark-runtime-4.3_2.13:2.0.0"
    packages = SparkSession.builder.config("spark.jars.packages", own)
    assert with_iceberg(packages, iceberg=None, spark_version="4.3.0")
    there = with_iceberg(SparkSession.builder, iceberg=None, packages=[own], spark_version="4.3.0")
    assert there
    added = options(delvec.configure(SparkSession.builder, packages=[own]))
    assert added["spark.jars.packages"] == own


PACKAGES, EXTENDED, LAKE = ("spark.jars.packages", "spark.sql.extensions", "spark.sql.catalog.lake")


class Case(NamedTuple):
    """Settings after `configure`, None if absent, and what was there before."""

    after: Mapping[str, str | None]
    builder: dict[str, str] = {}  # noqa: RUF012
    arguments: str = ""
    defaults: str = ""
    options: dict[str, Any] = {"warehouse": "w"}  # noqa: RUF012


BOTH = {PACKAGES: f"a:b:1,{RUNTIME}"}
OWN = {EXTENDED: f"my.E,{EXTENSIONS}", LAKE: "my.C", f"{LAKE}.type": None}
JAR, OLDER = (
    "/jars/iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)
CASES = {
    "nothing": Case(
        {PACKAGES: RUNTIME, EXTENDED: EXTENSIONS, f"{LAKE}.type": "hadoop"}
        | {LAKE: "org.apache.iceberg.spark.SparkCatalog"}
    ),
    "nothing, without Iceberg": Case(
        {PACKAGES: None, EXTENDED: None, LAKE: None}, options={"warehouse": "w", "iceberg": False}
    ),
    "a warehouse with a space": Case(
        {f"{LAKE}.warehouse": "/lake house"}, options={"warehouse": Path("/lake house")}
    ),
    "a warehouse by a URI": Case(
        {f"{LAKE}.warehouse": "s3a://b/w"}, options={"warehouse": "s3a://b/w"}
    ),
    "a relative warehouse": Case({f"{LAKE}.warehouse": str(Path.cwd() / "w")}),
    "packages, extensions and catalogs": Case(
        {PACKAGES: f"a:b:1,c:d:2,e:f:3,{RUNTIME}", **OWN},
        {PACKAGES: "a:b:1, c:d:2", EXTENDED: "my.E", LAKE: "my.C"},
        options={"warehouse": "w", "packages": ["e:f:3", "a:b:1"]},
    ),
    "a runtime among the packages": Case({PACKAGES: OLDER}, {PACKAGES: OLDER}),
    "a runtime among the jars": Case({PACKAGES: None, "spark.jars": JAR}, {"spark.jars": JAR}),
    "arguments with packages": Case(BOTH, arguments="--packages=a:b:1"),
    "arguments with settings": Case(BOTH, arguments=f"--conf {PACKAGES}=a:b:1"),
    "arguments with one word": Case(BOTH, arguments=f"--conf={PACKAGES}=a:b:1"),
    "short arguments": Case(BOTH, arguments=f"-c {PACKAGES}=a:b:1"),
    "arguments with both": Case(BOTH, arguments=f"--packages a:b:1 --conf {PACKAGES}=e:f:3"),
    "arguments with jars, extensions and a file": Case(
        {PACKAGES: None, **OWN, LAKE: None},
        arguments=f"--jars {JAR} --conf={EXTENDED}=my.E --properties-file {{file}}",
        defaults=f"{LAKE} my.C",
    ),
    "a file of defaults": Case(
        BOTH | OWN | {LAKE: None},
        defaults=f"# {PACKAGES} no:no:0\n{PACKAGES}   a:b:1\n{EXTENDED}=my.E\n\n{LAKE} my.C\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_set_already_stays_and_what_is_missing_is_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    case, file = CASES[name], tmp_path / "spark-defaults.conf"
    file.write_text(case.defaults)
    if case.arguments:
        arguments = f"{case.arguments} pyspark-shell".format(file=file)
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    else:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    builder = SparkSession.builder
    for key, value in case.builder.items():
        builder = builder.config(key, value)
    after = dict(options(delvec.configure(builder, **case.options)))
    assert {key: after.get(key) for key in case.after} == case.after
    assert "e:f:3" not in os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    assert options(delvec.configure(builder, **case.options)) == after


@pytest.mark.parametrize(
    ("master", "before", "after"),
    [
        ("", None, sys.executable),
        ("local[2]", None, sys.executable),
        ("local[2]", "/my/python", "/my/python"),
        ("spark://host:7077", None, None),
    ],
)
def test_workers_of_a_local_master_run_this_python_unless_another_is_set(
    monkeypatch: pytest.MonkeyPatch, master: str, before: str | None, after: str | None
) -> None:
    monkeypatch.setattr(jvm, "has_context", lambda: False)
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    else:
        monkeypatch.setenv("PYSPARK_PYTHON", before)
    builder = SparkSession.builder.master(master) if master else SparkSession.builder
    delvec.configure(builder, iceberg=False)
    assert os.environ.get("PYSPARK_PYTHON") == after


def test_an_iceberg_runtime_among_the_jars_of_spark_is_not_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert RUNTIME in options(delvec.configure(SparkSession.builder))["spark.jars.packages"]
    (tmp_path / "jars" / "iceberg-spark-runtime-4.3_2.13-2.0.0.jar").touch()
    assert with_iceberg(SparkSession.builder, iceberg=None, spark_version="4.3.0")
    assert options(delvec.configure(SparkSession.builder)) == {"spark.sql.extensions": EXTENSIONS}


def test_packages_of_the_submit_arguments_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    # Left there, they would win over those of the builder, and the runtime would be missing.
    arguments = "--packages a:b:1 --conf spark.x='1 2' --name n pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    builder = delvec.configure(SparkSession.builder)
    assert options(builder)["spark.jars.packages"] == f"a:b:1,{RUNTIME}"
    rest = "--conf 'spark.x=1 2' --name n pyspark-shell"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == f"--packages a:b:1,{RUNTIME} {rest}"
    again = delvec.configure(SparkSession.builder)
    assert options(again)["spark.jars.packages"] == f"a:b:1,{RUNTIME}"


def test_names_and_masters_are_seen_in_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = SparkSession.builder
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master=local[1] --name mine pyspark-shell")
    monkeypatch.setenv("MASTER", "local[3]")
    assert setting(builder, "spark.master") == "local[1]"
    assert setting(builder, "spark.app.name") == "mine"
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    assert setting(builder, "spark.master") == "local[3]"


def test_defaults_are_a_file_of_java_properties(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    for line in ("k v", "k=v", "k = v", "k:v", "k: v", "  k   v  ", "k \\\n   v"):
        text = f"! no\n# no\n\n{line}\nother \xe9\n"
        (tmp_path / "conf" / "spark-defaults.conf").write_bytes(text.encode("latin-1"))
        assert setting(SparkSession.builder, "k") == "v", line


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = SparkSession.builder.config("spark.remote", "sc://127.0.0.1")
    with pytest.raises(UnsupportedFeatureError, match="Spark Connect"):
        delvec.configure(remote)
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1")
    with pytest.raises(UnsupportedFeatureError, match="Spark Connect"):
        delvec.configure(SparkSession.builder)


def started_with(*pairs: tuple[str, str]) -> dict[str, str]:
    builder = SparkSession.builder
    for key, value in pairs:
        builder = builder.config(key, value)
    return options(_with_context(builder, None, None, quiet=True))


def test_the_ui_is_off_unless_spark_submit_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    ui = "spark.ui.enabled"
    assert started_with()[ui] == "false"
    assert started_with((ui, "true"))[ui] == "true"
    monkeypatch.setattr(jvm, "is_running", lambda: True)
    monkeypatch.setattr(settings, "started_with", lambda _: "")
    assert ui not in started_with()


def test_a_local_master_listens_to_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    bind, host = "spark.driver.bindAddress", "spark.driver.host"
    for master in ("local", "local[4]", "local[*, 2]"):
        found = started_with(("spark.master", master))
        assert (found[bind], found[host]) == ("127.0.0.1", "127.0.0.1")
    for master in ("spark://there:7077", "local-cluster[1,1,1024]"):
        assert not {bind, host} & started_with(("spark.master", master)).keys()
    assert started_with((host, "10.0.0.1")).get(bind) is None
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    assert not {bind, host} & started_with().keys()


def test_the_file_of_settings_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine.conf"
    mine.write_text("spark.a 1\nspark.b 1\\")
    arguments = f"--properties-file {mine} --name 'a b' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    with privately_submitted({"spark.b": "ä=\n2", "spark.c": "s3cr3t of a store"}):
        given = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        file = Path(given[1])
        text = file.read_text()
        modes = [oct(path.stat().st_mode & 0o777) for path in (file, file.parent)]
    assert modes == ["0o600", "0o700"]
    assert given[2:] == ["--name", "'a", "b'", "pyspark-shell"]
    assert text.splitlines() == [
        "spark.a 1",
        "spark.b 1\\",
        "",
        "spark.b=\\u00e4\\u003d\\u000a2",
        "spark.c=s3cr3t\\u0020of\\u0020a\\u0020store",
    ]
    assert not file.parent.exists()
    mine.unlink()
    with pytest.raises(InvalidArgumentError, match="names the properties file"):  # noqa: SIM117
        with privately_submitted({}):
            pass
