from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from delvec.delta.log.history import SCHEMA, CommitTimes, find_version_at, history, history_rows
from delvec.delta.log.paths import commit_key
from delvec.delta.log.segment import LogFile
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.storage import Storage
from tests.delta.builder import TableBuilder, legacy, protocol_of

NOON = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def table_actions(properties: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    made = TableBuilder(Path(), properties=properties or {})
    return [{"protocol": legacy(1, 2)}, {"metaData": made.metadata()}]


def set_time(root: Path, version: int, moment: datetime) -> None:
    nanoseconds = ms(moment) * 1_000_000
    os.utime(root / commit_key(version), ns=(nanoseconds, nanoseconds))


def commit(
    root: Path, version: int, moment: datetime, /, *actions: dict[str, Any], **info: object
) -> None:
    """Write a commit whose file is of a time; `info` is what it says of itself."""
    lines = [{"commitInfo": info}] if info else []
    path = root / commit_key(version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(action) + "\n" for action in (*lines, *actions)))
    set_time(root, version, moment)


def plain_table(root: Path, moments: Sequence[datetime]) -> Storage:
    for version, moment in enumerate(moments):
        first = table_actions() if version == 0 else ()
        commit(root, version, moment, *first, operation="WRITE", readVersion=version - 1)
    return Storage.open(root)


def own_times_table(root: Path, count: int, since: int, every: timedelta = MINUTE) -> Storage:
    """Make a table whose commits hold their time from a version on; its files are all younger."""
    for version in range(count):
        moment = NOON + version * every
        if version < since:
            actions = table_actions() if version == 0 else []
            commit(root, version, moment, *actions, operation="WRITE")
            continue
        properties = {"delta.enableInCommitTimestamps": "true"}
        if since:
            name = "delta.inCommitTimestampEnablement"
            properties |= {f"{name}Version": str(since), f"{name}Timestamp": str(ms(moment))}
        actions = table_actions(properties) if version == since else []
        copied = NOON + timedelta(days=400)
        commit(root, version, copied, *actions, operation="WRITE", inCommitTimestamp=ms(moment))
    return Storage.open(root)


def hours(*numbers: float) -> list[datetime]:
    return [NOON + timedelta(hours=number) for number in numbers]


def test_history_lists_commits_newest_first_with_what_they_say(tmp_path: Path) -> None:
    names = ("operation", "userId", "userName", "clusterId", "isolationLevel", "userMetadata")
    says: dict[str, Any] = {name: f"some {name}" for name in (*names, "engineInfo")}
    says |= {"isBlindAppend": True, "operationMetrics": {}}
    says["operationParameters"] = {"isManaged": "false", "partitionBy": "[]"}
    commit(tmp_path, 0, NOON, *table_actions(), timestamp=1, somethingElse={"a": 1}, **says)
    later = NOON + timedelta(milliseconds=1500)
    add = {"path": 'a"commitInfo"', "size": 1, "partitionValues": {}, "dataChange": True}
    deletes = {"operationMetrics": {"numDeletedRows": "1"}, "readVersion": 0}
    commit(tmp_path, 1, later, {"add": add}, operation="DELETE", isBlindAppend=False, **deletes)
    commit(tmp_path, 2, later + timedelta(seconds=1), {"add": {**add, "path": "b"}})
    found = history(Storage.open(tmp_path))
    assert found.schema == SCHEMA
    silent, delete, create = found.to_pylist()
    pairs = [("isManaged", "false"), ("partitionBy", "[]")]
    maps = {"operationParameters": pairs, "operationMetrics": []}
    assert create == {"version": 0, "timestamp": NOON, "readVersion": None} | says | maps
    assert (delete["version"], delete["timestamp"], delete["readVersion"]) == (1, later, 0)
    assert delete["operationMetrics"] == [("numDeletedRows", "1")]
    assert delete["userName"] is None
    assert {name for name, value in silent.items() if value is not None} == {"version", "timestamp"}


def test_what_writers_say_freely_becomes_text_or_null(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "operation": {"name": "odd"},
        "operationParameters": {"flag": True, "n": 5, "list": ["ü"], "none": None, "text": "5"},
        "operationMetrics": [1, 2],
        "readVersion": "1",
        "isBlindAppend": "yes",
        "userId": 12,
        "version": 99,
    }
    commit(tmp_path, 0, NOON, *table_actions(), **odd)
    [row] = history(Storage.open(tmp_path)).to_pylist()
    assert (row["version"], row["operation"], row["userId"]) == (0, '{"name":"odd"}', "12")
    texts = {"flag": "true", "n": "5", "list": '["ü"]', "none": None, "text": "5"}
    assert row["operationParameters"] == list(texts.items())
    assert row["operationMetrics"] is row["readVersion"] is row["isBlindAppend"] is None


