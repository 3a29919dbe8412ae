from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import delvec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# No deadlines: how fast a machine is must not decide a test. In CI the examples stay the same.
settings.register_profile(
    "delvec",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("delvec")

DELTA_SPARK = "io.delta:delta-spark_4.1_2.13:4.4.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with both real engines, delta-spark and Iceberg; the first test that asks starts it.

    Iceberg has two catalogs: `lake`, which is folders, and `sqlite`, which is a database.
    """
    sqlite = tmp_path_factory.mktemp("sqlite")
    session = delvec.session(
        tmp_path_factory.mktemp("warehouse"),
        master="local[2]",
        packages=[DELTA_SPARK, SQLITE],
        conf={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.catalog.sqlite": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.sqlite.type": "jdbc",
            "spark.sql.catalog.sqlite.uri": f"jdbc:sqlite:{sqlite}/catalog.db",
            "spark.sql.catalog.sqlite.warehouse": str(sqlite),
            "spark.sql.catalog.sqlite.jdbc.strict-mode": "true",  # namespaces have to be made
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of tables that other engines wrote."""
    folder = os.environ.get("DELVEC_GOLDEN")
    if not folder:
        pytest.skip("DELVEC_GOLDEN is not set: no folder of tables that other engines wrote")
    return Path(folder)
