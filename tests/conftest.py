from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

import delvec
from tests.hostile.attack import SECRET, SECRET_VARIABLE
from tests.marks import mark_other_cases

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

SLICES = 12

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
    "tests/spark/delta/maintain/",
    "tests/spark/delta/scan/test_change_feed",
    "tests/spark/delta/write/test_bad_writes",
    "tests/spark/delta/write/test_concurrent_writes",
    "tests/spark/delta/write/test_conform_rows",
    "tests/spark/delta/write/test_data_files",
    "tests/spark/delta/write/test_delete_keys",
    "tests/spark/delta/write/test_feature_writes",
    "tests/spark/delta/write/test_given_rows",
    "tests/spark/delta/write/test_conversions",
    "tests/spark/delta/write/test_self_reading_sources",
    "tests/spark/delta/write/test_names",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    numbers = range(1, SLICES + 1)
    parser.addoption(
        "--slice", type=int, choices=numbers, help="run one of so many parts of the tests"
    )
    without = "deselect tests that ask for this fixture, as s3; may be given often"
    parser.addoption("--without", action="append", default=[], help=without)
    share = "first make an archive of Spark's classes, with which JVMs start in half the time"
    parser.addoption("--share-classes", action="store_true", help=share)
    none = "deselect what this machine cannot run; a test that is skipped then fails"
    parser.addoption("--no-skips", action="store_true", help=none)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Let the marks `quick_cases` and `first_cases` of a test choose among its cases."""
    made = yield
    if isinstance(made, list):
        mark_other_cases([item for item in made if isinstance(item, pytest.Function)])
    return made


@pytest.hookimpl(trylast=True)  # when `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the options leave out."""
    absent: set[str] = set(config.getoption("--without"))
    unskipped: bool = config.getoption("--no-skips")
    wanted: int | None = config.getoption("--slice")
    kept = [
        item
        for item in items
        if absent.isdisjoint(getattr(item, "fixturenames", ()))
        and not (unskipped and any(mark.args[0] for mark in item.iter_markers("skipif")))
    ]
    if wanted is not None:
        chosen = _slice(kept, wanted)
        kept = [item for item in kept if item.nodeid in chosen]
    names = {item.nodeid for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = kept


def _slice(items: list[pytest.Item], wanted: int) -> set[str]:
    """Choose one slice: the cases of a test are dealt out in turn, so that slices are alike."""
    cases: dict[str, list[str]] = {}
    for item in sorted(items, key=lambda item: item.nodeid):
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    return {
        node
        for test, nodes in cases.items()
        for number, node in enumerate(nodes, crc32(test.encode()))
        if number % SLICES == wanted - 1
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a skipped test fail if none may be."""
    report = yield
    if report.skipped and item.config.getoption("--no-skips") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in spite of --no-skips: {report.longrepr}"
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """Name what failed in the last lines: the messages above are as long as Java likes."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    for kind in ("failed", "error") if reporter else ():
        for report in reporter.stats.get(kind, ()):
            reporter.write_line(f"{kind}: {report.nodeid} ({report.when})")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Prepare once what all JVMs need, those that tests start as well."""
    if item.get_closest_marker("spark"):
        from tests.spark.jars import resolved_jars, share_classes  # noqa: PLC0415 - of PySpark

        resolved_jars()
        share_classes(create=item.config.getoption("--share-classes"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with both real engines, delta-spark and Iceberg; the first test that asks starts it.

    Iceberg has two catalogs: `lake`, which is folders, and `sqlite`, which is a database. Each has
    a namespace `db`.
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
            "spark.ui.enabled": "false",
            "spark.sql.ui.retainedExecutions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    )
    for catalog in ("lake", "sqlite"):
        session.sql(f"CREATE NAMESPACE {catalog}.db")
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
def pd() -> Any:  # noqa: ANN401
    return pytest.importorskip("pandas")


@pytest.fixture(scope="session")
def pl() -> Any:  # noqa: ANN401
    return pytest.importorskip("polars")


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of tables that other engines wrote."""
    folder = os.environ.get("DELVEC_GOLDEN")
    if not folder:
        pytest.skip("DELVEC_GOLDEN is not set: no folder of tables that other engines wrote")
    return Path(folder)
