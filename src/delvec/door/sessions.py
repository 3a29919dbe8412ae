"""Start or configure Spark for delvec, on top of the user's own settings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from delvec.calls import explained_call
from delvec.door.door import enable_sql
from delvec.errors import DelvecError, InvalidArgumentError, UnsupportedFeatureError
from delvec.spark import jvm
from delvec.spark.session import iceberg_runtime, settings
from delvec.spark.session.data_source import register
from delvec.spark.session.settings import PACKAGES, listed, privately_submitted, setting
from delvec.spark.session.start import download_alone, start_jvm

_ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_EXTENSIONS: Final = "spark.sql.extensions"
# A source of Python cannot say that it knows `availableNow`: without this, the run after a crash
# repeats the batch that was interrupted, and ends.
_CATCH_UP: Final = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
_IN_ONE_PROCESS: Final = re.compile(r"local(\[.*\])?")
_ADDRESSES: Final = ("spark.driver.bindAddress", "spark.driver.host")
_HAS_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


@explained_call()
def session(  # noqa: PLR0913
    warehouse: str | os.PathLike[str] | None = None,
    *,
    app_name: str | None = None,
    master: str | None = None,
    catalog: str = "lake",
    iceberg: bool | None = None,
    packages: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
    quiet: bool = True,
    sql: bool | None = None,
) -> SparkSession:
    """Start Spark, or return the running session, ready for Delta and Iceberg tables.

    The first start downloads the Iceberg runtime jar (about 50 MB) into Ivy's cache. Where Iceberg
    has none for the installed Spark, the session starts without it, which is logged once; calls on
    Iceberg tables then fail with the versions that work together.

    Spark's UI is off, unless `conf` or another setting has `spark.ui.enabled`, or spark-submit
    started the JVM; with a local master everything else that Spark opens listens on 127.0.0.1,
    unless an address is set.

        spark = delvec.session(warehouse="warehouse")
        spark.sql("CREATE TABLE lake.db.orders (id BIGINT) USING iceberg")

    Args:
        warehouse: The folder or URI of the Iceberg catalog, created by the first write; by default
            the folder `warehouse`, unless the catalog is configured already.
        app_name: The name of the application; by default `delvec`, unless one is configured.
        master: Where to run; by default on all cores of this machine, unless one is configured.
        catalog: The name of the Iceberg catalog (of Hadoop type) in the warehouse.
        iceberg: False starts without any jar, for work on Delta tables only; True fails where
            Iceberg has no runtime for this Spark; None takes one if there is one.
        packages: More Maven coordinates.
        conf: More Spark settings; they override those of delvec. The JVM gets them by a file that
            nobody else can read, so they may hold secrets; only its own options, such as
            `spark.driver.extraJavaOptions`, are on its command line.
        quiet: Hold back what the JVM prints while it starts, and log errors only.
        sql: False leaves `spark.sql` as it is; True fails where `enable_sql` refuses the session;
            None opens the session as `enable_sql` does, where that is possible.

    Raises:
        MissingDependencyError: A JVM is running, without the Iceberg runtime; or `iceberg=True` and
            Iceberg has no runtime for this Spark.
        ChecksumError: The Iceberg runtime that was downloaded is not the published one.
        UnsupportedFeatureError: The session would be one of Spark Connect; or `sql=True`, and it
            has another Delta.
        InvalidArgumentError: The catalog is configured already, with a different warehouse.
    """
    builder = SparkSession.builder
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    if not jvm.has_context():
        builder = _with_context(builder, app_name, master, quiet=quiet)
    iceberg = iceberg_runtime.with_iceberg(builder, iceberg=iceberg, packages=packages)
    if iceberg and warehouse is not None:
        _require_no_other_warehouse(builder, catalog, os.fspath(warehouse))
    builder = configure(
        builder,
        warehouse="warehouse" if warehouse is None else warehouse,
        catalog=catalog,
        iceberg=iceberg,
        packages=packages,
        sql=sql,
    )
    if not setting(builder, _CATCH_UP):
        builder = builder.config(_CATCH_UP, "true")
    options = builder._options  # noqa: SLF001
    with ExitStack() as start:
        if not jvm.is_running():
            ivy = setting(builder, "spark.jars.ivy")
            with privately_submitted(options), download_alone(listed(builder, PACKAGES), ivy):
                start.enter_context(start_jvm(options, quiet=quiet))
        if iceberg:
            iceberg_runtime.require_iceberg()
        spark = builder.getOrCreate()
    register(spark)
    return spark


@explained_call()
def configure(
    builder: SparkSession.Builder,
    *,
    warehouse: str | os.PathLike[str] | None = None,
    catalog: str = "lake",
    iceberg: bool | None = None,
    packages: Sequence[str] = (),
    sql: bool | None = None,
) -> SparkSession.Builder:
    """Add what delvec needs to a builder; keep everything that is set already.

    Packages and extensions are added to those of the builder, of spark-submit, of
    `PYSPARK_SUBMIT_ARGS` and of `spark-defaults.conf`. A configured catalog of that name stays, and
    so does another Iceberg runtime.

    Workers of a local master, which is the default, run this Python, unless PYSPARK_PYTHON is set;
    so name another master before this call.

    Where the builder's `getOrCreate` starts the JVM, PySpark puts all its settings onto command
    lines, which all users of the machine can read; `session` does not.

        builder = delvec.configure(SparkSession.builder.appName("mine"), warehouse="warehouse")
        spark = builder.getOrCreate()

    Args:
        builder: As from `SparkSession.builder`.
        warehouse: The folder or URI of an Iceberg catalog of Hadoop type; None adds no catalog.
        catalog: The name of that catalog.
        iceberg: False adds no jar, for work on Delta tables only; True fails where Iceberg has no
            runtime for this Spark; None adds one if there is one.
        packages: More Maven coordinates.
        sql: False leaves `spark.sql` of the builder's session as it is; with True its `getOrCreate`
            fails where `enable_sql` refuses the session; None opens it where that is possible.

    Raises:
        MissingDependencyError: `iceberg=True`, and Iceberg has no runtime for this Spark.
        UnsupportedFeatureError: The builder is one of Spark Connect, whose server has the jars.
    """
    if setting(builder, "spark.remote") or os.environ.get("SPARK_REMOTE"):
        raise UnsupportedFeatureError(
            "delvec cannot configure a Spark Connect server from its client",
            feature="Spark Connect",
            hint="configure the server, or use a classic session (no .remote(), no SPARK_REMOTE)",
        )
    if not jvm.has_context() and (setting(builder, "spark.master") or "local").startswith("local"):
        # Workers must run the Python that has delvec; PySpark would run any `python3` of the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    catalogs: dict[str, str] = {}
    wanted_packages = _joined(listed(builder, PACKAGES), packages)
    extensions = listed(builder, _EXTENSIONS)
    if iceberg_runtime.with_iceberg(builder, iceberg=iceberg, packages=packages):
        if not iceberg_runtime.has_runtime(builder, packages):
            wanted_packages = _joined(wanted_packages, [iceberg_runtime.iceberg_coordinate()])
        extensions = _joined(extensions, [_ICEBERG_EXTENSIONS])
        if warehouse is not None and not setting(builder, f"spark.sql.catalog.{catalog}"):
            catalogs = _hadoop_catalog(catalog, os.fspath(warehouse))
    for key, value in catalogs.items():
        if not setting(builder, key):
            builder = builder.config(key, value)
    if wanted_packages:
        builder = builder.config(PACKAGES, ",".join(wanted_packages))
        settings.submit_packages(wanted_packages)
    if extensions:
        builder = builder.config(_EXTENSIONS, ",".join(extensions))
    return builder if sql is False else _OpeningBuilder(builder, is_asked=bool(sql))


class _OpeningBuilder(SparkSession.Builder):
    """A builder whose session is opened for SQL, and is the one that later builders return."""

    def __init__(self, given: SparkSession.Builder, *, is_asked: bool) -> None:
        super().__init__()
        self._options = given._options  # noqa: SLF001
        self._is_asked = is_asked

    def getOrCreate(self) -> SparkSession:  # noqa: N802 - it is PySpark's
        """Return the session of the application, opened."""
        spark = super().getOrCreate()
        try:
            opened = enable_sql(spark)
        except DelvecError:
            if self._is_asked:
                raise
            return spark
        if opened is not spark:
            SparkSession._instantiatedSession = opened  # noqa: SLF001
            jvm.activate(opened)
            sessions = jvm.java_class(opened, "org.apache.spark.sql.classic.SparkSession")
            sessions.setDefaultSession(jvm.session_of(opened))
        return opened


def _with_context(
    builder: SparkSession.Builder, app_name: str | None, master: str | None, *, quiet: bool
) -> SparkSession.Builder:
    """Set how Spark itself runs, where the user has not set it."""
    wanted = {"spark.app.name": "delvec", "spark.master": "local[*]"}
    if not jvm.is_running():  # that of spark-submit is an application of the user's own
        wanted["spark.ui.enabled"] = "false"
    if quiet:
        wanted |= {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    if master:
        builder = builder.master(master)
    if app_name:
        builder = builder.appName(app_name)
    for key, value in wanted.items():
        if not setting(builder, key):
            builder = builder.config(key, value)
    if _IN_ONE_PROCESS.fullmatch(setting(builder, "spark.master")) and not (
        any(setting(builder, key) for key in _ADDRESSES) or os.environ.get("SPARK_LOCAL_IP")
    ):
        # There is nobody else to talk to: Spark would listen on the address of the machine.
        for key in _ADDRESSES:
            builder = builder.config(key, "127.0.0.1")
    return builder


def _require_no_other_warehouse(
    builder: SparkSession.Builder, catalog: str, warehouse: str
) -> None:
    """Refuse a different warehouse for a configured catalog: it would be silently ignored."""
    name = f"spark.sql.catalog.{catalog}"
    session = SparkSession._instantiatedSession if jvm.has_context() else None  # noqa: SLF001

    def configured(key: str) -> str:
        return (session.conf.get(key, "") if session else "") or setting(builder, key)

    there = configured(f"{name}.warehouse")
    if configured(name) and there != _absolute(warehouse):
        raise InvalidArgumentError(
            f"the catalog {catalog} is configured already, in {there or 'no warehouse'},"
            f" not in {warehouse}",
            hint="omit the warehouse to use that one, or name another catalog",
        )


def _hadoop_catalog(name: str, warehouse: str) -> dict[str, str]:
    return {
        f"spark.sql.catalog.{name}": iceberg_runtime.ICEBERG_CATALOG,
        f"spark.sql.catalog.{name}.type": "hadoop",
        f"spark.sql.catalog.{name}.warehouse": _absolute(warehouse),
    }


def _absolute(warehouse: str) -> str:
    return warehouse if _HAS_SCHEME.match(warehouse) else str(Path(warehouse).resolve())


def _joined(values: Iterable[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*values, *more]))
