"""Tables that delta-spark and delvec write are sound, and repairs help delta-spark."""

from __future__ import annotations

import pytest

from delvec.delta.check.report import CheckReport
from tests.delta.builder import TableBuilder
from tests.delta.check.checks import INLINE, PADDED, checked, table_with
from tests.delta.check.test_repair import damaged_checkpoint
from tests.delta.write.write_checks import ids
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

EVERY_TYPE = """
id bigint, part string, i int, s string, b binary, d decimal(20, 4), f double, day date,
at timestamp, ntz timestamp_ntz, flag boolean, st struct<x int, y string>, arr array<string>
"""
VALUES = """
id, concat('p', id % 2), int(id % 7), repeat(concat('s', id), 20), cast(concat('b', id) as binary),
cast(id as decimal(20, 4)), if(id % 9 = 0, double('NaN'), double(id) / 3),
date_add(date'1500-01-01', int(id * 1000)), timestamp_micros(id * 1000003),
timestamp_ntz'2026-01-01 10:00:00' + make_dt_interval(0, 0, 0, id), if(id % 3 = 0, null, true),
if(id % 4 = 0, null, named_struct('x', int(id), 'y', concat('y', id))), array(concat('a', id))
"""
NAMES = "id, part, i, s, b, d, f, day, at, ntz, flag, st, arr"
PROPERTIES = {
    "many, in partitions": {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"},
    "mapped by id": {"delta.columnMapping.mode": "id"},
    "with change feed": {"delta.enableChangeDataFeed": "true"},
    "v2 checkpoints": {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"},
    "in-commit timestamps": {"delta.enableInCommitTimestamps": "true"},
    "prefixes": {"delta.randomizeFilePrefixes": "true"},
}
# By default it makes thousands of tasks.
VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
MERGE = (
    f"MERGE INTO {{T}} t USING (SELECT * FROM (SELECT {VALUES} FROM range(90, 110, 1, 1))"
    f" AS v({NAMES})) s ON t.id = s.id WHEN MATCHED AND s.id % 2 = 1 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
# What delta-spark does to a table.
STATEMENTS = (
    *(f"INSERT INTO {{T}} SELECT {VALUES} FROM range({n}, {n + 50}, 1, 1)" for n in (0, 50)),
    "DELETE FROM {T} WHERE id % 10 = 0",
    "UPDATE {T} SET s = 'new' WHERE id % 10 = 1",
    MERGE,
)


def problems(report: CheckReport) -> list[str]:
    """Errors and warnings; orphan files are no problem."""
    return [str(each) for each in report.findings if each.severity != "info"]


@pytest.mark.slow
@pytest.mark.parametrize("form", PROPERTIES)
def test_tables_are_sound_after_each_writer(lake: Lake, form: str) -> None:
    parts = ["part"] * ("partitions" in form)
    table = lake.create(EVERY_TYPE, *STATEMENTS, parts=parts, properties=PROPERTIES[form])
    report = checked(lake.path, sample=100)
    assert (problems(report), report.sampled_files) == ([], report.data_files)
    assert report.vectors > 0
    table.delete("id % 10 = 2")
    table.update({"s": "'newer'"}, where="id % 10 = 3")
    source = table.to_df().where("id < 20").selectExpr("*")
    table.merge(source, on="t.id = s.id").when_matched_delete("s.id < 9").execute()
    assert problems(checked(lake.path, sample=100)) == []
    lake.sql("OPTIMIZE {T}", "DELETE FROM {T} WHERE id % 10 = 4")
    table.checkpoint()
    report = checked(lake.path, sample=100)
    assert (problems(report), report.checkpoints) == ([], 1)


def vacuum(lake: Lake, retention: str = "") -> None:
    with settings_of(lake.spark, VACUUM):
        lake.sql(f"VACUUM {{T}} {retention}")


def agree(lake: Lake) -> list[int]:
    """Read by both engines."""
    lake.spark.catalog.clearCache()
    found = lake.ids()
    assert found == ids(lake.path)
    return found


@pytest.mark.slow
def test_a_vector_in_the_log_breaks_vacuum_until_it_is_repaired(lake: Lake) -> None:
    table_with(lake.path, INLINE)
    with pytest.raises(Exception, match="MatchError"):
        vacuum(lake)
    before = ids(lake.path)
    report = checked(lake.path, repair=True)
    assert (problems(report), report.repaired_version) == ([], 3)
    vacuum(lake)
    assert agree(lake) == ids(lake.path, version=2) == before


@pytest.mark.slow
def test_a_padded_vector_is_read_rightly_by_delta_spark_once_it_is_repaired(lake: Lake) -> None:
    table_with(lake.path, PADDED)
    checked(lake.path, repair=True)
    assert agree(lake) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    [row] = lake.history()
    assert (row["version"], row["operation"]) == (3, "FSCK REPAIR")
    assert row["operationMetrics"]["numVectorsRewritten"] == "1"


@pytest.mark.slow
def test_an_absolute_vector_survives_vacuum_once_it_is_repaired(lake: Lake) -> None:
    table = TableBuilder(lake.path)
    [vector] = table.write_vectors([3])
    vector |= {"storageType": "p", "pathOrInlineDv": table.vector_path().as_uri()}
    table_with(lake.path, vector, table=table)
    checked(lake.path, repair=True)
    vacuum(lake, "RETAIN 0 HOURS")
    assert problems(checked(lake.path)) == []
    assert agree(lake) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.more
def test_delta_spark_goes_by_the_commits_once_a_damaged_checkpoint_is_set_aside(lake: Lake) -> None:
    damaged_checkpoint(lake.path, "cut")
    checked(lake.path, repair=True)
    agree(lake)
    lake.sql("INSERT INTO {T} VALUES (1000)")
    assert 1000 in agree(lake)
