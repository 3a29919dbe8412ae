"""Traces of rows, by conditions of Spark, compared with the bytes of every file on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, SparkSession, functions

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.delta.vacuum.aging import age
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

MARKER = "MARKER0815"
WHERE = f"name = '{MARKER}'"
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture(autouse=True)
def plain_files(spark: SparkSession) -> Iterator[None]:
    """Have files written whose bytes tell whether a string is in them."""
    with settings_of(spark, {"spark.sql.parquet.compression.codec": "uncompressed"}):
        yield


def made(lake: Lake, properties: Mapping[str, str] | None = None, *parts: str) -> DeltaTable:
    """Let delta-spark make a table of two files, whose bytes can be searched."""
    inserts = (
        "INSERT INTO {T} SELECT /*+ COALESCE(1) */ * FROM VALUES"
        f" ({first}, 'Zoe', 'n'), ({first + 1}, 'Uwe', 'n'), ({first + 2}, '{third}', 'n')"
        for first, third in ((1, MARKER), (11, "Tom"))
    )
    columns = "id bigint, name string, region string"
    return lake.create(columns, *inserts, parts=parts, properties=properties)


def found(table: DeltaTable, where: str | Column = WHERE) -> Counter[str]:
    """How many rows there are of each kind; files for places without rows."""
    kinds: Counter[str] = Counter()
    for place in table.traces(where).places:
        kinds[place.kind] += 1 if place.rows is None else place.rows
    return kinds


def holding(root: Path) -> set[str]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in files if MARKER.encode() in path.read_bytes()}


def agrees(lake: Lake) -> Counter[str]:
    """Compare traces with the bytes on disk; only checkpoints are compressed."""
    report, tuples = lake.table.traces(WHERE), lake.bare.traces([("name", "=", MARKER)])
    paths, held = {place.path for place in report.places}, holding(lake.path)
    assert held <= paths
    assert all(".checkpoint." in each or "_sidecars" in each for each in paths - held)
    facts = [
        [(each.kind, each.path, each.rows, each.versions, each.detail) for each in told.places]
        for told in (report, tuples)
    ]
    assert facts[0] == facts[1]
    assert report.is_empty == (not held)
    return found(lake.table)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [(), ("region",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("change_feed", [False, True], ids=["no-feed", "feed"])
def test_an_erasure_step_by_step_agrees_with_the_bytes_of_every_file(
    lake: Lake, parts: tuple[str, ...], *, change_feed: bool
) -> None:
    table = made(lake, {"delta.enableChangeDataFeed": str(change_feed).lower()}, *parts)
    assert agrees(lake)["live"] == 1
    table.update({"id": "id + 100"}, where=WHERE)  # writes change files
    before = agrees(lake)
    assert (before["live"], before["deleted"], before["change"]) == (1, 1, 2 * change_feed)
    table.delete(WHERE)
    after = agrees(lake)
    assert "live" not in after
    assert after["log"] >= 2  # the operations name the value as well
    table.purge()
    purged = agrees(lake)
    assert ("deleted" in purged, purged["removed"]) == (False, 2)
    table.vacuum()
    assert agrees(lake)["removed"] == 2
    table.vacuum(retention_hours=0, force=True)
    assert set(agrees(lake)) == {"log"}
    table.checkpoint()
    age(lake.path / "_delta_log", days=40)
    assert set(agrees(lake)) == {"log"}
    table.clean_log()
    assert agrees(lake) == {}
    assert sorted(row.name for row in table.to_df().collect()) == [
        *("Tom", "Uwe", "Uwe", "Zoe", "Zoe")
    ]


def test_conditions_of_spark_find_rows_that_tuples_cannot_express(lake: Lake) -> None:
    table = made(lake)
    table.delete(WHERE)
    for where in (
        f"lower(name) = '{MARKER.lower()}'",
        f"name LIKE '%{MARKER[3:8]}%'",
        functions.col("name").startswith(MARKER[:8]),
        "id IN (SELECT id FROM VALUES (3), (4) AS wanted(id)) AND name <> 'Uwe'",
    ):
        assert found(table, where) == {"deleted": 1}
        assert not table.traces(where).log_judged
    assert found(table, table.to_df()["name"] == MARKER)["deleted"] == 1
    for wrong in ("nam = 'x'", "name = = 'x'"):
        with pytest.raises(InvalidArgumentError, match="nam"):
            table.traces(wrong)


@pytest.mark.slow
def test_renamed_and_dropped_columns_are_searched_by_spark_too(lake: Lake) -> None:
    table, where = made(lake, MAPPED), f"called = '{MARKER}'"
    lake.sql("ALTER TABLE {T} RENAME COLUMN name TO called")
    assert found(table, where)["live"] == 1
    lake.sql("ALTER TABLE {T} DROP COLUMN called")
    assert found(table, where)["dropped"] == 1
    assert "columns of version" in table.traces(where).notes[0]
    lake.sql("ALTER TABLE {T} ADD COLUMN called string")
    lake.sql(f"INSERT INTO {{T}} VALUES (77, 'n', '{MARKER}')")
    both = found(table, where)
    assert (both["live"], both["dropped"]) == (1, 1)


def test_a_dropped_column_is_purged_though_its_name_is_one_of_another_type(lake: Lake) -> None:
    table = made(lake, MAPPED)
    table.drop_column("name")
    table.add_columns("name bigint")
    assert found(table)["dropped"] == 1
    # Strings of the dropped column are no numbers: they match nothing, and raise nothing.
    assert "dropped" not in found(table, "name = 5")
    assert not table.traces("name = 5").log_judged
    report = table.purge()
    assert (report.files_removed, report.files_added) == (2, 1)
    assert table.purge().version is None  # nothing is left to do
    table.vacuum(retention_hours=0, force=True)
    assert set(found(table)) == {"log"}
    assert not [each for each in holding(lake.path) if "_delta_log" not in each]
    assert lake.ids() == [1, 2, 3, 11, 12, 13]


@pytest.mark.slow
def test_files_that_are_no_data_do_not_stop_the_job(lake: Lake) -> None:
    table, part = made(lake, None, "region"), lake.path / "region=n"
    (part / "broken.parquet").write_bytes(b"PAR1\xff\xfePAR1")
    (lake.path / "notes.txt").write_text(f"about {MARKER}")
    pq.write_table(pa.table({"id": [5], "name": [MARKER]}), part / "orphan.parquet")
    pq.write_table(pa.table({"name": [1]}), part / "other-type.parquet")
    kinds = {place.path: place.kind for place in table.traces(WHERE).places}
    assert (kinds["region=n/orphan.parquet"], kinds["notes.txt"]) == ("orphan", "text")
    unreadable = {path for path, kind in kinds.items() if kind == "unreadable"}
    assert unreadable == {"region=n/broken.parquet", "region=n/other-type.parquet"}
    assert found(table, "region = 'n' AND id = 5")["orphan"] == 1
    assert "orphan" not in found(table, "region = 'm' AND id = 5")


@pytest.mark.slow
def test_a_clone_names_the_files_of_its_source(lake: Lake) -> None:
    made(lake)
    clone = lake.beside("clone")
    clone.sql(f"CREATE TABLE {{T}} SHALLOW CLONE delta.`{lake.path}`")
    assert found(clone.table)["outside"] == 1
    clone.table.delete(WHERE)
    assert found(clone.table)["outside"] == 1