def test_a_limit_reads_no_more_commits_than_it_gives(tmp_path: Path) -> None:
    storage = plain_table(tmp_path, hours(*range(40)))
    before = storage.requests
    assert history(storage, limit=3)["version"].to_pylist() == [39, 38, 37]
    # The hint that is not there, the 40 commits of the snapshot, and three.
    assert (storage.requests - before).gets <= 1 + 40 + 3
    assert (history(storage, limit=100).num_rows, history(storage, limit=0).schema) == (40, SCHEMA)
    assert history(storage, limit=0).num_rows == 0
    for wrong in (-1, "3", True):
        with pytest.raises(InvalidArgumentError, match="limit is a number"):
            history(storage, limit=wrong)  # type: ignore[arg-type]


def test_a_commit_that_is_cleaned_up_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, read = plain_table(tmp_path, hours(*range(4))), CommitTimes.read

    def late(times: CommitTimes, commit: LogFile) -> dict[str, Any]:
        (tmp_path / commit_key(0)).unlink(missing_ok=True)
        return read(times, commit)

    monkeypatch.setattr(CommitTimes, "read", late)
    assert [row["version"] for row in history_rows(storage)] == [3, 2, 1]


def test_times_of_files_are_made_to_rise(tmp_path: Path) -> None:
    storage = plain_table(tmp_path, hours(0, 2, 1, 2, 3))
    step = timedelta(milliseconds=1)
    two = NOON + timedelta(hours=2)
    times = [NOON, two, two + step, two + 2 * step, NOON + timedelta(hours=3)]
    assert history(storage)["timestamp"].to_pylist() == times[::-1]
    # The same with a limit that leaves out the commit with the wrong clock.
    assert history(storage, limit=2)["timestamp"].to_pylist() == times[:2:-1]
    for version, moment in enumerate(times):
        assert find_version_at(storage, moment) == version


@pytest.mark.parametrize(
    ("checkpoint", "gone"), [(3, (0, 1)), (2, (0, 1, 2))], ids=["commits before it", "none before"]
)
def test_a_cleaned_history_goes_on(tmp_path: Path, checkpoint: int, gone: tuple[int, ...]) -> None:
    storage = plain_table(tmp_path, hours(*range(5)))
    write_checkpoint(tmp_path, checkpoint)
    for version in gone:
        (tmp_path / commit_key(version)).unlink()
    assert history(storage)["version"].to_pylist() == [4, 3, 2][: 5 - len(gone)]
    # A version that has its commit but nothing to begin from cannot be read.
    assert find_version_at(storage, NOON + timedelta(hours=3)) == 3
    with pytest.raises(InvalidArgumentError, match="oldest version that can be is 3, of 2024"):
        find_version_at(storage, NOON + timedelta(hours=2, minutes=30))


def write_checkpoint(root: Path, version: int, properties: Any = None) -> None:  # noqa: ANN401
    """Write the state of a table without files, as a checkpoint of the second kind."""
    name = f"{version:020d}.checkpoint.{'0' * 8}-0000-0000-0000-{'0' * 12}.json"
    actions = [{"checkpointMetadata": {"version": version}}, *table_actions(properties)]
    (root / "_delta_log" / name).write_text("".join(json.dumps(a) + "\n" for a in actions))


def test_a_log_of_a_checkpoint_alone_tells_no_times(tmp_path: Path) -> None:
    storage = plain_table(tmp_path, hours(0))
    write_checkpoint(tmp_path, 0)
    (tmp_path / commit_key(0)).unlink()
    assert history(storage).num_rows == 0
    with pytest.raises(InvalidArgumentError, match="no commits left"):
        find_version_at(storage, NOON)


@pytest.mark.parametrize(
    ("moment", "zone", "version"),
    [
        ("2024-01-31 12:00:00", "UTC", 0),
        ("2024-01-31T12:59:59.999Z", "UTC", 0),
        ("2024-01-31T13:00:00Z", "UTC", 1),
        ("2024-01-31 13:00", "UTC", 1),
        ("2024-01-31 14:00+01:00", "UTC", 1),
        (" 2024-01-31 13:30:00.12 ", "UTC", 1),
        ("2024-01-31 19:00:00+05:00", "UTC", 2),
        ("2024-02-01", "UTC", 3),
        ("2024-01-31 14:00", "Europe/Berlin", 1),
        ("2024-01-31 14:00Z", "Europe/Berlin", 2),
        (datetime(2024, 1, 31, 14), "Europe/Berlin", 1),  # noqa: DTZ001
        (datetime(2024, 1, 31, 13, 0, 0, 999), "UTC", 1),  # noqa: DTZ001
        (datetime(2024, 1, 31, 14, 0, 0, 999, tzinfo=timezone.utc), "UTC", 2),
        (datetime(2024, 1, 31, 9, tzinfo=timezone(timedelta(hours=-4))), "UTC", 1),
    ],
)
def test_times_have_versions(
    tmp_path: Path, moment: datetime | str, zone: str, version: int
) -> None:
    assert find_version_at(plain_table(tmp_path, hours(0, 1, 2, 12, 13)), moment, zone) == version


