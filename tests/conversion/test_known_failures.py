"""What converters of tables are known to get wrong, a test for each."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from typing import Any

import pytest

from delvec.conversion.apply import ConversionReport
from delvec.errors import DelvecError, PlanError
from tests.conversion.targets import Pair
from tests.delta.builder import TableBuilder, removed, small_table
from tests.spark.delta import spark_tables

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]

FORMATS = [3, pytest.param(2, marks=pytest.mark.slow)]
BOTH = [2, 3]
HISTORIES = [pytest.param("latest", marks=pytest.mark.slow), "per-version"]


def followed(pair: Pair, **choices: Any) -> ConversionReport:  # noqa: ANN401
    """Convert, and hold the rows of both engines side by side."""
    report = pair.convert(**choices)
    assert pair.ids() == pair.in_delta(report.version)
    return report


def is_one_for_each_of_two(pair: Pair) -> bool:
    """Tell whether there are two delete files, of two data files."""
    deletes = pair.delete_paths("referenced_data_file")
    return len(set(deletes)) == len(deletes) == 2


def nameless(add: dict[str, Any]) -> dict[str, Any]:
    """The removal of a file that does not name its vector."""
    return {name: value for name, value in removed(add).items() if name != "deletionVector"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("engine", ["none", pytest.param("delta-spark", marks=pytest.mark.slow)])
def test_deleted_rows_never_reappear(pair: Pair, format_version: int, engine: str) -> None:
    table = pair.source
    followed(pair, format_version=format_version)
    # A second delete on the same file, one with a conversion in between, two without.
    gone = [{0, 9}, {3, 4}]
    for several in ([[1]], [[2], [3, 15]]):
        for some in several:
            for each in some:
                gone[each // 10].add(each % 10)
            if engine == "none":
                for number, positions in enumerate(gone):
                    if len(positions) > pair.live[number]["deletionVector"]["cardinality"]:
                        pair.delete(number, positions)
            else:
                listed = ", ".join(map(str, some))
                spark_tables.sql(
                    pair.spark, table.root, f"DELETE FROM {{T}} WHERE id IN ({listed})"
                )
        report = followed(pair)
        assert report.mode == "incremental"
        assert is_one_for_each_of_two(pair)
    assert pair.ids() == [4, 5, 6, 7, 8, 10, 11, 12, 16, 17, 18, 19]
    # What was converted stays readable as it was.
    made = sorted(pair.metadata().snapshots.values(), key=lambda each: each.timestamp_ms)
    assert [len(pair.ids(str(each.id))) for each in made] == [16, 15, 12]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("format_version", BOTH)
@pytest.mark.parametrize("engine", ["none", pytest.param("delta-spark", marks=pytest.mark.slow)])
def test_no_delete_file_is_listed_any_more_once_the_source_has_compacted(
    pair: Pair, format_version: int, engine: str
) -> None:
    table, live = pair.source, pair.live
    followed(pair, format_version=format_version)
    assert len(pair.delete_paths()) == 2
    if engine == "none":
        whole = table.write_file("whole.parquet", {"id": pair.in_delta(2)})
        table.commit(*({"remove": removed(each)} for each in live), {"add": whole})
    else:
        spark_tables.sql(pair.spark, table.root, "OPTIMIZE {T}")
    report = followed(pair)
    assert (report.files_added, report.files_removed) == (1, 2)
    assert pair.delete_paths() == []
    counted = "existing_delete_files_count + added_delete_files_count"
    manifests = pair.spark.sql(f"SELECT {counted} AS n FROM {pair.target}.manifests").collect()
    assert sum(row.n for row in manifests) == 0
    # And back, as by a RESTORE: the files come again with their vectors.
    if engine == "none":
        table.commit({"remove": removed(whole)}, *({"add": each} for each in live))
    else:
        spark_tables.sql(pair.spark, table.root, "RESTORE TABLE {T} TO VERSION AS OF 2")
    followed(pair)
    assert len(pair.delete_paths()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("history", HISTORIES)
def test_commits_at_once_and_a_clock_that_goes_back_lose_nothing(pair: Pair, history: str) -> None:
    table = pair.source
    moment = int(time.time()) - 3600 + 0.123

    def at(version: int, seconds: float) -> None:
        os.utime(table.commit_path(version), (seconds, seconds))

    for version in range(3):
        at(version, moment)
    followed(pair, history=history)
    for number, seconds in enumerate((moment, moment - 60, moment - 3600)):
        pair.delete(1, range(number + 3))
        at(table.version, seconds)
        if number != 1:  # two at once as well
            report = followed(pair, history=history)
            assert (report.mode, report.version) == ("incremental", table.version)
    if history == "per-version":
        tags = {f"delta-version-{version}" for version in range(table.version + 1)}
        assert pair.refs() == {"main", *tags}
        for version in range(table.version + 1):
            assert pair.ids(f"'delta-version-{version}'") == pair.in_delta(version)


@pytest.mark.parametrize("format_version", FORMATS)
def test_commits_that_were_cleaned_up_are_made_up_for_by_comparing_all_files_and_this_is_said(
    pair: Pair, format_version: int
) -> None:
    table, live = pair.source, pair.live
    followed(pair, format_version=format_version, version=1)
    pair.delete(0, [0, 5, 9])
    live.append(table.write_file("part-2.parquet", {"id": [100, 101]}))
    table.commit({"add": live[-1]}, {"remove": removed(live[1])})
    del live[1]
    table.checkpoint(live)
    table.write_hint()
    table.drop_commits(0, 1, 2, 3)
    report = followed(pair)
    assert report.mode == "full"
    [note] = report.notes
    assert "after version 1" in note
    assert "all files were compared" in note
    assert pair.ids() == [1, 2, 3, 4, 6, 7, 8, 100, 101]
    # From here on the commits tell again.
    table.commit({"remove": removed(live[1])})
    report = followed(pair)
    assert (report.mode, report.notes) == ("incremental", ())


@pytest.mark.parametrize("format_version", FORMATS)
def test_an_add_before_its_own_remove_keeps_the_file(pair: Pair, format_version: int) -> None:
    table, live = pair.source, pair.live
    followed(pair, format_version=format_version, version=1)
    # The commit of version 2 the other way round, then one more from vector to vector.
    path = table.commit_path(2)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(sorted(lines, key=lambda line: next(iter(json.loads(line))))))
    report = followed(pair)
    assert (report.mode, report.vectors_added) == ("incremental", 2)
    [vector] = table.write_vectors([0, 1, 9])
    table.commit({"add": live[0] | {"deletionVector": vector}}, {"remove": removed(live[0])})
    report = followed(pair)
    assert (report.mode, report.vectors_replaced, report.files_removed) == ("incremental", 1, 0)
    # And without the vector again.
    bare = {name: value for name, value in live[0].items() if name != "deletionVector"}
    marked = live[0] | {"deletionVector": vector}
    table.commit({"add": bare}, {"remove": removed(marked)})
    report = followed(pair)
    assert report.vectors_dropped == 1
    assert len(pair.ids()) == 18


@pytest.mark.parametrize("format_version", FORMATS)
def test_a_remove_without_the_vector_removes_as_delta_says(pair: Pair, format_version: int) -> None:
    table, live = pair.source, pair.live
    followed(pair, format_version=format_version)
    table.commit({"remove": nameless(live[0])})
    report = followed(pair)
    assert report.version == 3
    # The file is still live for Delta, with its vector.
    assert len(pair.ids()) == 16
    if format_version == 2:  # once is enough, and not each time
        assert spark_tables.as_delta_spark_reads(pair.spark, table.root).count() == 16
    table.commit({"remove": removed(live[0])})
    followed(pair)
    assert len(pair.ids()) == 8
    # With another vector at the same time the file is there twice: nobody could read that rightly.
    [vector] = table.write_vectors([3, 4, 5])
    table.commit({"remove": nameless(live[1])}, {"add": live[1] | {"deletionVector": vector}})
    with pytest.raises(DelvecError, match=r"part-1\.parquet"):
        pair.convert()
    assert len(pair.ids()) == 8


@pytest.mark.parametrize("format_version", FORMATS)
def test_a_live_file_that_is_added_again_has_its_rows_once(pair: Pair, format_version: int) -> None:
    table, live = pair.source, pair.live
    followed(pair, format_version=format_version)
    counted = {"numRecords": 10, "minValues": {"id": 0}, "maxValues": {"id": 9}}
    again = [each | {"stats": json.dumps(counted), "dataChange": False} for each in live]
    again[1]["stats"] = json.dumps({"numRecords": 10, "tightBounds": False})
    table.commit(*({"add": each} for each in again))
    report = followed(pair)
    assert (report.files_added, report.files_kept, report.vectors_added) == (0, 2, 0)
    assert len(pair.delete_paths()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("format_version", FORMATS)
@pytest.mark.parametrize("history", HISTORIES)
def test_files_that_come_and_go_and_come_back_are_what_they_are_in_the_end(
    pair: Pair, format_version: int, history: str
) -> None:
    table, live = pair.source, pair.live
    followed(pair, format_version=format_version, history=history)
    short = table.write_file("part-2.parquet", {"id": [100]})
    table.commit({"add": short})
    table.commit({"remove": removed(short)})
    table.commit({"remove": removed(live[0])})
    report = followed(pair, history=history)
    assert report.mode == "incremental"
    assert len(pair.ids()) == 8
    # Back with the vector that it had, then with another one, both since the last conversion.
    [vector] = table.write_vectors([7])
    table.commit({"add": live[0]}, {"add": short})
    last = table.delete(live[0], vector)
    assert last["deletionVector"] == vector
    followed(pair, history=history)
    assert len(pair.ids()) == 18
    # Gone and back unchanged: nothing is done, and nothing is lost.
    table.commit({"remove": removed(last)})
    table.commit({"add": last})
    report = followed(pair, history=history)
    assert len(pair.ids()) == 18
    assert is_one_for_each_of_two(pair)


def test_another_table_at_the_path_of_the_source_is_refused(pair: Pair) -> None:
    table = pair.source
    followed(pair)
    shutil.rmtree(table.root)
    small_table(table.root)
    first = table.commit_path(0)
    first.write_text(first.read_text().replace("5fba94ed-", "00000000-"))
    for foreign in ("refuse", "overwrite"):
        with pytest.raises(PlanError, match="was made from table 5fba94ed") as refused:
            pair.convert(foreign=foreign)
        assert refused.value.hint
    assert len(pair.ids()) == 16


def test_a_table_without_rows_is_a_table(pair: Pair) -> None:
    table = TableBuilder(pair.source.root.with_name("empty"))
    table.create()
    pair = replace(pair, source=table)
    followed(pair)
    assert pair.ids() == []
    add = table.write_file("part-0.parquet", {"id": [1, 2]})
    table.commit({"add": add})
    followed(pair)
    table.commit({"remove": removed(add)})
    followed(pair)
    assert pair.ids() == []
