"""Errors of Python on their way through the JVM to the caller of `spark.sql`."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from pyspark.errors.exceptions.captured import CapturedException

from delvec.errors import ConstraintError, DelvecError, UnsupportedFeatureError
from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.spark.jvm import Java

_KEPT: Final = 100
_thrown: Final[OrderedDict[int, Exception]] = OrderedDict()


def thrown(spark: SparkSession, error: Exception) -> Java:
    """Return an error as an exception of Java, by which PySpark raises one of its own.

    That is an AnalysisException, but for rows that violate a constraint, which is no reason to
    write the statement another way, and for what is not supported.
    """
    origin = getattr(error, "_origin", None)
    if origin is not None and not isinstance(error, DelvecError):
        return origin
    none = jvm.java_class(spark, "scala.Option").empty()
    maps = jvm.java_class(spark, "org.apache.spark.api.python.PythonUtils")
    empty = maps.toScalaMap({})
    contexts = jvm.array_of(spark, jvm.java_class(spark, "org.apache.spark.QueryContext"), [])
    if isinstance(error, ConstraintError):
        text = maps.toScalaMap({"errorMessage": str(error)})
        exception = jvm.java_class(spark, "org.apache.spark.SparkRuntimeException")(
            "USER_RAISED_EXCEPTION", text, None, contexts, ""
        )
    elif isinstance(error, UnsupportedFeatureError):
        exception = jvm.java_class(spark, "java.lang.UnsupportedOperationException")(str(error))
    else:
        exception = jvm.java_class(spark, "org.apache.spark.sql.AnalysisException")(
            str(error), none, none, none, none, empty, contexts
        )
    _thrown[_identity(spark, exception)] = error
    while len(_thrown) > _KEPT:
        _thrown.popitem(last=False)
    return exception


def original(spark: SparkSession, error: Exception) -> Exception:
    """Return the error of Python that an exception of PySpark carried, or that exception."""
    origin = getattr(error, "_origin", None) if isinstance(error, CapturedException) else None
    return error if origin is None else _thrown.get(_identity(spark, origin), error)


def _identity(spark: SparkSession, exception: Java) -> int:
    return int(jvm.java_class(spark, "java.lang.System").identityHashCode(exception))
