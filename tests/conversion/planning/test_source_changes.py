from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from delvec.conversion.planning import source_changes
from delvec.conversion.planning.source_changes import (
    CommitFacts,
    SourceChanges,
    changes_between,
    commit_facts,
    versions_after,
)
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.replay import vector_ids
from delvec.delta.log.segment import LogListing, list_log, oldest_version
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.storage import Storage
from tests.delta.builder import TableBuilder

Key = tuple[str, str | None]


def descriptor(number: int) -> dict[str, Any]:
    """Several vectors share a file, so the offset tells them apart."""
    place = {"pathOrInlineDv": f"{number // 3:020d}", "offset": 1 + 40 * (number % 3)}
    return {"storageType": "u", "sizeInBytes": 36, "cardinality": 2, **place}


def vector_id(number: int | None) -> str | None:
    if number is None:
        return None
    value = descriptor(number)
    return f"u{value['pathOrInlineDv']}@{value['offset']}"


def add(path: str, vector: int | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    entry = {
        "path": path,
        "partitionValues": {},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 100}),
        **more,
    }
    return {"add": entry if vector is None else entry | {"deletionVector": descriptor(vector)}}


def remove(path: str, vector: int | None = None) -> dict[str, Any]:
    entry = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    return {"remove": entry if vector is None else entry | {"deletionVector": descriptor(vector)}}


