"""What converters of tables are known to get wrong, a test for each."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.conversion.planning.options import Foreign
from delvec.conversion.report import ConversionReport
from delvec.errors import DelvecError, PlanError
from tests.conversion.targets import branches, delete_paths, ids, ids_in_delta
from tests.delta.builder import TableBuilder, removed, small_table
from tests.spark.delta import spark_tables

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

FORMATS = [3, pytest.param(2, marks=pytest.mark.slow)]
BOTH = [2, 3]
HISTORIES = [pytest.param("latest", marks=pytest.mark.slow), "per-version"]


@pytest.fixture
def target() -> str:
    return f"lake.known.t_{uuid4().hex[:8]}"


def followed(
    spark: SparkSession,
    path: Path,
    target: str,
    **choices: Any,  # noqa: ANN401
) -> ConversionReport:
    """Convert, and hold the rows of both engines side by side."""
    report = delvec.convert(spark, path, target, **choices)
    assert ids(spark, target) == ids_in_delta(path, report.version)
    return report


def deletes_of(spark: SparkSession, target: str) -> list[str]:
    """Name the data file of each delete file."""
    rows = spark.sql(f"SELECT referenced_data_file FROM {target}.delete_files").collect()
    return [row[0] for row in rows]


def by_hand(table: TableBuilder, live: list[dict[str, Any]], gone: list[set[int]]) -> None:
    """Commit a vector for each file of which more rows are gone than its vector says."""
    for number, positions in enumerate(gone):
        if len(positions) > live[number]["deletionVector"]["cardinality"]:
            [vector] = table.write_vectors(positions)
            live[number] = table.delete(live[number], vector)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("engine", ["none", pytest.param("delta-spark", marks=pytest.mark.slow)])
def test_deleted_rows_never_reappear(
    spark: SparkSession, tmp_path: Path, target: str, format_version: int, engine: str
) -> None:
    table, live = small_table(tmp_path / "source")
    followed(spark, table.root, target, format_version=format_version)
    # A second delete on the same file, one with a conversion in between, two without.
    gone = [{0, 9}, {3, 4}]
    for several in ([[1]], [[2], [3, 15]]):
        for some in several:
            for each in some:
                gone[each // 10].add(each % 10)
            if engine == "none":
                by_hand(table, live, gone)
            else:
                listed = ", ".join(map(str, some))
                spark_tables.sql(spark, table.root, f"DELETE FROM {{T}} WHERE id IN ({listed})")
        report = followed(spark, table.root, target)
        assert report.mode == "incremental"
        deletes = deletes_of(spark, target)
        assert len(set(deletes)) == len(deletes) == 2
    assert ids(spark, target) == [4, 5, 6, 7, 8, 10, 11, 12, 16, 17, 18, 19]
    # What was converted stays readable as it was.
    for snapshot, count in zip(_snapshots(spark, target), (16, 15, 12), strict=True):
        assert len(ids(spark, target, str(snapshot))) == count


def _snapshots(spark: SparkSession, target: str) -> list[int]:
    rows = spark.sql(f"SELECT snapshot_id FROM {target}.snapshots ORDER BY committed_at").collect()
    return [row[0] for row in rows]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("engine", ["none", pytest.param("delta-spark", marks=pytest.mark.slow)])
def test_no_delete_file_is_listed_any_more_once_the_source_has_compacted(
    spark: SparkSession, tmp_path: Path, target: str, format_version: int, engine: str
) -> None:
    table, live = small_table(tmp_path / "source")
    followed(spark, table.root, target, format_version=format_version)
    assert len(delete_paths(spark, target)) == 2
    if engine == "none":
        whole = table.write_file("whole.parquet", {"id": ids_in_delta(table.root, 2)})
        table.commit(*({"remove": removed(each)} for each in live), {"add": whole})
    else:
        spark_tables.sql(spark, table.root, "OPTIMIZE {T}")
    report = followed(spark, table.root, target)
    assert (report.files_added, report.files_removed) == (1, 2)
    assert delete_paths(spark, target) == []
    counted = "existing_delete_files_count + added_delete_files_count"
    manifests = spark.sql(f"SELECT {counted} AS n FROM {target}.manifests").collect()
    assert sum(row.n for row in manifests) == 0
    # And back, as by a RESTORE: the files come again with their vectors.
    if engine == "none":
        table.commit({"remove": removed(whole)}, *({"add": each} for each in live))
    else:
        spark_tables.sql(spark, table.root, "RESTORE TABLE {T} TO VERSION AS OF 2")
    followed(spark, table.root, target)
    assert len(delete_paths(spark, target)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("history", HISTORIES)
def test_commits_of_one_millisecond_and_a_clock_that_goes_back_lose_nothing(
    spark: SparkSession, tmp_path: Path, target: str, history: str
) -> None:
    table, live = small_table(tmp_path / "source")
    moment = int(time.time()) - 3600 + 0.123

    def at(version: int, seconds: float) -> None:
        os.utime(table.commit_path(version), (seconds, seconds))

    for version in range(3):
        at(version, moment)
    choices: dict[str, Any] = {"history": history}
    followed(spark, table.root, target, **choices)
    for number, seconds in enumerate((moment, moment - 60, moment - 3600)):
        [vector] = table.write_vectors(range(number + 3))
        live[1] = table.delete(live[1], vector)
        at(table.version, seconds)
        if number != 1:  # two at once as well
            report = followed(spark, table.root, target, **choices)
            assert (report.mode, report.version) == ("incremental", table.version)
    if history == "per-version":
        tags = {f"delta-version-{version}" for version in range(table.version + 1)}
        assert branches(spark, target) == {"main", *tags}
        for version in range(table.version + 1):
            expected = ids_in_delta(table.root, version)
            assert ids(spark, target, f"'delta-version-{version}'") == expected


@pytest.mark.parametrize("format_version", FORMATS)
def test_commits_that_were_cleaned_up_are_made_up_for_by_comparing_all_files_and_this_is_said(
    spark: SparkSession, tmp_path: Path, target: str, format_version: int
) -> None:
    table, live = small_table(tmp_path / "source")
    followed(spark, table.root, target, format_version=format_version, version=1)
    [vector] = table.write_vectors([0, 5, 9])
    live[0] = table.delete(live[0], vector)
    live.append(table.write_file("part-2.parquet", {"id": [100, 101]}))
    table.commit({"add": live[-1]}, {"remove": removed(live[1])})
    del live[1]
    table.checkpoint(live)
    table.write_hint()
    table.drop_commits(0, 1, 2, 3)
    report = followed(spark, table.root, target)
    assert report.mode == "full"
    [note] = report.notes
    assert "after version 1" in note
    assert "all files were compared" in note
    assert ids(spark, target) == [1, 2, 3, 4, 6, 7, 8, 100, 101]
    # From here on the commits tell again.
    table.commit({"remove": removed(live[1])})
    report = followed(spark, table.root, target)
    assert (report.mode, report.notes) == ("incremental", ())


@pytest.mark.parametrize("format_version", FORMATS)
def test_an_add_before_the_remove_of_its_former_self_keeps_the_file(
    spark: SparkSession, tmp_path: Path, target: str, format_version: int
) -> None:
    table, live = small_table(tmp_path / "source")
    followed(spark, table.root, target, format_version=format_version, version=1)
    # The commit of version 2 the other way round, then one more from vector to vector.
    path = table.commit_path(2)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(sorted(lines, key=lambda line: next(iter(json.loads(line))))))
    report = followed(spark, table.root, target)
    assert (report.mode, report.vectors_added) == ("incremental", 2)
    [vector] = table.write_vectors([0, 1, 9])
    table.commit({"add": live[0] | {"deletionVector": vector}}, {"remove": removed(live[0])})
    report = followed(spark, table.root, target)
    assert (report.mode, report.vectors_replaced, report.files_removed) == ("incremental", 1, 0)
    # And without the vector again.
    bare = {name: value for name, value in live[0].items() if name != "deletionVector"}
    marked = live[0] | {"deletionVector": vector}
    table.commit({"add": bare}, {"remove": removed(marked)})
    report = followed(spark, table.root, target)
    assert report.vectors_dropped == 1
    assert len(ids(spark, target)) == 18


@pytest.mark.parametrize("format_version", FORMATS)
def test_a_remove_that_does_not_name_the_vector_removes_what_delta_says(
    spark: SparkSession, tmp_path: Path, target: str, format_version: int
) -> None:
    table, live = small_table(tmp_path / "source")
    followed(spark, table.root, target, format_version=format_version)
    nameless = {name: value for name, value in removed(live[0]).items() if name != "deletionVector"}
    table.commit({"remove": nameless})
    report = followed(spark, table.root, target)
    assert report.version == 3
    # The file is still live for Delta, with its vector.
    assert len(ids(spark, target)) == 16
    if format_version == 2:  # once is enough, and not each time
        assert spark_tables.as_delta_spark_reads(spark, table.root).count() == 16
    table.commit({"remove": removed(live[0])})
    followed(spark, table.root, target)
    assert len(ids(spark, target)) == 8
    # With another vector at the same time the file is there twice: nobody could read that rightly.
    nameless = {name: value for name, value in removed(live[1]).items() if name != "deletionVector"}
    [vector] = table.write_vectors([3, 4, 5])
    table.commit({"remove": nameless}, {"add": live[1] | {"deletionVector": vector}})
    with pytest.raises(DelvecError, match=r"part-1\.parquet"):
        delvec.convert(spark, table.root, target)
    assert len(ids(spark, target)) == 8


@pytest.mark.parametrize("format_version", FORMATS)
def test_a_live_file_that_is_added_again_with_new_statistics_has_its_rows_once(
    spark: SparkSession, tmp_path: Path, target: str, format_version: int
) -> None:
    table, live = small_table(tmp_path / "source")
    followed(spark, table.root, target, format_version=format_version)
    counted = {"numRecords": 10, "minValues": {"id": 0}, "maxValues": {"id": 9}}
    again = [each | {"stats": json.dumps(counted), "dataChange": False} for each in live]
    again[1]["stats"] = json.dumps({"numRecords": 10, "tightBounds": False})
    table.commit(*({"add": each} for each in again))
    report = followed(spark, table.root, target)
    assert (report.files_added, report.files_kept, report.vectors_added) == (0, 2, 0)
    assert len(delete_paths(spark, target)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("format_version", FORMATS)
@pytest.mark.parametrize("history", HISTORIES)
def test_files_that_come_and_go_and_come_back_are_what_they_are_in_the_end(
    spark: SparkSession, tmp_path: Path, target: str, format_version: int, history: str
) -> None:
    table, live = small_table(tmp_path / "source")
    choices: dict[str, Any] = {"history": history}
    followed(spark, table.root, target, format_version=format_version, **choices)
    short = table.write_file("part-2.parquet", {"id": [100]})
    table.commit({"add": short})
    table.commit({"remove": removed(short)})
    table.commit({"remove": removed(live[0])})
    report = followed(spark, table.root, target, **choices)
    assert report.mode == "incremental"
    assert len(ids(spark, target)) == 8
    # Back with the vector that it had, then with another one, both since the last conversion.
    [vector] = table.write_vectors([7])
    table.commit({"add": live[0]}, {"add": short})
    last = table.delete(live[0], vector)
    assert last["deletionVector"] == vector
    followed(spark, table.root, target, **choices)
    assert len(ids(spark, target)) == 18
    # Gone and back unchanged: nothing is done, and nothing is lost.
    table.commit({"remove": removed(last)})
    table.commit({"add": last})
    report = followed(spark, table.root, target, **choices)
    assert len(ids(spark, target)) == 18
    deletes = deletes_of(spark, target)
    assert len(set(deletes)) == len(deletes) == 2


def test_another_table_at_the_path_of_the_source_is_refused(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    table, _ = small_table(tmp_path / "source")
    followed(spark, table.root, target)
    shutil.rmtree(table.root)
    small_table(table.root)
    first = table.commit_path(0)
    first.write_text(first.read_text().replace("5fba94ed-", "00000000-"))
    foreign: Foreign
    for foreign in ("refuse", "overwrite"):
        with pytest.raises(PlanError, match="was made from table 5fba94ed") as refused:
            delvec.convert(spark, table.root, target, foreign=foreign)
        assert refused.value.hint
    assert len(ids(spark, target)) == 16


def test_a_table_without_rows_is_a_table(spark: SparkSession, tmp_path: Path, target: str) -> None:
    table = TableBuilder(tmp_path / "source")
    table.create()
    followed(spark, table.root, target)
    assert ids(spark, target) == []
    add = table.write_file("part-0.parquet", {"id": [1, 2]})
    table.commit({"add": add})
    followed(spark, table.root, target)
    table.commit({"remove": removed(add)})
    followed(spark, table.root, target)
    assert ids(spark, target) == []
