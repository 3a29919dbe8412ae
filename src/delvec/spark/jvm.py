"""The one door to Spark's JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["class_exists", "hadoop_setting", "is_classic", "view_of"]


def is_classic(spark: SparkSession) -> bool:
    """Tell whether the session has a JVM of its own, as all have but Spark Connect clients."""
    return getattr(spark, "_jvm", None) is not None


def view_of(spark: SparkSession) -> Any:  # noqa: ANN401
    """Give the root of the session's Java packages.

    Raises:
        UnsupportedFeatureError: The session is a Spark Connect client, which has no JVM of its own.
    """
    if not is_classic(spark):
        raise UnsupportedFeatureError(
            "this needs a classic Spark session; a Spark Connect client has no JVM of its own",
            feature="Spark Connect",
            hint="start a classic session, for example by delvec.session()",
        )
    return spark._jvm  # noqa: SLF001


def class_exists(spark: SparkSession, name: str) -> bool:
    """Tell whether the session's JVM can load a class, jars added by `spark.jars` included."""
    jvm = view_of(spark)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(name.replace(".", "/") + ".class") is not None


def hadoop_setting(spark: SparkSession) -> Callable[[str], str | None]:
    """Give a function that looks a key up in the session's Hadoop configuration.

    That is where sessions hold the credentials of object stores, in clear or in a key store.
    """
    view_of(spark)
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    has_key_store = configuration.get("hadoop.security.credential.provider.path") is not None

    def get(key: str) -> str | None:
        value: str | None = configuration.get(key)
        if value is None and has_key_store and (secret := configuration.getPassword(key)):
            return "".join(secret)
        return value

    return get
