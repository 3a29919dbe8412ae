"""Traces of rows, by conditions of Spark, compared with the bytes of every file on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable
from delvec.delta.traces.report import TracePlace, TracesReport
from delvec.errors import InvalidArgumentError
from tests.delta.vacuum.aging import age
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

MARKER = "MARKER0815"
WHERE = f"name = '{MARKER}'"
COLUMNS = "id bigint, name string, region string"


@pytest.fixture(autouse=True)
def plain_files(spark: SparkSession) -> Iterator[None]:
    """Have files written whose bytes tell whether a string is in them."""
    with settings_of(spark, {"spark.sql.parquet.compression.codec": "uncompressed"}):
        yield


def made(
    spark: SparkSession,
    path: Path,
    properties: dict[str, str] | None = None,
    *,
    partitioned: bool = False,
) -> DeltaTable:
    """Let delta-spark make a table of two files, whose bytes can be searched."""
    parts = ["region"] if partitioned else []
    spark_tables.create(spark, path, COLUMNS, partitioned_by=parts, properties=properties)
    for first, third in ((1, MARKER), (11, "Tom")):
        rows = f"({first}, 'Zoe', 'n'), ({first + 1}, 'Uwe', 'n'), ({first + 2}, '{third}', 'n')"
        spark_tables.sql(
            spark, path, f"INSERT INTO {{T}} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}"
        )
    return DeltaTable.for_path(spark, path)


def found(report: TracesReport) -> dict[str, int]:
    """How many rows there are of each kind; files for places without rows."""
    kinds: dict[str, int] = {}
    for place in report.places:
        kinds[place.kind] = kinds.get(place.kind, 0) + (1 if place.rows is None else place.rows)
    return kinds


def holding(root: Path) -> set[str]:
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and MARKER.encode() in path.read_bytes()
    }


def _facts(place: TracePlace) -> tuple[object, ...]:
    return place.kind, place.path, place.rows, place.versions, place.detail


def agrees(table: DeltaTable, path: Path) -> dict[str, int]:
    """Compare traces with the bytes on disk; only checkpoints are compressed."""
    report = table.traces(WHERE)
    paths = {place.path for place in report.places}
    held = holding(path)
    assert held <= paths
    assert all(".checkpoint." in each or "_sidecars" in each for each in paths - held)
    tuples = DeltaTable.for_path(None, path).traces([("name", "=", MARKER)])
    assert [_facts(place) for place in tuples.places] == [_facts(place) for place in report.places]
    assert report.is_empty == (not held)
    return found(report)


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("change_feed", [False, True], ids=["no-feed", "feed"])
def test_an_erasure_step_by_step_agrees_with_the_bytes_of_every_file(
    spark: SparkSession, tmp_path: Path, *, partitioned: bool, change_feed: bool
) -> None:
    path = tmp_path / "t"
    feed = {"delta.enableChangeDataFeed": str(change_feed).lower()}
    table = made(spark, path, feed, partitioned=partitioned)
    assert agrees(table, path)["live"] == 1
    table.update({"id": "id + 100"}, where=WHERE)  # writes change files
    before = agrees(table, path)
    assert (before["live"], before["deleted"]) == (1, 1)
    assert before.get("change", 0) == 2 * change_feed
    table.delete(WHERE)
    after = agrees(table, path)
    assert "live" not in after
    assert after["log"] >= 2  # the operations name the value as well
    table.purge()
    purged = agrees(table, path)
    assert "deleted" not in purged
    assert purged["removed"] == 2
    table.vacuum()
    assert agrees(table, path)["removed"] == 2
    table.vacuum(retention_hours=0, force=True)
    assert set(agrees(table, path)) == {"log"}
    table.checkpoint()
    age(path / "_delta_log", days=40)
    assert set(agrees(table, path)) == {"log"}
    table.clean_log()
    assert agrees(table, path) == {}
    assert sorted(row.name for row in table.to_df().collect()) == sorted(
        ["Zoe", "Uwe", "Zoe", "Uwe", "Tom"]
    )


def test_conditions_of_spark_find_rows_that_tuples_cannot_express(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = made(spark, path)
    table.delete(WHERE)
    for where in (
        f"lower(name) = '{MARKER.lower()}'",
        f"name LIKE '%{MARKER[3:8]}%'",
        functions.col("name").startswith(MARKER[:8]),
        "id IN (SELECT id FROM VALUES (3), (4) AS wanted(id)) AND name <> 'Uwe'",
    ):
        report = table.traces(where)
        assert found(report) == {"deleted": 1}
        assert not report.log_judged
    df = table.to_df()
    assert found(table.traces(df["name"] == MARKER))["deleted"] == 1
    with pytest.raises(InvalidArgumentError, match="nam"):
        table.traces("nam = 'x'")
    with pytest.raises(InvalidArgumentError):
        table.traces("name = = 'x'")


@pytest.mark.slow
def test_renamed_and_dropped_columns_are_searched_by_spark_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = made(spark, path, {"delta.columnMapping.mode": "name"})
    spark_tables.sql(spark, path, "ALTER TABLE {T} RENAME COLUMN name TO called")
    assert found(table.traces(f"called = '{MARKER}'"))["live"] == 1
    spark_tables.sql(spark, path, "ALTER TABLE {T} DROP COLUMN called")
    report = table.traces(f"called = '{MARKER}'")
    assert found(report)["dropped"] == 1
    assert "columns of version" in report.notes[0]
    spark_tables.sql(
        spark,
        path,
        "ALTER TABLE {T} ADD COLUMN called string",
        f"INSERT INTO {{T}} VALUES (77, 'n', '{MARKER}')",
    )
    both = found(table.traces(f"called = '{MARKER}'"))
    assert (both["live"], both["dropped"]) == (1, 1)


def test_a_dropped_column_is_purged_though_its_name_is_one_of_another_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = made(spark, path, {"delta.columnMapping.mode": "name"})
    rows = sorted(row.id for row in table.to_df().collect())
    table.drop_column("name")
    table.add_columns("name bigint")
    assert found(table.traces(WHERE))["dropped"] == 1
    # Strings of the dropped column are no numbers: they match nothing, and raise nothing.
    assert "dropped" not in found(table.traces("name = 5"))
    assert not table.traces("name = 5").log_judged
    report = table.purge()
    assert (report.files_removed, report.files_added) == (2, 1)
    assert table.purge().version is None  # nothing is left to do
    table.vacuum(retention_hours=0, force=True)
    assert set(found(table.traces(WHERE))) == {"log"}
    assert not [each for each in holding(path) if "_delta_log" not in each]
    assert sorted(row.id for row in table.to_df().collect()) == rows


@pytest.mark.slow
def test_files_that_are_no_data_do_not_stop_the_job(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path, partitioned=True)
    (path / "region=n" / "broken.parquet").write_bytes(b"PAR1\xff\xfePAR1")
    (path / "notes.txt").write_text(f"about {MARKER}")
    rows = pa.table({"id": [5], "name": [MARKER]})
    pq.write_table(rows, path / "region=n" / "orphan.parquet")
    pq.write_table(pa.table({"name": [1]}), path / "region=n" / "other-type.parquet")
    report = table.traces(WHERE)
    by_path = {place.path: place for place in report.places}
    assert by_path["region=n/orphan.parquet"].kind == "orphan"
    unreadable = {place.path for place in report.places if place.kind == "unreadable"}
    assert unreadable == {"region=n/broken.parquet", "region=n/other-type.parquet"}
    assert by_path["notes.txt"].kind == "text"
    assert found(table.traces("region = 'n' AND id = 5"))["orphan"] == 1
    assert "orphan" not in found(table.traces("region = 'm' AND id = 5"))


@pytest.mark.slow
def test_a_clone_names_the_files_of_its_source(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "source")
    spark_tables.sql(
        spark, tmp_path / "clone", f"CREATE TABLE {{T}} SHALLOW CLONE delta.`{tmp_path / 'source'}`"
    )
    clone = DeltaTable.for_path(spark, tmp_path / "clone")
    report = clone.traces(WHERE)
    assert found(report)["outside"] == 1
    clone.delete(WHERE)
    assert found(clone.traces(WHERE))["outside"] == 1