@pytest.mark.parametrize(
    ("moment", "zone", "message"),
    [
        ("2024-01-31 13:00:00.001", "UTC", r"newest version is 1, of .* 13:00:00\.000\+00:00"),
        ("2024-01-31 11:59:59.999", "UTC", r"oldest .* is 0, of 2024-01-31 12:00:00\.000\+00:00"),
        ("2024-01-31 14:00", "Europe/Nowhere", "no time zone 'Europe/Nowhere'"),
        *(
            (wrong, "UTC", "timestamp")
            for wrong in ("", "yesterday", "2024-13-01", "2024-01-31 25:00:00", "1706702400")
        ),
        (1706702400, "UTC", "timestamp"),
        (1.5, "UTC", "timestamp"),
    ],
)
def test_other_times_are_refused(
    tmp_path: Path, moment: datetime | str, zone: str, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        find_version_at(plain_table(tmp_path, hours(0, 1)), moment, zone)


def test_times_in_commits_count_from_the_version_that_enabled_them(tmp_path: Path) -> None:
    storage = own_times_table(tmp_path, 6, since=2)
    times = [NOON + n * MINUTE for n in range(6)]
    assert history(storage)["timestamp"].to_pylist() == times[::-1]
    assert [find_version_at(storage, time) for time in times] == list(range(6))
    between = [time + MINUTE / 2 for time in times[:5]]
    assert [find_version_at(storage, time) for time in between] == list(range(5))
    with pytest.raises(InvalidArgumentError, match="newest version is 5"):
        find_version_at(storage, NOON + 6 * MINUTE)
    with pytest.raises(InvalidArgumentError, match="oldest version that can be is 0"):
        find_version_at(storage, NOON - MINUTE)
    # As in a copy of a table: the files of the first commits are from today.
    for version in (0, 1):
        set_time(tmp_path, version, NOON + timedelta(days=400))
    assert [find_version_at(storage, times[number]) for number in (2, 4)] == [2, 4]
    with pytest.raises(InvalidArgumentError, match="oldest version that can be is 0, of 2025"):
        find_version_at(storage, NOON + MINUTE)


def test_times_in_all_commits_are_searched_without_reading_all(tmp_path: Path) -> None:
    storage = own_times_table(tmp_path, 500, since=0)
    write_checkpoint(tmp_path, 499, {"delta.enableInCommitTimestamps": "true"})
    before = storage.requests
    assert find_version_at(storage, NOON + 123 * MINUTE) == 123
    assert (storage.requests - before).gets <= 15
    with pytest.raises(InvalidArgumentError, match="oldest version that can be is 0, of 2024-01"):
        find_version_at(storage, NOON - MINUTE)


def test_times_in_commits_say_nothing_once_they_are_disabled(tmp_path: Path) -> None:
    storage = own_times_table(tmp_path, 3, since=1)
    late, copied = NOON + timedelta(days=500), NOON + timedelta(days=400)
    commit(tmp_path, 3, late, *table_actions(), operation="SET TBLPROPERTIES")
    times = [late, copied + timedelta(milliseconds=1), copied, NOON]
    assert history(storage)["timestamp"].to_pylist() == times
    assert find_version_at(storage, copied) == 1


def test_commits_that_lack_their_time_or_its_properties_are_damaged(tmp_path: Path) -> None:
    storage, later = own_times_table(tmp_path, 3, since=0), NOON + timedelta(hours=1)
    commit(tmp_path, 3, later, operation="WRITE")
    with pytest.raises(FormatError, match=r"lacks its in-commit timestamp in .*03\.json"):
        find_version_at(storage, later)
    assert history(storage, limit=1)["timestamp"].to_pylist() == [later]
    commit(tmp_path, 3, NOON, operation="WRITE", inCommitTimestamp="soon")
    for ask in (lambda: history(storage), lambda: find_version_at(storage, later)):
        with pytest.raises(FormatError, match="timestamp that is none"):
            ask()
    half = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "1",
    }
    commit(tmp_path, 4, NOON, *table_actions(half), operation="WRITE")
    with pytest.raises(FormatError, match="since when it has in-commit timestamps"):
        find_version_at(storage, NOON)


def test_no_table_and_an_unreadable_one_are_told_apart(tmp_path: Path) -> None:
    for ask in (history, lambda storage: find_version_at(storage, NOON)):
        with pytest.raises(TableNotFoundError):
            ask(Storage.open(tmp_path / "nothing"))
    protocol = {"protocol": protocol_of("catalogManaged")}
    commit(tmp_path, 0, NOON, protocol, *table_actions()[1:])
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged"):
        history(Storage.open(tmp_path))
