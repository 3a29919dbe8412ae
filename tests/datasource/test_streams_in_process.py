"""Which rows `readStream.format("delvec")` returns, and where it stops; without a JVM."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource
from delvec.errors import DelvecError, FormatError, InvalidArgumentError
from tests.datasource.in_process import FEED, ids, rows_between, stream_of, write
from tests.delta.log_files import live_adds

ANOTHER = r"(?s)another table.*checkpointLocation"


def drop_commit(path: Path, version: int) -> None:
    (path / f"_delta_log/{version:020}.json").unlink()


def batches(path: Path, **options: str) -> Callable[[], list[tuple[Any, ...]]]:
    """Return a function that reads the next batch of a new stream each time."""
    reader = stream_of(path, **options)
    ends = [reader.initialOffset()]

    def following() -> list[tuple[Any, ...]]:
        ends.append(reader.latestOffset())
        assert ends[-1] == json.loads(json.dumps(ends[-1]))
        return rows_between(reader, *ends[-2:])

    return following


def test_a_stream_returns_the_table_and_then_what_is_appended(tmp_path: Path) -> None:
    write(tmp_path, ids(1, 2))
    write(tmp_path, ids(3))
    following = batches(tmp_path)
    assert following() == [(1,), (2,), (3,)]
    reader = stream_of(tmp_path)
    assert reader.latestOffset() == reader.latestOffset()
    write(tmp_path, ids(4), ids(5))
    write(tmp_path, ids(6))
    assert reader.latestOffset() == reader.latestOffset() != stream_of(tmp_path).initialOffset()
    assert following() == [(4,), (5,), (6,)]
    deltalake.DeltaTable(tmp_path).optimize.compact()  # changes no row
    assert following() == []
    write(tmp_path, ids(7))
    assert following() == [(7,)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, [(1,), (2,)]), ({"startingVersion": "1"}, [(2,)]), ({"startingVersion": "latest"}, [])],
    ids=str,
)
def test_a_first_batch_that_is_repeated_begins_where_it_began(
    tmp_path: Path, options: dict[str, str], expected: list[tuple[int]]
) -> None:
    write(tmp_path, ids(1))
    write(tmp_path, ids(2))
    end = stream_of(tmp_path, **options).latestOffset()
    write(tmp_path, ids(3))
    at_once = stream_of(tmp_path, **options)
    latest = at_once.latestOffset()  # the trigger availableNow asks first, and then goes on
    assert rows_between(at_once, end, latest) == [(3,)]
    again = stream_of(tmp_path, **options)  # after a crash
    assert again.partitions(end, end) == []  # so Spark tells how far the stream was
    assert rows_between(again, again.initialOffset(), end) == expected
    assert rows_between(again, end, again.latestOffset()) == [(3,)]


def test_a_stream_starts_at_a_time(tmp_path: Path) -> None:
    write(tmp_path, ids(1), **{"delta.enableInCommitTimestamps": "true"})
    write(tmp_path, ids(2))
    history = DeltaTable.for_path(None, tmp_path).arrow_history()
    moment = max(history["timestamp"].to_pylist()).isoformat()
    assert batches(tmp_path, startingTimestamp=moment)() == [(2,)]
    with pytest.raises(InvalidArgumentError, match="no commit as late"):
        batches(tmp_path, startingTimestamp="2126-01-01T00:00:00Z")()
    with pytest.raises(InvalidArgumentError, match="names no zone"):
        batches(tmp_path, startingTimestamp="2026-01-01 00:00:00")


def test_a_commit_that_updates_fails_the_stream_or_is_passed_over_on_request(
    tmp_path: Path,
) -> None:
    write(tmp_path, ids(1, 2))
    plain, skipping = batches(tmp_path), batches(tmp_path, skipChangeCommits="true")
    assert plain() == skipping() == [(1,), (2,)]
    write(tmp_path, ids(3), mode="overwrite")
    write(tmp_path, ids(4))
    ways_out = r"deletes or updates.*skipChangeCommits.*readChangeFeed"
    with pytest.raises(InvalidArgumentError, match=rf"(?s)version 1 of .* \(WRITE\) {ways_out}"):
        plain()
    assert skipping() == [(4,)]


def test_deletes_of_whole_files_are_ignored_on_request_and_updates_are_not(tmp_path: Path) -> None:
    write(tmp_path, ids(1))
    write(tmp_path, ids(2))
    plain, following = batches(tmp_path), batches(tmp_path, ignoreDeletes="true")
    assert plain() == following() == [(1,), (2,)]
    deltalake.DeltaTable(tmp_path).delete("id = 1")
    assert following() == []
    with pytest.raises(InvalidArgumentError, match=r"version 2 .*(?s:deletes rows.*ignoreDeletes)"):
        plain()
    write(tmp_path, ids(3), mode="overwrite")
    with pytest.raises(InvalidArgumentError, match="version 3"):
        following()


def test_a_vector_that_comes_without_a_remove_is_a_change(tmp_path: Path) -> None:
    write(tmp_path, ids(1, 2))
    following = batches(tmp_path, skipChangeCommits="true")
    following()
    [add] = live_adds(tmp_path)
    add["deletionVector"] = {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    lines = {"commitInfo": {"operation": "DELETE", "timestamp": 0}}, {"add": add}
    (tmp_path / f"_delta_log/{1:020}.json").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InvalidArgumentError, match="another deletion vector"):
        following()


def test_the_feed_returns_every_change(tmp_path: Path) -> None:
    write(tmp_path, ids(1, 2), **FEED)
    following = batches(tmp_path, readChangeFeed="true")
    assert [row[:3] for row in following()] == [(1, "insert", 0), (2, "insert", 0)]
    write(tmp_path, ids(3), mode="overwrite")
    found = following()
    assert [row[:3] for row in found] == [(1, "delete", 1), (2, "delete", 1), (3, "insert", 1)]
    assert len({row[3] for row in found}) == 1
    with pytest.raises(InvalidArgumentError, match="returns every change"):
        batches(tmp_path, readChangeFeed="true", skipChangeCommits="true")
    write(tmp_path / "without", ids(1))
    with pytest.raises(InvalidArgumentError, match=r"(?s)does not record.*set_properties"):
        batches(tmp_path / "without", readChangeFeed="true")


def test_commits_that_are_gone_fail_the_stream(tmp_path: Path) -> None:
    write(tmp_path, ids(0))
    following = batches(tmp_path)
    following()
    for number in range(1, 4):
        write(tmp_path, ids(number))
    DeltaTable.for_path(None, tmp_path).checkpoint()
    drop_commit(tmp_path, 1)
    drop_commit(tmp_path, 2)
    with pytest.raises(InvalidArgumentError, match=r"versions 1 to 3 .* of 1, 2 are gone"):
        following()


def test_a_table_in_the_place_of_another_is_not_gone_on_with(tmp_path: Path) -> None:
    write(tmp_path, ids(1))
    write(tmp_path, ids(2))
    reader = stream_of(tmp_path)
    end = reader.latestOffset()
    shutil.rmtree(tmp_path)
    write(tmp_path, ids(7))
    with pytest.raises(InvalidArgumentError, match="commits are gone"):
        reader.latestOffset()
    again = stream_of(tmp_path)
    with pytest.raises(InvalidArgumentError, match=ANOTHER):
        again.partitions(end, end)
    with pytest.raises(FormatError, match="another source"):
        again.partitions(end, {"logOffset": 3})
    for number in range(3):  # the new table has more versions than the stream has read
        write(tmp_path, ids(number))
    again = stream_of(tmp_path)
    latest = again.latestOffset()  # as with availableNow
    with pytest.raises(InvalidArgumentError, match=ANOTHER):
        again.partitions(end, latest)


@pytest.mark.parametrize("options", [{}, {"readChangeFeed": "true"}], ids=str)
def test_a_table_that_is_replaced_while_the_stream_runs_is_not_gone_on_with(
    tmp_path: Path, options: dict[str, str]
) -> None:
    write(tmp_path, ids(1), **FEED)
    write(tmp_path, ids(2))
    following = batches(tmp_path, **options)
    assert len(following()) == 2
    shutil.rmtree(tmp_path)
    for number in range(10, 14):  # the new table has more versions than the stream has read
        write(tmp_path, ids(number), **(FEED if number == 10 else {}))
    with pytest.raises(InvalidArgumentError, match=ANOTHER):
        following()


def test_with_available_now_a_stream_never_goes_backwards(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, ids(number))
    end = stream_of(tmp_path).latestOffset()
    drop_commit(tmp_path, 3)
    drop_commit(tmp_path, 4)  # as after a restore of the folder from a backup
    for last in ("latest", "end"):
        again = stream_of(tmp_path)
        latest = again.latestOffset()
        with pytest.raises(InvalidArgumentError, match=r"newest, .* read version 4: commits are"):
            again.partitions(end, {"latest": latest, "end": end}[last])


def test_new_columns_stop_a_stream_until_it_starts_again(tmp_path: Path) -> None:
    write(tmp_path, ids(1))
    reader = stream_of(tmp_path)
    first = reader.latestOffset()
    rows_between(reader, reader.initialOffset(), first)
    DeltaTable.for_path(None, tmp_path).add_columns(StructType([StructField("name", StringType())]))
    write(tmp_path, ids(2).append_column("name", [["b"]]))
    end = reader.latestOffset()
    with pytest.raises(InvalidArgumentError, match=r"(?s)version 1 .*call load\(\) again"):
        reader.partitions(first, end)
    again = stream_of(tmp_path)  # by another load(): a DataFrame keeps its columns
    assert rows_between(again, first, end) == [(2, "b")]
    assert rows_between(again, again.initialOffset(), first) == [(1, None)]


def test_columns_that_are_gone_cannot_be_read_from_before(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "x": ["a"]})
    write(tmp_path, rows, **{"delta.columnMapping.mode": "name"})
    write(tmp_path, rows)
    DeltaTable.for_path(None, tmp_path).drop_column("x")
    with pytest.raises(InvalidArgumentError, match=r"version 1 .* other columns"):
        batches(tmp_path, startingVersion="1")()
    assert batches(tmp_path, startingVersion="2")() == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"maxFilesPerTrigger": "1"}, "where a batch starts"),
        ({"ignoreChanges": "true"}, "skipChangeCommits"),
        ({"failOnDataLoss": "false"}, "commits are gone"),
        ({"startingVersion": "x"}, "'latest'"),
        ({"startingVersion": "9"}, "no version 9"),
        ({"startingVersion": "0", "startingTimestamp": "2026-01-01Z"}, "name one of them"),
        ({"skipChangeCommits": "yes"}, "true or false"),
        ({"versionAsOf": "0"}, "for batches"),
        ({"view": "files"}, "for batches"),
    ],
    ids=str,
)
def test_options_of_streams_are_checked(
    tmp_path: Path, options: dict[str, str], match: str
) -> None:
    write(tmp_path, ids(1))
    with pytest.raises(DelvecError, match=match):
        stream_of(tmp_path, **options).latestOffset()


def test_options_of_streams_are_refused_in_batches(tmp_path: Path) -> None:
    write(tmp_path, ids(1))
    source = DelvecDataSource({"path": str(tmp_path), "startingVersion": "0"})
    with pytest.raises(InvalidArgumentError, match="for streams"):
        source.reader(source.schema())
