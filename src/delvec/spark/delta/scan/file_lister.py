"""The Java class `FileLister`: a FileIndex of Spark that asks Python for its files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import DelvecError
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["literal_pickler", "make_lister"]

_CLASS: Final = "delvec.FileLister"
_PICKLER: Final = "pickler of literals"


def make_lister(
    spark: SparkSession,
    root: Any,  # noqa: ANN401
    schema: Any,  # noqa: ANN401
    size: int,
    name: str,
    list_files: Callable[[Any, Any], Any],
) -> Any:  # noqa: ANN401
    """Return a new FileLister.

    Args:
        spark: A classic session.
        root: The table's folder, a Hadoop path.
        schema: The partition and hidden columns, a struct of Java.
        size: Bytes of all files.
        name: How plans show the index.
        list_files: Called by Spark with partition filters and data filters when a query is planned;
            returns a Scala sequence of directories.
    """
    jvm.allow_calls_back(spark)
    lister = _new(spark, root, schema, size, name)
    lister.ask(_Callback(list_files))
    return lister


def literal_pickler(spark: SparkSession) -> Callable[[Any], bytes]:
    """Return a function that pickles a Scala sequence of literal values."""
    kept = jvm.cache(spark)
    if _PICKLER not in kept:
        kept[_PICKLER] = _new(spark, None, None, 0, "").pickled
    pickled: Callable[[Any], bytes] = kept[_PICKLER]
    return pickled


class _Callback:
    """A function of two arguments that the JVM can call."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def apply(self, first: Any, second: Any) -> Any:  # noqa: ANN401
        """Return the result, or an error's message: Py4J would bury an exception in a traceback."""
        try:
            return self._function(first, second)
        except DelvecError as error:
            return str(error)

    class Java:
        """The Java interface that this implements, as Py4J wants it declared."""

        implements: Final = ["java.util.function.BiFunction"]


def _new(spark: SparkSession, root: Any, schema: Any, size: int, name: str) -> Any:  # noqa: ANN401
    [constructor] = jvm.compiled(spark, _CLASS, _source()).getConstructors()
    kind = jvm.java_class(spark, "java.lang.Object")
    return constructor.newInstance(jvm.array_of(spark, kind, [root, schema, size, name]))


@cache
def _source() -> str:
    return resources("delvec.spark.delta.scan").joinpath("FileLister.java").read_text()
