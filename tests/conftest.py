from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

import delvec
from tests.hostile.attack import SECRET, SECRET_VARIABLE
from tests.marks import mark_slow_cases

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

    from tests.s3.server import S3Server

# No deadlines: how fast a machine is must not decide a test. In CI the examples stay the same.
settings.register_profile(
    "delvec",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("delvec")

# Tests run much code a few times: it is not worth what the second compiler and more threads of a
# garbage collector cost. The first compiler alone would get too small a cache for its code.
_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:-UsePerfData"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _JVM)  # for each JVM of Spark, in children too
os.environ.setdefault("SPARK_LAUNCHER_OPTS", _JVM)  # for that which computes its command line
os.environ.setdefault(SECRET_VARIABLE, SECRET)  # what hostile tables look for

SLICES = 8

# Plans of a few rows cost more to compile than to interpret. Compiled they are where generated code
# is what is tested: in scans, and in writes that find their rows by one.
INTERPRETED = (
    "tests/cli/",
    "tests/conversion/",
    "tests/datasource/",
    "tests/hostile/",
    "tests/iceberg/",
    "tests/interop/",
    "tests/readers/",
    "tests/spark/delta/test_arguments",
    "tests/spark/delta/test_checkpoints",
    "tests/spark/delta/test_history",
    "tests/spark/delta/test_symlink_manifest",
    "tests/spark/delta/maintain/",
    "tests/spark/delta/scan/test_change_feed",
    "tests/spark/delta/write/test_bad_writes",
    "tests/spark/delta/write/test_bound_columns",
    "tests/spark/delta/write/test_clause_values",
    "tests/spark/delta/write/test_concurrent_writes",
    "tests/spark/delta/write/test_conform_rows",
    "tests/spark/delta/write/test_data_files",
    "tests/spark/delta/write/test_delete_keys",
    "tests/spark/delta/write/test_feature_writes",
    "tests/spark/delta/write/test_given_rows",
    "tests/spark/delta/write/test_identity_columns",
    "tests/spark/delta/write/test_implicit_casts",
    "tests/spark/delta/write/test_self_reading_sources",
    "tests/spark/delta/write/test_names_by_case",
    "tests/spark/delta/write/test_partition_overwrite",
    "tests/spark/delta/write/test_table_alias",
    "tests/spark/delta/write/test_type_widening",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    numbers = range(1, SLICES + 1)
    parser.addoption(
        "--slice", type=int, choices=numbers, help="run one of so many parts of the tests"
    )


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Let the mark `quick_cases` of a test decide which of its cases are slow."""
    made = yield
    if isinstance(made, list):
        mark_slow_cases([item for item in made if isinstance(item, pytest.Function)])
    return made


@pytest.hookimpl(trylast=True)  # when `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one slice: the cases of a test are dealt out in turn, so that slices are alike."""
    wanted: int | None = config.getoption("--slice")
    if wanted is None:
        return
    cases: dict[str, list[str]] = {}
    for item in sorted(items, key=lambda item: item.nodeid):
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    kept = {
        node
        for test, nodes in cases.items()
        for number, node in enumerate(nodes, crc32(test.encode()))
        if number % SLICES == wanted - 1
    }
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let no two JVMs download the same jars: those that tests start look for them as well."""
    if item.get_closest_marker("spark"):
        from tests.spark.jars import resolved_jars  # noqa: PLC0415 - it imports PySpark

        resolved_jars()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with both real engines, delta-spark and Iceberg; the first test that asks starts it.

    Iceberg has two catalogs: `lake`, which is folders, and `sqlite`, which is a database.
    """
    from tests.spark.jars import resolved_jars  # noqa: PLC0415 - it imports PySpark

    sqlite = tmp_path_factory.mktemp("sqlite")
    session = delvec.session(
        tmp_path_factory.mktemp("warehouse"),
        master="local[2]",
        conf={
            "spark.jars": ",".join(resolved_jars()),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.catalog.sqlite": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.sqlite.type": "jdbc",
            "spark.sql.catalog.sqlite.uri": f"jdbc:sqlite:{sqlite}/catalog.db",
            "spark.sql.catalog.sqlite.warehouse": str(sqlite),
            "spark.sql.catalog.sqlite.jdbc.strict-mode": "true",  # namespaces have to be made
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
            "spark.sql.shuffle.partitions": "2",
            # Iceberg's cache of deletes keeps keys in the type that their column had before: after
            # int became bigint, its own reader finds no rows for them.
            "spark.sql.iceberg.executor-cache.enabled": "false",
            # Stages are compiled as in production, the small projections around them are not.
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.ui.enabled": "false",
            "spark.sql.ui.retainedExecutions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def interpreted_plans(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Spark interpret its plans in the tests of `INTERPRETED`."""
    if "spark" not in request.fixturenames or not request.node.nodeid.startswith(INTERPRETED):
        yield
        return
    from tests.spark.delta.readers import INTERPRETED as SETTINGS  # noqa: PLC0415
    from tests.spark.delta.readers import settings_of  # noqa: PLC0415

    with settings_of(request.getfixturevalue("spark"), SETTINGS):
        yield


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server on loopback, with an empty bucket `lake`."""
    from tests.s3.server import MISSING, find_server, running_server  # noqa: PLC0415

    program = find_server()
    if program is None:
        pytest.skip(MISSING)
    with running_server(program, tmp_path_factory.mktemp("s3")) as running:
        running.create_bucket("lake")
        yield running


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of tables that other engines wrote."""
    folder = os.environ.get("DELVEC_GOLDEN")
    if not folder:
        pytest.skip("DELVEC_GOLDEN is not set: no folder of tables that other engines wrote")
    return Path(folder)
