"""Iceberg's runtime jar: which one fits a Spark, and whether a session gets one."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from delvec.errors import ChecksumError, MissingDependencyError
from delvec.spark import jvm
from delvec.spark.session.settings import PACKAGES, listed, spark_jars
from delvec.spark.session.start import jar_name

ICEBERG_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"

# One runtime jar per Spark version: https://iceberg.apache.org/multi-engine-support/
_VERSIONS: Final = {"4.0": "1.11.0", "4.1": "1.12.0"}
# SHA-256 of these jars, as they were published.
_CHECKSUMS: Final = {
    "4.0": "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
    "4.1": "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
}
_RUNTIME: Final = "iceberg-spark-runtime"
_INSTALL: Final = "pip install 'delvec[spark]'"

_LOG: Final = logging.getLogger("delvec")


def iceberg_coordinate(spark_version: str = pyspark.__version__) -> str:
    """Return the Maven coordinate of the Iceberg runtime for a Spark version.

    >>> iceberg_coordinate("4.1.4")
    'org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0'
    """
    minor = _minor(spark_version)
    if minor not in _VERSIONS:
        raise MissingDependencyError(
            f"Iceberg has no runtime for Spark {spark_version}; delvec knows those for"
            f" {' and '.join(_VERSIONS)}",
            dependency="pyspark~=4.1.0",
            hint=f"install what works together: {_INSTALL}; Delta tables need no jar, and work in"
            " a session with iceberg=False",
        )
    return f"org.apache.iceberg:{_RUNTIME}-{minor}_2.13:{_VERSIONS[minor]}"


def with_iceberg(
    builder: SparkSession.Builder,
    *,
    iceberg: bool | None,
    packages: Iterable[str] = (),
    spark_version: str = pyspark.__version__,
) -> bool:
    """Whether a session gets Iceberg; None means that it does if there is a runtime for it.

    A session that goes without for want of a runtime is logged, once per process.
    """
    if iceberg is not None:
        return iceberg
    if _minor(spark_version) in _VERSIONS or has_runtime(builder, packages):
        return True
    _warn(spark_version)
    return False


def has_runtime(builder: SparkSession.Builder, packages: Iterable[str] = ()) -> bool:
    """Whether the running JVM, or the one that would start, has a runtime without our doing."""
    if jvm.is_running():
        return jvm.class_exists(ICEBERG_CATALOG)
    jars = [*packages, *listed(builder, PACKAGES), *listed(builder, "spark.jars")]
    return any(_RUNTIME in jar for jar in jars) or any(spark_jars().glob(f"{_RUNTIME}-*.jar"))


def require_iceberg() -> None:
    """Refuse a JVM without the Iceberg runtime: packages are added only when one starts.

    A runtime that was downloaded for delvec is one that delvec knows. It is looked at when it is on
    the class path, before a session exists that would run anything of it.
    """
    if jar := jvm.jar_of(ICEBERG_CATALOG):
        if not jvm.has_context():
            _verify(jar)
        return
    coordinate = iceberg_coordinate()
    raise MissingDependencyError(
        "the JVM of this process runs already, and without the Iceberg runtime",
        dependency=coordinate,
        hint="begin with delvec.session() in a new Python process (restart the kernel), or pass"
        f" iceberg=False; under spark-submit add --packages {coordinate}",
    )


def _verify(jar: str) -> None:
    """Compare a jar of Ivy's folder, which has the group in its name, with what was published."""
    minor = _minor(pyspark.__version__)
    if minor not in _VERSIONS or Path(jar).name != jar_name(iceberg_coordinate()):
        return  # one of the user's own
    digest = sha256()
    with Path(jar).open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    if digest.hexdigest() != _CHECKSUMS[minor]:
        raise ChecksumError(
            "the Iceberg runtime that was downloaded is not the one that was published",
            path=jar,
            expected=f"SHA-256 {_CHECKSUMS[minor]}",
            found=digest.hexdigest(),
            hint="delete the file, and look at where your Maven mirror has it from; a build of your"
            " own is used without this check if spark.jars names it",
        )


def _minor(spark_version: str) -> str:
    return ".".join(spark_version.split(".")[:2])


@cache
def _warn(spark_version: str) -> None:
    _LOG.warning(
        "Iceberg has no runtime for Spark %s: this session is for Delta tables only."
        " With Iceberg: %s, which gets pyspark 4.1",
        spark_version,
        _INSTALL,
    )
