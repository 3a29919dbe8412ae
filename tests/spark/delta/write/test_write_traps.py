"""Cases in which a writer could double, lose or revive rows without noticing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.delta.log.paths import commit_key
from delvec.errors import ConflictError, FormatError
from tests.delta.write.write_checks import before_commit
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]


def ids_of(table: DeltaTable) -> list[int]:
    return sorted(row.id for row in table.to_df().select("id").collect())


def rows(spark: SparkSession, *values: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(values), "id long, day string")


@pytest.mark.slow
def test_an_overwrite_of_no_rows_still_depends_on_its_condition(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, day string", ["day"])
    mine, other = rows(spark, (1, "a")), rows(spark, (2, "a"))
    before_commit(monkeypatch, lambda: table.append(other))
    report = table.overwrite(mine, where="day = 'a'")
    assert (report.attempts, report.rows_deleted) == (2, 1)
    assert ids_of(table) == [1]
    before_commit(monkeypatch, lambda: table.overwrite(other, where="day = 'b' or day = 'a'"))
    with pytest.raises(ConflictError, match="removed or rewrote files"):
        table.overwrite(mine, where="day = 'a'", max_retries=0)
    assert ids_of(table) == [2]


# Of a constant Spark would make a filter of the file format, which loses such values by itself.
@pytest.mark.parametrize(
    "key",
    [
        "cast(unhex(concat('FF', 40 + id)) as string)",
        "date_from_unix_date(int(id - 141428))",  # in October 1582
        pytest.param(
            "date_from_unix_date(int(id - 719163))", marks=pytest.mark.slow
        ),  # the first day of year 1
        pytest.param("date_from_unix_date(int(id))", marks=pytest.mark.slow),
    ],
)
def test_keys_that_python_sees_otherwise_find_their_partners(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    source = spark.range(1, 2).selectExpr(f"{key} k", "id")
    table = DeltaTable.create(spark, tmp_path / "t", source.schema)
    table.append(source)
    merging = table.merge(source, "t.k = s.k")
    report = merging.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (report.rows_updated, report.rows_inserted, table.count()) == (1, 0, 1)


def test_what_follows_a_commit_cannot_make_it_look_undone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise OSError("no disk")

    monkeypatch.setattr("delvec.delta.write.after_commit.write_checkpoint", broken)
    properties = {"delta.checkpointInterval": "1"}
    table = DeltaTable.create(spark, tmp_path / "t", "id long", properties=properties)
    report = table.append(spark.range(2))
    assert report.version == 1
    assert "the checkpoint of version 1 was not written: OSError('no disk')" in report.notes


@pytest.mark.slow
def test_the_feed_of_whole_files_has_no_rows_of_others(spark: SparkSession, tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    table = DeltaTable.create(spark, tmp_path / "t", "id long, day string", ["day"], feed)
    values = [(number, day) for day in "abc" for number in range(6)]
    table.append(rows(spark, *values).coalesce(1))
    table.delete("id = 0")
    with settings_of(spark, {"spark.delvec.scan.vectorMemory": "0"}):
        version = table.delete("day = 'a' or (day = 'b' and id > 3)", rewrite_ratio=0.3).version
    found = table.changes(version).groupBy("day", "_change_type").count().collect()
    assert sorted(map(tuple, found)) == [("a", "delete", 5), ("b", "delete", 2)]


def test_rows_are_tracked_from_the_first_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long")
    before_commit(monkeypatch, lambda: table.append(spark.range(3).coalesce(1)))
    with pytest.raises(ConflictError, match="added rows"):
        table.set_properties({"delta.enableRowTracking": "true"}, max_retries=0)
    table.add_feature("rowTracking")
    table.delete("id = 1")
    [file] = table.snapshot().files.entries([0])
    assert (file.add["baseRowId"], file.add["defaultRowCommitVersion"]) == (0, table.version)


def test_a_row_count_that_leaves_deleted_rows_out_removes_no_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long")
    table.append(spark.range(10).coalesce(1))
    table.delete("id < 3")
    file = tmp_path / "t" / commit_key(2)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            statistics = json.loads(line["add"]["stats"])
            line["add"]["stats"] = json.dumps(statistics | {"numRecords": 7})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = DeltaTable.for_path(spark, tmp_path / "t")
    with pytest.raises(FormatError, match=r"10 rows in .*, by its footer, found numRecords 7"):
        table.delete("id between 3 and 6 and id % 1 = 0")
    assert ids_of(table) == [3, 4, 5, 6, 7, 8, 9]
