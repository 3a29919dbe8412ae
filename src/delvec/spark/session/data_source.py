"""The data source `delvec`, registered with a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from delvec.datasource import DelvecDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOWN: Final = "DATA_SOURCE_ALREADY_EXISTS"
_ZONE: Final = "spark.sql.session.timeZone"


def register(spark: SparkSession) -> None:
    """Register the data source, for workers that cannot import `pyspark_delvec` by themselves."""
    # Tasks learn the settings that a session sets, not the defaults of others.
    spark.conf.set(_ZONE, str(spark.conf.get(_ZONE)))
    try:
        spark.dataSource.register(DelvecDataSource)
    except AnalysisException as error:
        if error.getCondition() != _KNOWN:  # Spark 4.0 fails if it has found it by itself
            raise
