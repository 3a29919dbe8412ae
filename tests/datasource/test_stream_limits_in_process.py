"""Batches of a stream that have a limit return every row once; without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
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
from delvec.datasource import table as opened
from delvec.datasource.stream_reader import LimitedStreamReader
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from tests.datasource.in_process import FEED, pickled, rows_between, stream_of, write_each

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


def ids_of(batches: Iterable[Rows]) -> list[int]:
    return sorted(row[0] for batch in batches for row in batch)


def sizes(batches: Iterable[Rows]) -> list[int]:
    return [len(batch) for batch in batches]


def test_the_table_at_the_beginning_is_split(tmp_path: Path) -> None:
    write_each(tmp_path, 1, 2, 3, **FEED)
    write_each(tmp_path, 4, 5, 6, 7)
    feed = Query(tmp_path, readChangeFeed="true", maxFilesPerTrigger="3").all()
    assert sizes(feed) == [3, 3, 1]
    assert sorted((row[0], *row[1:3]) for rows in feed for row in rows) == [
        (number, "insert", 1) for number in range(1, 8)
    ]
    query = Query(tmp_path, maxFilesPerTrigger="3")
    first = query.batch()
    write_each(tmp_path, 8, 9)  # does not change which rows are the beginning
    batches = [first, *query.all()]
    assert (sizes(batches), ids_of(batches)) == ([3, 3, 1, 2], list(range(1, 10)))
    table = DeltaTable.for_path(None, tmp_path).detail().id
    place = {"table": table, "version": -1, "since": 1, "snapshot": True, "files": 3}
    assert query.ends[1] == place


def test_a_batch_stops_inside_a_commit(tmp_path: Path) -> None:
    write_each(tmp_path, 1)
    write_each(tmp_path, 2, 3, 4, 5, 6)
    write_each(tmp_path, 7, 8)
    query = Query(tmp_path, maxFilesPerTrigger="2", startingVersion="0")
    batches = query.all()
    assert (sizes(batches), ids_of(batches)) == ([2, 2, 2, 2], list(range(1, 9)))
    places = [(end["version"], end.get("files", 0)) for end in query.ends]
    assert places == [(-1, 0), (0, 1), (0, 3), (1, 0), (2, 0)]
    assert [end.get("since") for end in query.ends] == [None, 0, None, None, None]
    later = Query(tmp_path, maxFilesPerTrigger="2", startingVersion="1").all()
    assert (sizes(later), ids_of(later)) == ([2, 2, 2, 1], list(range(2, 9)))


def test_a_batch_has_at_least_one_file_and_the_last_exceeds_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_each(tmp_path, *range(5))
    size = max(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    assert stream_reader._DEFAULT_FILES == 1000
    monkeypatch.setattr(stream_reader, "_DEFAULT_FILES", 3)
    cases: list[tuple[dict[str, str], list[int]]] = [
        ({"maxBytesPerTrigger": "1"}, [1] * 5),
        ({"maxBytesPerTrigger": str(size + 1), "maxFilesPerTrigger": "4"}, [2, 2, 1]),
        ({"maxBytesPerTrigger": "1g", "maxFilesPerTrigger": "4"}, [4, 1]),
        ({"maxBytesPerTrigger": "1g"}, [5]),
        ({}, [3, 2]),
    ]
    for options, expected in cases:
        batches = Query(tmp_path, **options).all()
        assert (sizes(batches), ids_of(batches)) == (expected, list(range(5))), options


def test_many_versions_without_files_are_read_in_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_each(tmp_path, 1)
    for number in range(7):
        DeltaTable.for_path(None, tmp_path).set_properties({"x": str(number)})
    write_each(tmp_path, 2)
    monkeypatch.setattr(stream_reader, "_MAX_VERSIONS", 3)
    query = Query(tmp_path, startingVersion="0")
    assert ids_of(query.batch() for _ in range(4)) == [1, 2]
    assert [end["version"] for end in query.ends] == [-1, 2, 5, 8]


def test_changes_of_a_version_stay_together(tmp_path: Path) -> None:
    write_each(tmp_path, 1, 2, 3, **FEED)
    write_each(tmp_path, 4)
    write_each(tmp_path, 5)
    deltalake.DeltaTable(tmp_path).delete("id = 2")
    query = Query(tmp_path, readChangeFeed="true", startingVersion="0", maxFilesPerTrigger="2")
    assert [[(row[0], row[1], row[2]) for row in batch] for batch in query.all()] == [
        [(1, "insert", 0), (2, "insert", 0), (3, "insert", 0)],
        [(4, "insert", 1), (5, "insert", 2)],
        [(2, "delete", 3)],
    ]


def test_all_that_is_new_is_read_where_spark_asks_for_it(tmp_path: Path) -> None:
    write_each(tmp_path, *range(5))
    assert len(Query(tmp_path, maxFilesPerTrigger="2").batch(ReadAllAvailable())) == 5
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
    assert sizes(query.batch(until=planner) for _ in range(3)) == [2, 1, 0]
    again = query.reader()
    again.prepareForTriggerAvailableNow()
    assert [query.batch(until=again) for _ in range(2)] == [[(3,)], []]


def test_without_commits_a_stream_from_the_newest_on_waits(tmp_path: Path) -> None:
    write_each(tmp_path, 1)
    query = Query(tmp_path, startingVersion="latest", maxFilesPerTrigger="1")
    assert query.batch() == []
    write_each(tmp_path, 2, 3)
    assert ids_of(query.all()) == [2, 3]


def test_an_offset_of_an_earlier_release_goes_on(tmp_path: Path) -> None:
    write_each(tmp_path, 1)
    table = DeltaTable.for_path(None, tmp_path).detail().id
    write_each(tmp_path, 2, 3)
    query = Query(tmp_path, maxFilesPerTrigger="1")
    query.ends.append({"table": table, "version": 0, "since": 0, "snapshot": True})
    assert ids_of(query.all()) == [2, 3]
    last = {"table": table, "version": 1}
    assert query.ends[-2:] == [{"table": table, "version": 0, "files": 1}, last]
    query.ends.append({"table": table, "version": 0})
    assert ids_of(query.all()) == [2, 3]


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
    assert ids_of([first, rest]) == [1, 2, 3, 4]


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
    assert ids_of([query.batch(), query.batch()]) == [1, 2]  # what was before is read first
    with pytest.raises(InvalidArgumentError, match="version 1 of"):
        query.batch()
    assert ids_of(Query(tmp_path, **limit, ignoreDeletes="true").all()) == [1, 2, 3, 4]


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
    assert ids_of([found]) == [*range(7), *range(100, 107)]
    assert max(seen) == 3


@pytest.mark.parametrize("name", ["maxFilesPerTrigger", "maxBytesPerTrigger"])
def test_limits_are_above_0_and_refused_before_spark_4_2(tmp_path: Path, name: str) -> None:
    write_each(tmp_path, 1)
    for value in ("0", "-1", "many", ""):
        with pytest.raises(InvalidArgumentError, match=name):
            stream_of(tmp_path, **{name: value})
    assert pickled(Query(tmp_path).reader()).__dict__ == {}, "tasks get no planner"
    with (
        patch.object(stream_options, "HAS_LIMITS", False),
        pytest.raises(UnsupportedFeatureError, match=r"(?s)before Spark 4\.2.*omit it"),
    ):
        DelvecDataSource({"path": str(tmp_path), name: "5"}).schema()


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
    assert ids_of([rows_between(running, start, end)]) == list(range(4, 9))
    with pytest.raises(InvalidArgumentError, match="version 8 of"):
        running.latestOffset(end, None)
