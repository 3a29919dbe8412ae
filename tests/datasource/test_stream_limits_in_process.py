"""Batches of a stream that have a limit return every row once; without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamReader

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource, stream_reader
from delvec.datasource import options as stream_options
from delvec.datasource import stream_batch as stream_commits
from delvec.datasource import stream_reader as stream_limits
from delvec.datasource import table as opened
from delvec.datasource.stream_reader import LimitedStreamReader
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from tests.datasource.in_process import pickled, rows_between, stream_of, write_each

FEED = {"delta.enableChangeDataFeed": "true"}
Rows = list[tuple[Any, ...]]


class ReadAllAvailable:
    """Named like the limit of Spark 4.2 that asks for all that is new."""


@pytest.fixture(autouse=True)
def as_in_spark_4_2() -> Iterator[None]:
    with patch.object(opened, "HAS_LIMITS", True), patch.object(stream_options, "HAS_LIMITS", True):
        yield


class Query:
    """A streaming query; each batch is planned by a new reader, as after a restart."""

    def __init__(self, path: Path, **options: str) -> None:
        self.path, self.options = path, options
        self.ends = [self.reader().initialOffset()]

    def reader(self) -> LimitedStreamReader:
        found = stream_of(self.path, **self.options)
        assert isinstance(found, LimitedStreamReader)
        return found

    def batch(self, limit: object = None, until: DataSourceStreamReader | None = None) -> Rows:
        """Read the next batch, and the same once more; nothing if there is none."""
        start = self.ends[-1]
        planner = until or self.reader()
        end = json.loads(json.dumps(planner.latestOffset(start, limit)))  # type: ignore[call-arg]
        if end == start:
            return []
        self.ends.append(end)
        found = rows_between(planner, start, end)
        assert rows_between(self.reader(), start, end) == found
        return found

    def all(self) -> list[Rows]:
        batches = [self.batch()]
        while batches[-1]:
            batches.append(self.batch())
        return batches[:-1]


def flat(batches: list[Rows]) -> Rows:
    return sorted(row for batch in batches for row in batch)


def test_the_table_at_the_beginning_is_split(tmp_path: Path) -> None:
    write_each(tmp_path, 1, 2, 3)
    write_each(tmp_path, 4, 5, 6, 7)
    query = Query(tmp_path, maxFilesPerTrigger="3")
    first = query.batch()
    write_each(tmp_path, 8, 9)  # does not change which rows are the beginning
    batches = [first, *query.all()]
    assert [len(batch) for batch in batches] == [3, 3, 1, 2]
    assert flat(batches) == [(number,) for number in range(1, 10)]
    assert query.ends[1] == {
        "table": DeltaTable.for_path(None, tmp_path).detail().id,
        "version": -1,
        "since": 1,
        "snapshot": True,
        "files": 3,
    }


def test_a_batch_stops_inside_a_commit(tmp_path: Path) -> None:
    write_each(tmp_path, 1)
    write_each(tmp_path, 2, 3, 4, 5, 6)
    write_each(tmp_path, 7, 8)
    query = Query(tmp_path, maxFilesPerTrigger="2", startingVersion="0")
    batches = query.all()
    assert [len(batch) for batch in batches] == [2, 2, 2, 2]
    assert flat(batches) == [(number,) for number in range(1, 9)]
    places = [(end["version"], end.get("files", 0)) for end in query.ends]
    assert places == [(-1, 0), (0, 1), (0, 3), (1, 0), (2, 0)]
    assert [end.get("since") for end in query.ends] == [None, 0, None, None, None]
    later = Query(tmp_path, maxFilesPerTrigger="2", startingVersion="1").all()
    assert [len(batch) for batch in later] == [2, 2, 2, 1]
    assert flat(later) == [(number,) for number in range(2, 9)]


def test_a_batch_has_at_least_one_file_and_the_last_exceeds_the_bytes(tmp_path: Path) -> None:
    write_each(tmp_path, *range(5))
    size = max(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    tiny = Query(tmp_path, maxBytesPerTrigger="1").all()
    assert [len(batch) for batch in tiny] == [1] * 5
    two = Query(tmp_path, maxBytesPerTrigger=str(size + 1), maxFilesPerTrigger="4").all()
    assert [len(batch) for batch in two] == [2, 2, 1]
    both = Query(tmp_path, maxBytesPerTrigger="1g", maxFilesPerTrigger="4").all()
    assert [len(batch) for batch in both] == [4, 1]
    assert flat(tiny) == flat(two) == flat(both) == [(number,) for number in range(5)]


def test_a_thousand_files_are_a_batch_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream_limits._DEFAULT_FILES == 1000
    monkeypatch.setattr(stream_limits, "_DEFAULT_FILES", 3)
    write_each(tmp_path, *range(5))
    assert [len(batch) for batch in Query(tmp_path).all()] == [3, 2]
    assert [len(batch) for batch in Query(tmp_path, maxBytesPerTrigger="1g").all()] == [5]


def test_many_versions_without_files_are_read_in_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_each(tmp_path, 1)
    for number in range(7):
        DeltaTable.for_path(None, tmp_path).set_properties({"x": str(number)})
    write_each(tmp_path, 2)
    monkeypatch.setattr(stream_limits, "_MAX_VERSIONS", 3)
    query = Query(tmp_path, startingVersion="0")
    batches = [query.batch() for _ in range(4)]
    assert [end["version"] for end in query.ends] == [-1, 2, 5, 8]
    assert flat(batches) == [(1,), (2,)]


def test_changes_of_a_version_stay_together(tmp_path: Path) -> None:
    write_each(tmp_path, 1, 2, 3, **FEED)
    write_each(tmp_path, 4)
    write_each(tmp_path, 5)
    deltalake.DeltaTable(tmp_path).delete("id = 2")
    query = Query(tmp_path, readChangeFeed="true", startingVersion="0", maxFilesPerTrigger="2")
    batches = query.all()
    assert [[(row[0], row[1], row[2]) for row in batch] for batch in batches] == [
        [(1, "insert", 0), (2, "insert", 0), (3, "insert", 0)],
        [(4, "insert", 1), (5, "insert", 2)],
        [(2, "delete", 3)],
    ]


def test_the_beginning_of_a_feed_is_split(tmp_path: Path) -> None:
    write_each(tmp_path, 1, 2, 3, **FEED)
    write_each(tmp_path, 4)
    query = Query(tmp_path, readChangeFeed="true", maxFilesPerTrigger="3")
    batches = query.all()
    assert [len(batch) for batch in batches] == [3, 1]
    assert [(row[0], *row[1:3]) for row in flat(batches)] == [
        (number, "insert", 1) for number in range(1, 5)
    ]


def test_all_that_is_new_is_read_where_spark_asks_for_it(tmp_path: Path) -> None:
    write_each(tmp_path, *range(5))
    query = Query(tmp_path, maxFilesPerTrigger="2")
    assert len(query.batch(ReadAllAvailable())) == 5
    query = Query(tmp_path, maxFilesPerTrigger="2")
    assert len(query.batch()) == 2
    write_each(tmp_path, 5, 6)
    assert len(query.batch(ReadAllAvailable())) == 5
    assert query.batch() == []


def test_with_available_now_a_query_ends_where_it_was_when_it_began(tmp_path: Path) -> None:
    write_each(tmp_path, *range(3))
    query = Query(tmp_path, maxFilesPerTrigger="2")
    planner = query.reader()
    planner.prepareForTriggerAvailableNow()
    write_each(tmp_path, 3)
    assert [len(query.batch(until=planner)) for _ in range(3)] == [2, 1, 0]
    again = query.reader()
    again.prepareForTriggerAvailableNow()
    assert [query.batch(until=again) for _ in range(2)] == [[(3,)], []]


def test_without_commits_a_stream_from_the_newest_on_waits(tmp_path: Path) -> None:
    write_each(tmp_path, 1)
    query = Query(tmp_path, startingVersion="latest", maxFilesPerTrigger="1")
    assert query.batch() == []
    write_each(tmp_path, 2, 3)
    assert flat(query.all()) == [(2,), (3,)]


def test_an_offset_of_an_earlier_release_goes_on(tmp_path: Path) -> None:
    write_each(tmp_path, 1)
    table = DeltaTable.for_path(None, tmp_path).detail().id
    write_each(tmp_path, 2, 3)
    query = Query(tmp_path, maxFilesPerTrigger="1")
    query.ends.append({"table": table, "version": 0, "since": 0, "snapshot": True})
    assert flat(query.all()) == [(2,), (3,)]
    assert query.ends[-2:] == [
        {"table": table, "version": 0, "files": 1},
        {"table": table, "version": 1},
    ]
    query.ends.append({"table": table, "version": 0})
    assert flat(query.all()) == [(2,), (3,)]


@pytest.mark.parametrize("start", [{}, {"startingVersion": "0"}])
def test_spark_without_limits_goes_on_inside_a_commit(
    tmp_path: Path, start: dict[str, str]
) -> None:
    """As after a change back to Spark 4.1."""
    write_each(tmp_path, 1, 2, 3)
    query = Query(tmp_path, maxFilesPerTrigger="2", **start)
    first = query.batch()
    write_each(tmp_path, 4)
    with patch.object(opened, "HAS_LIMITS", False):
        reader = stream_of(tmp_path, **start)
        reader.partitions(query.ends[-1], query.ends[-1])  # how Spark tells the offset
        rest = rows_between(reader, query.ends[-1], reader.latestOffset())
    assert flat([first, rest]) == [(1,), (2,), (3,), (4,)]


def test_a_feed_does_not_go_on_inside_a_commit(tmp_path: Path) -> None:
    write_each(tmp_path, 1, 2, **FEED)
    query = Query(tmp_path, maxFilesPerTrigger="1", startingVersion="0")
    query.batch()
    query.options["readChangeFeed"] = "true"
    with pytest.raises(InvalidArgumentError, match=r"(?s)inside of version 0.*begin again"):
        query.batch()


def test_commits_that_change_rows_are_refused_or_passed_over(tmp_path: Path) -> None:
    write_each(tmp_path, 1, 2)
    deltalake.DeltaTable(tmp_path).delete("id = 1")
    deltalake.DeltaTable(tmp_path).optimize.compact()
    write_each(tmp_path, 3, 4)
    limit = {"startingVersion": "0", "maxFilesPerTrigger": "1"}
    query = Query(tmp_path, **limit)
    assert flat([query.batch(), query.batch()]) == [(1,), (2,)]  # what was before is read first
    with pytest.raises(InvalidArgumentError, match="version 1 of"):
        query.batch()
    passed = Query(tmp_path, **limit, ignoreDeletes="true").all()
    assert flat(passed) == [(1,), (2,), (3,), (4,)]


@pytest.mark.parametrize("feed", [False, True])
def test_commits_are_planned_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, feed: bool
) -> None:
    for number in range(7):
        write_each(tmp_path, number, number + 100, **(FEED if not number else {}))
    options = {"startingVersion": "0"} | ({"readChangeFeed": "true"} if feed else {})
    seen: list[int] = []
    read = stream_commits.read_commits

    def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        seen.append(1 + args[2] - args[1])
        return read(*args, **kwargs)

    monkeypatch.setattr(stream_reader, "_WINDOW", 3)
    monkeypatch.setattr(stream_commits, "read_commits", counted)
    found = Query(tmp_path, **options).batch(ReadAllAvailable())
    assert sorted(row[0] for row in found) == [*range(7), *range(100, 107)]
    assert max(seen) == 3


@pytest.mark.parametrize("name", ["maxFilesPerTrigger", "maxBytesPerTrigger"])
def test_limits_are_above_0_and_refused_before_spark_4_2(tmp_path: Path, name: str) -> None:
    write_each(tmp_path, 1)
    for value in ("0", "-1", "many", ""):
        with pytest.raises(InvalidArgumentError, match=name):
            stream_of(tmp_path, **{name: value})
    with (
        patch.object(stream_options, "HAS_LIMITS", False),
        pytest.raises(UnsupportedFeatureError, match=r"(?s)before Spark 4\.2.*omit it"),
    ):
        DelvecDataSource({"path": str(tmp_path), name: "5"}).schema()


def test_tasks_get_no_planner(tmp_path: Path) -> None:
    write_each(tmp_path, 1)
    assert pickled(Query(tmp_path).reader()).__dict__ == {}


@pytest.mark.parametrize("change", ["other columns", "deleted rows"])
def test_what_comes_before_the_commit_that_ends_a_stream_is_returned(
    tmp_path: Path, change: str
) -> None:
    for number in range(1, 4):
        write_each(tmp_path, number)
    query = Query(tmp_path)
    running = query.reader()
    assert len(query.batch(until=running)) == 3
    for number in range(4, 9):
        write_each(tmp_path, number)
    if change == "other columns":
        replaced = pa.table({"name": ["x"]})
        deltalake.write_deltalake(tmp_path, replaced, mode="overwrite", schema_mode="overwrite")
    else:
        deltalake.DeltaTable(tmp_path).delete("id = 1")
    start = query.ends[-1]
    end = running.latestOffset(start, None)
    assert sorted(rows_between(running, start, end)) == [(number,) for number in range(4, 9)]
    with pytest.raises(InvalidArgumentError, match="version 8 of"):
        running.latestOffset(end, None)
