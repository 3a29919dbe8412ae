"""Spark's JVM: starting it, and the one module that reaches into it."""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from importlib.resources import files as resources
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import unquote

from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession, types

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

Java: TypeAlias = Any
"""An object of the JVM."""
_compiling = Lock()
_starting_calls_back = Lock()


def is_running() -> bool:
    """Whether there is a JVM: one that was started here, or spark-submit's."""
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # noqa: SLF001
        SparkContext._ensure_initialized()  # noqa: SLF001
    return SparkContext._gateway is not None  # noqa: SLF001


def active_session() -> SparkSession | None:
    """Return the session of this thread, else that of the process; None if none runs."""
    if SparkContext._active_spark_context is None:  # noqa: SLF001
        return None
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001


def has_context() -> bool:
    """Whether a Spark context runs in the JVM."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001


def is_classic(spark: SparkSession) -> bool:
    """Whether the session has a JVM of its own, as all have except Spark Connect clients."""
    return getattr(spark, "_jvm", None) is not None


def require_running(spark: SparkSession, what: str) -> None:
    """Refuse a session that cannot read and write rows for us."""
    if not is_classic(spark):
        raise UnsupportedFeatureError(
            f"{what} needs a classic Spark session; a Spark Connect client has no JVM of its own",
            feature="Spark Connect",
            hint="start a classic session, for example by delvec.session(); calls that write no"
            " rows need none: DeltaTable.for_path(None, path)",
        )
    if spark.sparkContext._jsc is None:  # noqa: SLF001
        raise InvalidArgumentError(
            f"{what} needs a running Spark session, and this one was stopped",
            hint="start a new one, for example by delvec.session(), and open the table with it",
        )


def view_of(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return the root of the session's Java packages."""
    if spark is None:
        raise InvalidArgumentError(
            "this needs a Spark session, not None",
            hint="start one, for example by delvec.session()",
        )
    if not is_classic(spark):
        raise UnsupportedFeatureError(
            "this needs a classic Spark session; a Spark Connect client has no JVM of its own",
            feature="Spark Connect",
            hint="start a classic session, for example by delvec.session()",
        )
    return spark._jvm  # noqa: SLF001


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread, as `createDataFrame` does.

    Spark loads catalogs by the settings of the active session. A thread that has none does not know
    those of a session.
    """
    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    sessions.setActiveSession(session_of(spark))


def class_exists(name: str) -> bool:
    return jar_of(name) is not None


def jar_of(name: str) -> str | None:
    """Return the jar that the running JVM would load a class from; None if it has none."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = loader.getResource(name.replace(".", "/") + ".class")
    if found is None:
        return None
    # jar:file:/folder/name.jar!/org/...
    return unquote(found.toString().partition("!/")[0].removeprefix("jar:").removeprefix("file:"))


def hadoop_setting(spark: SparkSession) -> Callable[[str], str | None]:
    """Return a lookup in the session's Hadoop configuration, and in the key store that it names."""
    view_of(spark)
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    has_key_store = configuration.get("hadoop.security.credential.provider.path") is not None

    def get(key: str) -> str | None:
        value: str | None = configuration.get(key)
        if value is None and has_key_store and (secret := configuration.getPassword(key)):
            return "".join(secret)
        return value

    return get


def tasks_ended(spark: SparkSession, longest: float) -> bool:
    """Cancel all jobs and wait until no task runs, at most so many seconds; whether that is so.

    The scheduler is asked: the status tracker lags behind it by a tenth of a second and more.
    """
    scheduler = spark.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001
    end = time.monotonic() + longest
    while True:
        spark.sparkContext.cancelAllJobs()
        if not any(items(scheduler.runningTasksByExecutors().values())):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.05)


def cache(spark: SparkSession) -> dict[Any, Any]:
    """Return a cache that lives as long as this JVM, for objects that are costly to make."""
    things: dict[Any, Any] = view_of(spark).__dict__.setdefault("_delvec", {})
    return things