def keys(files: FileSet) -> set[Key]:
    pairs = list(zip(files.paths.to_pylist(), vector_ids(files.vectors).to_pylist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def changes(table: TableBuilder, start: int, end: int | None = None) -> SourceChanges:
    found = changes_between(opened(table, end), start)
    assert found is not None
    return found


def opened(table: TableBuilder, version: int | None = None) -> Snapshot:
    return open_snapshot(Storage.open(table.root), version)


def grown(table: TableBuilder, count: int, *, checkpoint: bool = False) -> None:
    """Commit files `0`, `1` and so on, one by one."""
    for number in range(count):
        table.commit(add(f"{number}"))
    if checkpoint:
        table.checkpoint([add(f"{number}")["add"] for number in range(count)])


def touched(found: SourceChanges) -> set[str]:
    paths: list[str] = found.touched.to_pylist()
    assert len(set(paths)) == len(paths)
    return set(paths)


def live_at(table: TableBuilder, version: int) -> set[Key]:
    return keys(opened(table, version).files)


def applied(before: Iterable[Key], found: SourceChanges) -> set[Key]:
    gone = touched(found)
    return {key for key in before if key[0] not in gone} | keys(found.live)


def compact(table: TableBuilder, first: int, last: int) -> None:
    """Write the commits of some versions as one, as engines reconcile them."""
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for version in range(last, first - 1, -1):
        lines = table.commit_path(version).read_text().splitlines()
        for action in map(json.loads, lines):
            for kind in ("add", "remove"):
                if kind in action:
                    vector = json.dumps(action[kind].get("deletionVector"))
                    newest.setdefault((action[kind]["path"], vector), action)
    path = table.log / f"{first:020d}.{last:020d}.compacted.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in newest.values()))


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    builder = TableBuilder(tmp_path / "table")
    builder.create()
    return builder


class TestChanges:
    def test_paths_are_decoded_and_in_one_spelling(self, table: TableBuilder) -> None:
        table.commit(add("p=a%20b%2520/c%3Ad"), add("file:///x/y%20z"), add("plain"))
        table.commit(remove("p=a b%2520/c%3ad"), remove("/x/y z"), remove("plain"), add("%70lain2"))
        old = {"p=a b%20/c:d", "/x/y z", "plain"}
        assert touched(changes(table, 0)) == old | {"plain2"}
        assert keys(changes(table, 0).live) == {("plain2", None)}
        assert keys(changes(table, 0, 1).live) == {(path, None) for path in old}

    def test_they_end_where_they_are_told_to(self, table: TableBuilder) -> None:
        table.commit(add("old"))
        table.commit(add("new"), remove("old"))
        assert touched(changes(table, 0, 1)) == {"old"}
        assert changes(table, 1, 1).live.row_counts.to_pylist() == []
        table.commit()
        table.commit({"txn": {"appId": "x", "version": 1}})
        assert touched(changes(table, 2)) == set()

    def test_a_file_added_again_has_its_newest_entry(self, table: TableBuilder) -> None:
        table.commit(add("a", 1), add("b"))
        table.commit(add("a", 1, stats='{"numRecords": 7}', dataChange=False))
        table.commit(add("a", 1, stats='{"numRecords": 8}', baseRowId=5, dataChange=False))
        found = changes(table, 1)
        assert touched(found) == {"a"}
        assert keys(found.live) == {("a", vector_id(1))}
        assert found.live.row_counts.to_pylist() == [8]
        assert found.live.entries([0])[0].add["baseRowId"] == 5

    def test_the_columns_of_partitions_are_those_of_the_end(self, table: TableBuilder) -> None:
        table.commit(add("a"), add("b"))
        table.fields, table.partition_columns = {"id": "long", "p": "string"}, ["p"]
        table.commit(
            {"metaData": table.metadata()},
            remove("a"),
            remove("b"),
            add("p=x/c", partitionValues={"p": "x"}),
        )
        found = changes(table, 0)
        assert touched(found) == {"a", "b", "p=x/c"}
        assert found.live.partition_strings("p").to_pylist() == ["x"]
        assert found.live.metadata.partition_columns == ("p",)
        assert touched(changes(table, 0, 1)) == {"a", "b"}
        assert changes(table, 0, 1).live.metadata.partition_columns == ()

    def test_a_remove_that_forgets_the_vector_does_not_speak_of_the_file_that_is_live(
        self, table: TableBuilder
    ) -> None:
        table.commit(add("a", 1), add("b", 2))
        table.commit(remove("a"), remove("b", 2))
        entries = changes(table, 1).entries.to_pylist()
        assert {(row["path"], row["vector_id"]) for row in entries} == {
            ("a", None),
            ("b", vector_id(2)),
        }
        assert live_at(table, 2) == {("a", vector_id(1))}

    def test_a_file_that_is_live_twice_or_added_and_removed_at_once_is_refused(
        self, table: TableBuilder, tmp_path: Path
    ) -> None:
        table.commit(add("a"))
        table.commit(add("a", 1))
        with pytest.raises(FormatError, match="live more than once"):
            changes(table, 0)
        table = TableBuilder(tmp_path / "another")
        table.create()
        table.commit(add("a", 1), remove("a", 1))
        with pytest.raises(FormatError, match="adds and removes the same file"):
            changes(table, 0)


class TestReading:
    def test_what_the_snapshot_has_read_is_not_read_again(self, table: TableBuilder) -> None:
        grown(table, 5)
        storage = Storage.open(table.root)
        snapshot = open_snapshot(storage)
        before = storage.requests
        found = changes_between(snapshot, 2)
        assert found is not None
        assert touched(found) == {"2", "3", "4"}
        done = storage.requests - before
        assert (done.gets, done.lists) == (0, 0)

    def test_commits_before_the_checkpoint_are_read_and_it_is_not(
        self, table: TableBuilder
    ) -> None:
        grown(table, 4)
        adds = [add(f"{number}")["add"] for number in range(4)]
        _, *sidecars = table.checkpoint_with_sidecars(adds, as_json=True)
        table.write_hint()
        for number in (4, 5):
            table.commit(add(f"{number}"))
        storage = Storage.open(table.root)
        snapshot = open_snapshot(storage)
        for path in sidecars:
            path.unlink()
        before = storage.requests
        found = changes_between(snapshot, 2)
        assert found is not None
        assert touched(found) == {"2", "3", "4", "5"}
        done = storage.requests - before
        assert (done.gets, done.lists) == (2, 1)
        assert done.bytes_read == sum(table.commit_path(each).stat().st_size for each in (3, 4))

    def test_a_compacted_file_stands_for_commits_if_inside(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        table.commit(add("b"))
        table.commit(add("b", 1), remove("b"))
        table.commit(remove("a"))
        compact(table, 1, 3)
        assert touched(changes(table, 1)) == {"a", "b"}
        assert touched(changes(table, 2)) == {"a", "b"}
        assert touched(changes(table, 3)) == {"a"}
        assert keys(changes(table, 0).live) == {("b", vector_id(1))}
        table.checkpoint([add("b", 1)["add"]])
        table.drop_commits(1, 2, 3)
        assert keys(changes(table, 0).live) == {("b", vector_id(1))}
        assert changes_between(opened(table), 1) is None

    def test_a_commit_that_is_gone_or_to_come_gives_none(self, table: TableBuilder) -> None:
        assert changes_between(opened(table), 1) is None
        grown(table, 4, checkpoint=True)
        table.commit(add("4"))
        table.drop_commits(0, 1, 2)
        assert changes_between(opened(table), 1) is None
        assert touched(changes(table, 2)) == {"2", "3", "4"}
        assert touched(changes(table, 4)) == {"4"}

    def test_a_commit_that_is_cleaned_up_meanwhile_gives_none(
        self, table: TableBuilder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grown(table, 2, checkpoint=True)

        def listed(storage: Storage, start: int) -> LogListing:
            found = list_log(storage, start)
            table.drop_commits(1)
            return found

        monkeypatch.setattr(source_changes, "list_log", listed)
        assert changes_between(opened(table), 0) is None

    def test_a_version_between_that_cannot_be_read_gives_none(self, table: TableBuilder) -> None:
        table.commit({"protocol": table.protocol | {"readerFeatures": ["fancy"]}})
        table.commit({"protocol": table.protocol}, add("a"))
        table.checkpoint([add("a")["add"]])
        assert changes_between(opened(table), 0) is None
        assert touched(changes(table, 1)) == {"a"}

    def test_an_empty_commit_is_refused(self, table: TableBuilder) -> None:
        grown(table, 2, checkpoint=True)
        table.commit_path(1).write_bytes(b"")
        with pytest.raises(FormatError, match="is empty"):
            changes_between(opened(table), 0)


class RandomTable:
    """A table to which anything happens that a log can say, with what is live at each version."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.table = TableBuilder(root)
        self.table.create()
        self.states: list[dict[str, int | None]] = [{}]
        self._vectors = 0

    def commit(self) -> None:
        state = dict(self.states[-1])
        actions = []
        for path in self.random.sample([f"f{n} x" for n in range(12)], self.random.randrange(6)):
            actions += self._happens(path, state)
        self.random.shuffle(actions)
        self.table.commit(*actions)
        self.states.append(state)
        if self.random.random() < 0.2:
            self.table.checkpoint(
                [add(self._spelled(path), vector)["add"] for path, vector in state.items()]
            )
        if self.random.random() < 0.2 and self.table.version > 2:
            compact(self.table, self.random.randrange(1, self.table.version), self.table.version)

    def _happens(self, path: str, state: dict[str, int | None]) -> list[dict[str, Any]]:
        if path not in state:
            state[path] = self.random.choice([None, self._any_vector()])
            return [add(self._spelled(path), state[path])]
        old = state[path]
        what = self.random.choice(["again", "gone", "vector", "vector", "plain"])
        if what == "again":
            return [add(self._spelled(path), old)]
        if what == "gone" or (what == "plain" and old is None):
            del state[path]
            return [remove(self._spelled(path), old)]
        state[path] = None if what == "plain" else self._any_vector(other_than=old)
        return [remove(self._spelled(path), old), add(self._spelled(path), state[path])]

    def _any_vector(self, other_than: int | None = None) -> int:
        """Give a new vector, or at times an old one, as a RESTORE does."""
        if self._vectors and self.random.random() < 0.3:
            old = self.random.randrange(self._vectors)
            if old != other_than:
                return old
        self._vectors += 1
        return self._vectors - 1

    def _spelled(self, path: str) -> str:
        # A compacted file is keyed by the spelling, so one file has one; the space is encoded.
        return path.replace(" ", "%20")

    def expected(self, version: int) -> set[Key]:
        return {(path, vector_id(vector)) for path, vector in self.states[version].items()}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_changes_lead_from_any_version_to_any_later_one(tmp_path: Path, seed: int) -> None:
    made = RandomTable(tmp_path, seed)
    for _ in range(14):
        made.commit()
    storage = Storage.open(tmp_path)
    for end in range(15):
        snapshot = open_snapshot(storage, end)
        assert keys(snapshot.files) == made.expected(end)
        for start in range(-1, end + 1):
            found = changes_between(snapshot, start)
            assert found is not None
            before = set() if start < 0 else made.expected(start)
            assert applied(before, found) == made.expected(end)


@pytest.mark.parametrize("seed", range(2))
def test_steps_lead_from_version_to_version(tmp_path: Path, seed: int) -> None:
    made = RandomTable(tmp_path, 100 + seed)
    for _ in range(12):
        made.commit()
    for start in range(13):
        state = made.expected(start)
        steps = versions_after(Storage.open(tmp_path), start, 12)
        for version, step in enumerate(steps, start + 1):
            assert step.facts.version == version
            assert step.changes is not None
            state = applied(state, step.changes)
            assert state == made.expected(version)
        assert state == made.expected(12)


class TestSteps:
    def test_each_has_the_state_that_its_commit_puts_in_force(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        table.fields, table.partition_columns = {"id": "long", "p": "string"}, ["p"]
        table.commit(
            {"metaData": table.metadata()}, remove("a"), add("b", partitionValues={"p": "x"})
        )
        table.commit(add("c", partitionValues={"p": "y"}))
        wider = table.protocol | {"writerFeatures": ["deletionVectors", "appendOnly"]}
        table.commit({"protocol": wider})
        one, two, three, four = versions_after(Storage.open(table.root), 0, 4)
        found = [step.metadata.partition_columns for step in (one, two, three, four)]
        assert found == [(), ("p",), ("p",), ("p",)]
        assert three.files.partition_strings("p").to_pylist() == ["y"]
        assert two.files.metadata is two.metadata is three.metadata

    def test_one_that_cannot_be_read_is_refused_by_its_version(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        table.commit({"protocol": table.protocol | {"readerFeatures": ["fancy"]}})
        table.commit({"protocol": table.protocol})
        table.provider = "orc"
        table.commit({"metaData": table.metadata()})
        steps = versions_after(Storage.open(table.root), 0, 3)
        assert next(steps).facts.version == 1
        with pytest.raises(UnsupportedFeatureError, match=r"version 2 of .* needs .*fancy"):
            next(steps)
        with pytest.raises(UnsupportedFeatureError, match=r"version 4 of .* are orc"):
            next(versions_after(Storage.open(table.root), 3, 4))

    def test_the_checkpoint_and_each_commit_are_read_once(self, table: TableBuilder) -> None:
        grown(table, 6)
        storage = Storage.open(table.root)
        before = storage.requests
        open_snapshot(storage, 3)
        opened = storage.requests - before
        before = storage.requests
        assert len(list(versions_after(storage, 3, 6))) == 3
        done = storage.requests - before
        assert done.gets == opened.gets + 3
        assert done.lists == opened.lists + 1

    def test_a_commit_that_is_gone_is_told_by_the_call(self, table: TableBuilder) -> None:
        grown(table, 4, checkpoint=True)
        table.drop_commits(2)
        with pytest.raises(InvalidArgumentError, match="the commit of version 2 is not in the log"):
            versions_after(Storage.open(table.root), 1, 4)
        with pytest.raises(InvalidArgumentError, match="the commit of version 5 is not"):
            versions_after(Storage.open(table.root), 4, 5)

    def test_a_commit_that_goes_meanwhile_is_told_by_its_step(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        table.commit(add("b"))
        steps = versions_after(Storage.open(table.root), 0, 2)
        assert next(steps).facts.version == 1
        table.drop_commits(2)
        with pytest.raises(InvalidArgumentError, match="the commit of version 2 is not in the log"):
            next(steps)

    def test_ranges_that_are_none(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        assert list(versions_after(Storage.open(table.root), 1, 1)) == []
        with pytest.raises(InvalidArgumentError, match="ends before it starts"):
            versions_after(Storage.open(table.root), 1, 0)
        with pytest.raises(InvalidArgumentError, match="0 or more"):
            versions_after(Storage.open(table.root), -1, 1)


def say(table: TableBuilder, **info: object) -> None:
    """Commit what the given info says, instead of the builder's own."""
    path = table.commit()
    path.write_text(json.dumps({"commitInfo": info}) + "\n")


def set_time(path: Path, milliseconds: int) -> None:
    os.utime(path, ns=(milliseconds * 1_000_000,) * 2)


class TestFacts:
    def test_they_are_what_the_commit_says(self, table: TableBuilder) -> None:
        say(
            table,
            operation="MERGE",
            operationParameters={"predicate": '["(ä = 1)"]', "n": 1},
            userMetadata='{"job": 7}',
            engineInfo="Apache-Spark/4.1.4",
            txnId="5fba94ed",
        )
        set_time(table.commit_path(0), 1_700_000_000_000)
        set_time(table.commit_path(1), 1_700_000_005_000)
        facts = commit_facts(opened(table), 1)
        assert facts == CommitFacts(
            1,
            1_700_000_005_000,
            "MERGE",
            '{"predicate":"[\\"(ä = 1)\\"]","n":1}',
            '{"job": 7}',
            "Apache-Spark/4.1.4",
            "5fba94ed",
        )

    def test_what_a_commit_does_not_say_is_none(self, table: TableBuilder) -> None:
        table.commit()
        table.commit_path(1).write_text(json.dumps(add("a")) + "\n")
        facts = commit_facts(opened(table), 1)
        assert facts == CommitFacts(1, facts.timestamp_ms)
        assert facts.timestamp_ms is not None

    def test_times_rise_from_commit_to_commit_if_files_do_not(self, table: TableBuilder) -> None:
        for version in range(4):
            if version:
                table.commit()
            set_time(table.commit_path(version), 1_700_000_000_000)
        snapshot = opened(table)
        times = [commit_facts(snapshot, version).timestamp_ms for version in range(4)]
        assert times == [1_700_000_000_000 + number for number in range(4)]
        steps = versions_after(Storage.open(table.root), 0, 3)
        assert [step.facts.timestamp_ms for step in steps] == times[1:]

    def test_commits_that_hold_their_time_are_believed_from_then(self, table: TableBuilder) -> None:
        say(table, operation="WRITE")
        table.properties = {
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": "2",
            "delta.inCommitTimestampEnablementTimestamp": "42",
        }
        say(table, operation="SET TBLPROPERTIES", inCommitTimestamp=42)
        with table.commit_path(2).open("a") as file:
            file.write(json.dumps({"metaData": table.metadata()}) + "\n")
        say(table, operation="WRITE", inCommitTimestamp=50)
        for version in range(4):
            set_time(table.commit_path(version), 1_700_000_000_000 + version * 1000)
        storage = Storage.open(table.root)
        expected = [1_700_000_001_000, 42, 50]
        steps = [step.facts.timestamp_ms for step in versions_after(storage, 0, 3)]
        assert steps == expected
        snapshot = open_snapshot(storage)
        assert [commit_facts(snapshot, number).timestamp_ms for number in (1, 2, 3)] == expected

    def test_of_a_commit_that_is_gone_nothing_is_known(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        table.checkpoint([add("a")["add"]])
        table.drop_commits(0, 1)
        assert commit_facts(opened(table), 1) == CommitFacts(1)


class TestOldestVersion:
    def test_it_is_the_first_or_that_of_a_checkpoint(
        self, table: TableBuilder, tmp_path: Path
    ) -> None:
        with pytest.raises(TableNotFoundError):
            oldest_version(Storage.open(tmp_path))
        grown(table, 1, checkpoint=True)
        assert oldest_version(Storage.open(table.root)) == 0
        table.drop_commits(0, 1)
        assert oldest_version(Storage.open(table.root)) == 1

    def test_after_a_clean_up_it_is_that_of_a_checkpoint(self, table: TableBuilder) -> None:
        for number in range(6):
            table.commit(add(f"{number}"))
            if number in (2, 4):
                table.checkpoint([add(f"{each}")["add"] for each in range(number + 1)])
        storage = Storage.open(table.root)
        found = []
        for version in range(7):
            table.drop_commits(version)
            if version < 6:
                found.append(oldest_version(storage))
        # A checkpoint stands for the version of the commit that went, not for those after it.
        assert found == [3, 3, 3, 3, 5, 5]
        for version in (3, 5):
            open_snapshot(storage, version)

    def test_a_gap_ends_the_history_of_versions(self, table: TableBuilder, tmp_path: Path) -> None:
        grown(table, 5, checkpoint=True)
        table.commit(add("5"))
        table.drop_commits(4)
        storage = Storage.open(table.root)
        assert live_at(table, 2) == {("0", None), ("1", None)}
        assert oldest_version(storage) == 5
        assert [step.facts.version for step in versions_after(storage, 5, 6)] == [6]
        # A compacted file opens a version without its commits.
        table = TableBuilder(tmp_path / "compacted")
        table.create()
        grown(table, 5)
        compact(table, 1, 3)
        table.drop_commits(1, 2)
        storage = Storage.open(table.root)
        assert oldest_version(storage) == 3
        assert [step.facts.version for step in versions_after(storage, 3, 5)] == [4, 5]

    def test_a_log_that_nothing_can_be_opened_from_is_damaged(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        table.commit(add("b"))
        table.drop_commits(1)
        with pytest.raises(FormatError, match="lacks the commit of version 1"):
            oldest_version(Storage.open(table.root))
