"""The door: Delta tables in `spark.sql`, by name and by path, without a jar.

A session whose door is open has three things more, all by Spark's own extension points:

- its session catalog is `DeltaCatalog.java`: tables whose provider is delta are our own,
- its analyzer has the rules of `Rules.java`, which replace reads and writes of these,
- the name `delta` of `format("delta")` and `USING delta` is `DeltaSource.java`.

The classes are compiled on the driver, once for a JVM, into a private folder that Spark's own class
loader then knows; executors need none of them. What they cannot answer they ask Python by `Link`.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping
from importlib.resources import files as resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from delvec.door import (
    alter_tables,
    commands,
    known_tables,
    new_tables,
    relations,
    row_changes,
    row_writes,
    utilities,
)
from delvec.door.known_tables import CATALOG, OURS, session_of_java
from delvec.door.refusals import thrown
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.spark import jvm
from delvec.statements.grammar import explained

if TYPE_CHECKING:
    from delvec.spark.jvm import Java

_CLASSES: Final = (
    "Link",
    "DeltaTable",
    "DeltaCatalog",
    "DeltaSource",
    "Statement",
    "Rules",
    "Parser",
)
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_DELTA_SPARK: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DATABRICKS: Final = "com.databricks.backend.daemon.driver.DriverLocal"
_installing: Final = Lock()


def enable_sql(spark: SparkSession) -> SparkSession:
    """Return a session of the same application in which Delta tables work by SQL and by name.

    Temporary views, settings, current database and functions are those of the given session, which
    stays as it is. A session whose door is open already is returned as it is.

        spark = delvec.enable_sql(spark)
        spark.sql("MERGE INTO db.orders t USING changes s ON t.id = s.id "
                  "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    Raises:
        UnsupportedFeatureError: The session is one of Spark Connect or Databricks, or has
            delta-spark's own extension.
    """
    jvm.require_running(spark, "enable_sql()")
    _require_free(spark)
    if known_tables.is_open(spark):
        return spark
    _install(spark)
    opened = SparkSession(spark.sparkContext, jvm.session_of(spark).cloneSession())
    opened.conf.set(CATALOG, OURS)
    # For `newSession`, which starts from the settings of the application.
    spark.sparkContext._jsc.sc().conf().set(CATALOG, OURS)  # noqa: SLF001
    return opened


def require_open(spark: SparkSession, what: str) -> None:
    """Refuse a session that `enable_sql` has not opened."""
    if not known_tables.is_open(spark):
        raise InvalidArgumentError(
            f"{what} needs a session whose SQL knows Delta tables",
            hint="open it: spark = delvec.enable_sql(spark)",
        )


def _require_free(spark: SparkSession) -> None:
    """Refuse sessions that have a Delta of their own."""
    for name, what in ((_DATABRICKS, "Databricks"), (_DELTA_SPARK, "delta-spark")):
        if jvm.class_exists(name):
            raise UnsupportedFeatureError(
                f"this session has {what}'s own Delta, and the name delta can have one meaning",
                feature=f"SQL beside {what}",
                hint="use delvec.DeltaTable there, or start Spark without its jar",
            )
    catalog = spark.conf.get(CATALOG, "")
    if catalog not in ("", "builtin", OURS):
        raise InvalidArgumentError(
            f"{CATALOG} is {catalog}, and delvec's catalog would hide it",
            hint="give that catalog another name, or use delvec.DeltaTable",
        )


def _install(spark: SparkSession) -> None:
    """Compile and load the classes, once for a JVM, and inject the rules into the application."""
    with _installing:
        jvm.allow_calls_back(spark)
        jvm.once(spark, "sql door", lambda: _load(spark))
        extensions = jvm.session_of(spark).extensions()
        if jvm.cache(spark).get("sql door of") != (known := extensions.hashCode()):
            rules = jvm.java_class(spark, "delvec.sql.Rules")
            extensions.injectHintResolutionRule(rules(True))
            extensions.injectResolutionRule(rules(False))
            extensions.injectParser(jvm.java_class(spark, "delvec.sql.Parser")())
            jvm.cache(spark)["sql door of"] = known


def _load(spark: SparkSession) -> Java:
    view = jvm.view_of(spark)
    loader = view.java.lang.Thread.currentThread().getContextClassLoader()
    # Spark removes this folder, which is private, when the application ends.
    folder = Path(tempfile.mkdtemp(prefix="delvec-sql-", dir=spark.sparkContext._temp_dir))  # noqa: SLF001
    for name in _CLASSES:
        compiler = view.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.setTargetVersion(8)
        compiler.cook(resources("delvec.door").joinpath(f"{name}.java").read_text())
        compiled = compiler.getBytecodes()
        jar = folder / f"{name}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for each in list(compiled.keySet()):
                archive.writestr(f"{each.replace('.', '/')}.class", bytes(compiled.get(each)))
            if name == "DeltaSource":
                archive.writestr(_SERVICE, f"delvec.sql.{name}\n")
        loader.addURL(view.java.io.File(str(jar)).toURI().toURL())
    link = jvm.java_class(spark, "delvec.sql.Link")
    link.to(_Answers())
    return link


def _parsed(spark: SparkSession, text: str) -> Java | None:
    try:
        explain = explained(text)
    except InvalidArgumentError:
        explain = None  # told with the position, where the statement itself is read
    found = utilities.statement(spark, text if explain is None else explain[1])
    if found is None:
        return None
    plan = found.of_spark(spark)
    if explain is None or found.title == utilities.REFUSED:
        return plan
    parser = jvm.session_of(spark).sessionState().sqlParser()
    shown = parser.parsePlan(f"EXPLAIN {explain[0]} SELECT 1")
    return shown.copy(plan, shown.mode())


_ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "load": known_tables.load,
    "open": known_tables.open_by_options,
    "exists": known_tables.exists,
    "read": known_tables.rows_of,
    "early": lambda spark, kind, plan: _EARLY[kind](spark, plan),
    "write": row_writes.statement,
    "save": row_writes.save,
    "batch": row_writes.write_batch,
    "run": commands.run,
    "stage": new_tables.stage,
    "commit staged": new_tables.commit_staged,
    "abort staged": new_tables.abort_staged,
    "truncate": row_changes.truncate,
    "alter": alter_tables.alter,
    "parse": _parsed,
}


_EARLY: Final[Mapping[str, Callable[[SparkSession, Any], Any]]] = {
    **dict.fromkeys(row_changes.KINDS, row_changes.command_of),
    "CreateTableLikeCommand": new_tables.created_like,
    "ShowPartitions": relations.shown_partitions,
    "UnresolvedRelation": relations.by_name,
    "UnresolvedDataSource": relations.by_path,
    "UnresolvedTableValuedFunction": relations.changes_of,
}


class _Answers:
    """What `Link.java` calls."""

    def apply(self, question: str, arguments: Java) -> Java:
        """Answer a question; its first argument is the session, or a table."""
        first, *others = list(arguments)
        spark = session_of_java(first)
        try:
            return _ANSWERS[question](spark, *others)
        except Exception as error:  # noqa: BLE001 - it is thrown again, in Java
            return thrown(spark, error)

    class Java:
        """The Java interface that this implements, as Py4J wants it declared."""

        implements: Final = ["java.util.function.BiFunction"]
