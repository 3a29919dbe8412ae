"""The commit engine: what all changes of an Iceberg table have in common."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog

from delvec.errors import ConflictError, LockedError
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.failures import CommitStateUnknownError
from delvec.iceberg.client.metadata import IcebergSnapshot, Ref, TableMetadata
from delvec.iceberg.commit.branch_commit import (
    commit_change,
    require_branch,
    with_unpartitioned_spec,
)
from delvec.iceberg.commit.commit import RowChange, is_applied
from delvec.iceberg.commit.lock import hold_lock
from delvec.iceberg.commit.lock_state import LOCK_PROPERTY, LockState, lock_state
from delvec.iceberg.commit.publish import (
    NewSnapshot,
    Staged,
    abandon,
    begin,
    publish,
    set_properties,
    stage,
)
from delvec.iceberg.commit.refs import create_branch, create_tag, drop_branch, remove, rollback
from tests.conversion.targets import before, numbered
from tests.iceberg.deletes.tables import loaded, lost, never, new_table

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: SparkSession) -> LoadedTable:
    """A partitioned table of two commits."""
    name = new_table(spark, "id BIGINT", "PARTITIONED BY (bucket(2, id))")
    for number in (1, 2):
        spark.sql(f"INSERT INTO {name} VALUES ({number})")
    return loaded(spark, name)


def newest(table: LoadedTable) -> LoadedTable:
    return load_table(table.spark, table.name)


def staged(table: LoadedTable, *, snapshots: int = 1) -> Staged:
    found = begin(table.spark, table.name, newest(table))
    new = [NewSnapshot(RowChange())] * snapshots
    return stage(found, f"b_{uuid4().hex}", new, {"own": "1"}, found.metadata.spec["spec-id"])


def test_a_commit_is_done_whether_spark_forgets_the_table_or_not(
    table: LoadedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    oldest = next(reversed(list(table.metadata.ancestors()))).id

    def refuse(_: Catalog, name: str) -> None:
        raise AnalysisException(f"no {name}")

    monkeypatch.setattr(Catalog, "refreshTable", refuse)
    acts: tuple[Callable[[], object], ...] = (
        lambda: commit_change(table, "main", RowChange()),
        lambda: with_unpartitioned_spec(newest(table)),
        lambda: create_branch(table, "b"),
        lambda: drop_branch(table, "b"),
        lambda: set_properties(newest(table), {"x": "1"}),
        lambda: publish(staged(table), {"y": "1"}),
        lambda: abandon(staged(table)),
        lambda: remove(newest(table), [oldest], []),
    )
    commits = (1, 1, 1, 1, 1, 2, 2, 1)
    for act, count in zip(acts, commits, strict=True):
        caplog.clear()
        with numbered() as calls:
            act()
        assert calls.names == ["commit"] * count
        warned = [each.levelname for each in caplog.records if "Spark cannot load" in each.message]
        assert warned == ["WARNING"] * count
    caplog.clear()
    with hold_lock(newest(table), "RESOLVE") as held:
        held.check(newest(table).metadata)
    assert caplog.text.count("Spark cannot load") == 2
    found = newest(table).metadata
    assert set(found.refs) == {"main"}
    assert found.properties["x"] == found.properties["y"] == "1"
    assert oldest not in found.snapshots


def test_one_has_the_lock_and_no_tag_of_it_stays(table: LoadedTable) -> None:
    before_it = table.metadata.refs
    with hold_lock(table, "RESOLVE", lease=600) as held:
        state, found = held.state, newest(table)
        assert state is not None
        assert (lock_state(found.metadata), state.generation, state.lease_ms) == (state, 1, 600_000)
        assert state.expires_ms / 1000 == pytest.approx(time.time() + 600, abs=60)
        assert held.ends == pytest.approx(time.monotonic() + 600, abs=60)
        tag = Ref(before_it["main"].snapshot_id, is_branch=False)
        assert found.metadata.refs == {**before_it, state.tag: tag}
        age = found.current.ref(state.tag).maxRefAgeMs() / 1000
        assert age == pytest.approx(24 * 3600 + 600, abs=120)
        with pytest.raises(LockedError), hold_lock(table, "COMPACT"):
            pytest.fail("two have the lock")
        held.check(newest(table).metadata)
    assert (newest(table).metadata.refs, lock_state(newest(table).metadata)) == (before_it, None)
    with hold_lock(table, "COMPACT") as again:
        assert again.state is not None
        assert again.state.generation == 2


SNAPSHOTS = {number: IcebergSnapshot(number, None, number, {}, 0) for number in (1, 2, 3)}
OLD = TableMetadata(
    uuid="u",
    location="l",
    format_version=3,
    properties={"a": "1", "theirs": "1"},
    schema={},
    schemas={},
    last_column_id=1,
    spec={},
    specs={0: {}},
    snapshots={1: SNAPSHOTS[1], 2: SNAPSHOTS[2]},
    refs={"main": Ref(2, is_branch=True), "t": Ref(1, is_branch=False)},
)
LOCK = LockState(7, "host/1", "RESOLVE", 1_800_000_000_000, 1000, "t")
GOOD: Mapping[str, tuple[Any, ...]] = {
    "generation": (1, 10**15 - 1),
    "lease_ms": (1000, 24 * 3600 * 1000),
    "owner": ("ä" * 1800,),
}
BAD: Mapping[str, tuple[Any, ...]] = {
    "generation": (0, -1, 10**15, True, "7", 7.0, None),
    "lease_ms": (999, 24 * 3600 * 1000 + 1),
    "expires_ms": (-(10**18), 10**18, "1"),
    **dict.fromkeys(("owner", "operation", "token"), (7, "a\nb", "\x1b", "x" * 2000)),
}


def test_a_lock_is_what_delvec_could_have_written() -> None:
    def state_of(name: str = "generation", value: object = 7) -> LockState | None:
        text = json.dumps({**asdict(LOCK), name: value}, ensure_ascii=False)
        tags = {f"delvec-lock-{value if name == 'generation' else 7}": Ref(1, is_branch=False)}
        return lock_state(replace(OLD, properties={LOCK_PROPERTY: text}, refs=tags))

    assert (state_of(), lock_state(OLD)) == (LOCK, None)
    assert lock_state(replace(OLD, properties={LOCK_PROPERTY: json.dumps(asdict(LOCK))})) is None
    for name, values in GOOD.items():
        for value in values:
            assert state_of(name, value) == replace(LOCK, **{name: value})
    assert not [name for name, values in BAD.items() for each in values if state_of(name, each)]


def test_each_kind_of_commit_without_an_answer_is_looked_for(table: LoadedTable) -> None:
    oldest = next(reversed(list(table.metadata.ancestors()))).id
    acts: tuple[Callable[[], object], ...] = (
        lambda: commit_change(newest(table), "main", RowChange()),
        lambda: with_unpartitioned_spec(newest(table)),
        lambda: create_tag(table, "t"),
        lambda: set_properties(newest(table), {"x": "1"}),
        lambda: remove(newest(table), [oldest], ["t"]),
        lambda: create_branch(table, "a", staging=True),
        lambda: drop_branch(table, "a"),
        lambda: rollback(table, snapshot_id=table.metadata.refs["main"].snapshot_id),
    )
    for act in acts:
        metadata = newest(table).current.metadataFileLocation()
        with numbered({0: never}), pytest.raises((CommitStateUnknownError, RuntimeError)):
            act()
        assert newest(table).current.metadataFileLocation() == metadata
        with numbered({0: lost}) as calls:
            act()
        assert calls.names == ["commit"]
        assert newest(table).current.metadataFileLocation() != metadata
    assert not [key for key in newest(table).metadata.properties if key.startswith("delvec.")]
    waiting = staged(table)
    with numbered({0: lost}):
        abandon(waiting)
    assert set(newest(table).metadata.refs) == {"main"}


def test_a_lost_race_leaves_no_manifest(table: LoadedTable) -> None:
    def insert() -> None:
        table.spark.sql(f"INSERT INTO {table.name} VALUES (3)")

    with numbered({0: before(insert)}), pytest.raises(ConflictError):
        staged(table, snapshots=2)
    with numbered({0: before(insert)}):
        commit_change(newest(table), "main", RowChange())
    folder = Path(table.metadata.location.removeprefix("file:")) / "metadata"
    lists = {file.name for file in folder.glob("snap-*.avro")}
    found = newest(table).metadata
    assert lists == {name for name in found.file_names if name.startswith("snap-")}
    assert (len(lists), set(found.refs)) == (5, {"main"})


def test_an_argument_that_is_wrong_by_now_is_a_conflict(table: LoadedTable) -> None:
    def tag() -> None:
        table.spark.sql(f"ALTER TABLE {table.name} CREATE TAG b")

    require_branch(table.metadata, "b", str(table.name))
    with numbered({0: before(tag)}), pytest.raises(ConflictError, match="b is a tag") as refused:
        commit_change(table, "b", RowChange())
    assert (refused.value.attempts, refused.value.retryable) == (2, False)


def test_what_a_commit_changes_tells_whether_it_was_applied() -> None:
    wanted = (
        replace(OLD, snapshots=SNAPSHOTS),
        replace(OLD, snapshots={2: SNAPSHOTS[2]}),
        replace(OLD, refs={**OLD.refs, "b": Ref(1, is_branch=True)}),
        replace(OLD, refs={"main": OLD.refs["main"]}),
        replace(OLD, properties={"theirs": "1"}),
        replace(OLD, properties={**OLD.properties, "a": "2"}),
        replace(OLD, specs={0: {}, 1: {}}),
    )
    for wish in wanted:
        later = replace(wish, properties={**wish.properties, "theirs": "2"})
        assert is_applied(OLD, wish, wish)
        assert is_applied(OLD, wish, later)
        assert not is_applied(OLD, wish, OLD)