def once(spark: SparkSession, key: Any, make: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Return what `make` made when this was first asked for, see `cache`."""
    things = cache(spark)
    if key not in things:
        things[key] = make()
    return things[key]


def java_class(spark: SparkSession, name: str) -> Any:  # noqa: ANN401
    """Return a class by its full name, kept: in `view_of(spark).java.util` every dot is a call."""
    return once(spark, name, lambda: reduce(getattr, name.split("."), view_of(spark)))


def compile_java(spark: SparkSession, name: str, source: str) -> Any:  # noqa: ANN401
    """Return a Java class, compiled on the driver by the compiler of Spark's generated code.

    Compiled once for a JVM, in some 0.3 s; executors do not have it.
    """
    view, classes = view_of(spark), cache(spark)
    # Py4J knows methods by the name of their class: of two classes of one name, one cannot be used.
    with _compiling:
        if name not in classes:
            classes[name] = _compiled(view, source).getClassLoader().loadClass(name)
        return classes[name]


def load_java(spark: SparkSession, package: str, name: str, *arguments: Any) -> Any:  # noqa: ANN401
    """Return a new object of the class `delvec.<name>`, which `<name>.java` of a package has."""
    kept, key = cache(spark), f"delvec.{name}"
    if key not in kept:
        compile_java(spark, key, resources(package).joinpath(f"{name}.java").read_text())
    [constructor] = kept[key].getConstructors()
    objects = java_class(spark, "java.lang.Object")
    return constructor.newInstance(array_of(spark, objects, arguments))


def install_java(
    spark: SparkSession, package: str, name: str, *, source: str = "", service: str = ""
) -> Path:
    """Compile `<name>.java` of a package, or a text, for the driver's own loader; return its jar.

    The jar is in a folder of its own, which only this user may enter and which Spark removes when
    the application ends. It can be the provider of a service.
    """
    source = source or resources(package).joinpath(f"{name}.java").read_text()
    [line] = [line.strip() for line in source.splitlines() if line.strip().startswith("package ")]
    view, own = view_of(spark), f"{line[8:-1]}.{name}"
    compiled = _compiled(view, source).getBytecodes()
    jar = Path(tempfile.mkdtemp(prefix="delvec-", dir=spark.sparkContext._temp_dir), f"{name}.jar")  # noqa: SLF001
    with zipfile.ZipFile(jar, "w") as archive:
        for each in list(compiled.keySet()):
            archive.writestr(f"{each.replace('.', '/')}.class", bytes(compiled.get(each)))
        if service:
            archive.writestr(f"META-INF/services/{service}", f"{own}\n")
    loader = view.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(view.java.io.File(str(jar)).toURI().toURL())
    return jar


def _compiled(view: Any, source: str) -> Java:  # noqa: ANN401
    """Return the compiler of Spark's generated code, after it has compiled a source."""
    compiler = view.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(view.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.setTargetVersion(8)  # static methods of interfaces
    compiler.cook(source)
    return compiler


def allow_calls_back(spark: SparkSession) -> None:
    """Let the JVM, and nobody else, call objects of this process, as `foreachBatch` does.

    Py4J's callback server takes calls from everybody on this machine unless it has a token. One
    that was started before, as by `foreachBatch`, stays as it is.
    """
    gateway = _gateway(spark)
    with _starting_calls_back:
        if gateway.__dict__.get("_callback_server") is not None:
            return
        token = gateway.gateway_parameters.auth_token
        gateway.callback_server_parameters.auth_token = token
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        if isinstance(gateway, ClientServer):
            _tell_token(spark, token)


def _tell_token(spark: SparkSession, token: str) -> None:
    """Let the JVM send a token with its calls: PySpark made it forget the one that it had.

    `resetCallbackClient` tells the JVM the port, by a copy of the client that lacks the token.
    """
    server = JavaObject("GATEWAY_SERVER", _gateway(spark)._gateway_client)  # noqa: SLF001
    client, gateway = server.getCallbackClient(), server.getGateway()
    seconds = java_class(spark, "java.util.concurrent.TimeUnit").SECONDS
    sockets = java_class(spark, "javax.net.SocketFactory").getDefault()
    address, port = client.getAddress(), client.getPort()
    told = java_class(spark, "py4j.PythonClient")(
        gateway, None, port, address, 30, seconds, sockets, server, True, 0, token
    )
    field = gateway.getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    field.set(gateway, told)


def java_type(spark: SparkSession, kind: types.DataType) -> Any:  # noqa: ANN401
    return java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(kind.json())


def allows_cast(
    spark: SparkSession, rule: str, have: types.DataType, wanted: types.DataType
) -> bool:
    """Ask a predicate of Spark's `Cast` about two types."""
    cast = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Cast")
    return bool(getattr(cast, rule)(java_type(spark, have), java_type(spark, wanted)))


def array_of(spark: SparkSession, kind: Any, values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return a Java array of some values; each costs a call."""
    array = _gateway(spark).new_array(kind, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def items(sequence: Any) -> Iterator[Any]:  # noqa: ANN401
    """Iterate over a Scala sequence; each value costs two calls."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def class_name(thing: Any) -> str:  # noqa: ANN401
    """Return the simple name of an object's class, such as `Filter`."""
    return str(thing.getClass().getSimpleName())


def to_seq(spark: SparkSession, values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return a Scala sequence of some values; each costs a call."""
    buffer = java_class(spark, "java.util.ArrayList")()
    for value in values:
        buffer.add(value)
    converters = java_class(spark, "scala.jdk.javaapi.CollectionConverters")
    return converters.asScala(buffer).toSeq()


def _gateway(spark: SparkSession) -> Any:  # noqa: ANN401
    view_of(spark)
    return spark.sparkContext._gateway  # noqa: SLF001


def session_of(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return the session's Java object."""
    view_of(spark)
    return spark._jsparkSession  # noqa: SLF001


def frame_of(spark: SparkSession, plan: Any, session: Any = None) -> DataFrame:  # noqa: ANN401
    """Return the rows of a logical plan, of a session of the JVM if it is another."""
    datasets = java_class(spark, "org.apache.spark.sql.classic.Dataset")
    own = session_of(spark) if session is None else session
    return DataFrame(datasets.ofRows(own, plan), spark)


def copied_session(spark: SparkSession, settings: Mapping[str, str]) -> Any:  # noqa: ANN401
    """Return a copy of the session, in Java, with other settings."""
    copy = session_of(spark).cloneSession()
    for key, value in settings.items():
        copy.conf().set(key, value)
    return copy


def in_copied_session(
    spark: SparkSession, rows: DataFrame, settings: Mapping[str, str]
) -> DataFrame:
    """Return the same rows in a `copied_session`."""
    plan: Any = rows._jdf.logicalPlan()  # noqa: SLF001
    return frame_of(spark, plan, copied_session(spark, settings))
