"""The lock of a table: one has it, others take it over when its owner is dead, and not before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from delvec.cli.exits import ExitCode, exit_code
from delvec.errors import (
    ConflictError,
    DelvecError,
    InvalidArgumentError,
    LockedError,
    StorageError,
    TableNotFoundError,
)
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.commit import lock
from delvec.iceberg.commit.lock import Held, hold_lock, next_state
from delvec.iceberg.commit.lock_state import (
    LOCK_PROPERTY,
    LockState,
    is_lock_tag,
    lock_claims,
    lock_state,
    parse_state,
)
from delvec.iceberg.commit.refs import create_branch, create_tag, drop_tag, rollback
from delvec.iceberg.maintain.procedures import expire_snapshots
from delvec.iceberg.table import IcebergTable
from tests.conversion.targets import before, branches, ids, numbered
from tests.iceberg.deletes.tables import loaded, lost, new_table

pytestmark = [pytest.mark.spark, pytest.mark.more]


def empty(spark: SparkSession, catalog: str = "sqlite") -> LoadedTable:
    return loaded(spark, new_table(spark, "id BIGINT", catalog=catalog))


@pytest.fixture
def table(spark: SparkSession) -> LoadedTable:
    made = empty(spark)
    insert(made, 1)
    return load_table(spark, made.name)


def insert(table: LoadedTable, number: int) -> None:
    table.spark.sql(f"INSERT INTO {table.name} VALUES ({number})")


def newest(table: LoadedTable) -> TableMetadata:
    return load_table(table.spark, table.name).metadata


class HandClock:
    """The time as the lock sees it, moved by hand, and by those who sleep."""

    def __init__(self) -> None:
        self.begin = time.time()
        self.now = 0.0
        self.is_waited_for = Event()
        self.meanwhile: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.begin + self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def advance(self, seconds: float) -> None:
        """Let time pass for a thread that waits."""
        assert self.is_waited_for.wait(60)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    made = HandClock()

    class HandEvent(Event):
        def wait(self, timeout: float | None = None) -> bool:
            end = made.now + (timeout or 0)
            made.is_waited_for.set()
            while made.now < end and not super().wait(0.01):
                pass
            made.is_waited_for.clear()
            return self.is_set()

    monkeypatch.setattr(lock, "time", made)
    monkeypatch.setattr(lock, "Event", HandEvent)
    return made


def eventually(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refusal(
    table: LoadedTable,
    words: str = ".",
    kind: type[DelvecError] = LockedError,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return the error of somebody who asks for the lock."""
    with pytest.raises(kind, match=words) as told, hold_lock(table, "COMPACT", **options):
        pytest.fail("two have the lock")
    return told.value


def state_of(held: Held) -> LockState:
    assert held.state is not None
    return held.state


def is_of(held: Held, generation: int) -> bool:
    return held.state is not None and held.state.generation == generation


def left_behind(table: LoadedTable, lease: float = 300.0, owner: str = "dead/1") -> LockState:
    """Take the lock as one who dies at once: nobody renews it or gives it back."""
    claim = LockState(0, owner, "RESOLVE", 0, int(lease * 1000), uuid4().hex)
    state = lock._acquire(table, claim, 0.0).state
    assert state is not None
    return state


def advanced(table: LoadedTable, claim: LockState) -> LockState:
    """Commit the next generation of the lock for an owner, whoever has it."""
    held = Held(str(table.name))
    lock._advance(table, claim, held, lambda _: ())
    return state_of(held)


@pytest.mark.parametrize("catalog", ["lake", "sqlite"])
def test_one_has_it_until_it_is_given_back(spark: SparkSession, catalog: str) -> None:
    table = empty(spark, catalog)
    insert(table, 1)
    with hold_lock(table, "RESOLVE", owner="first") as held:
        state = held.state
        assert state is not None
        assert state == lock_state(newest(table))
        assert (state.generation, state.owner, state.operation) == (1, "first", "RESOLVE")
        assert branches(spark, str(table.name)) == {"main", "delvec-lock-1"}
        error = refusal(table)
        assert error.retryable
        assert (error.owner, error.operation) == ("first", "RESOLVE")
        assert error.expires is not None
        assert timedelta(0) < error.expires - datetime.now(timezone.utc) <= timedelta(seconds=300)
        assert f"{table.name} is locked by first for RESOLVE, until 20" in str(error)
        assert exit_code(error) is ExitCode.CONFLICT
        held.check()
        held.check(newest(table))
    assert lock_state(newest(table)) is None
    assert set(newest(table).refs) == {"main"}
    with hold_lock(table, "COMPACT") as again:
        assert again.state is not None
        assert again.state.generation == 2
        assert "/" in again.state.owner
    assert ids(spark, str(table.name)) == [1]


def test_an_error_in_the_block_gives_it_back_and_passes(table: LoadedTable) -> None:
    with pytest.raises(ZeroDivisionError), hold_lock(table, "RESOLVE"):
        _ = 1 / 0
    assert lock_state(newest(table)) is None


def test_an_owner_that_lives_keeps_it_for_long(table: LoadedTable, clock: HandClock) -> None:
    with hold_lock(table, "RESOLVE", owner="long") as held:
        first = held.state
        assert first is not None
        for number in range(1, 5):
            clock.advance(100)
            eventually(partial(is_of, held, first.generation + number))
        held.check(newest(table))
        assert state_of(held).token == first.token
        assert state_of(held).expires_ms == first.expires_ms + 400_000
        assert refusal(table, wait=2.5).owner == "long"
    assert set(newest(table).refs) == {"main"}


def test_a_dead_owners_lock_is_taken_over_after_its_lease_and_not_before(
    table: LoadedTable, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    dead = left_behind(table, lease=100)
    for seconds in (0, 99, 10.9):
        clock.now += seconds
        refusal(table, "dead/1")
    with hold_lock(table, "COMPACT", wait=60) as held:
        assert clock.time() * 1000 > dead.expires_ms + 10_000
        assert state_of(held).generation == dead.generation + 1
        assert set(newest(table).refs) == {"main", state_of(held).tag}
    assert "took over the lock" in caplog.text
    assert "dead/1" in caplog.text


def test_one_of_two_takes_a_dead_owners_lock_over(table: LoadedTable, clock: HandClock) -> None:
    """Both see the same generation, and its lease is over for both."""
    dead = left_behind(table)
    clock.now += 400
    other = replace(dead, owner="other", token=uuid4().hex)
    taken: list[LockState] = []

    def take() -> None:
        taken.append(advanced(table, other))

    with (
        numbered({0: before(take)}),
        pytest.raises(LockedError, match="other"),
        hold_lock(table, "COMPACT"),
    ):
        pytest.fail("two have the lock")
    assert lock_state(newest(table)) == taken[0]


def test_a_lock_of_a_wrong_clock_is_watched_for_a_lease(
    table: LoadedTable, clock: HandClock
) -> None:
    clock.begin += 10_000
    owner = left_behind(table, lease=30)
    clock.begin -= 10_000
    refusal(table, wait=20)
    renewed: list[float] = []

    def renew() -> None:
        if not renewed and clock.now > 40:
            clock.begin += 10_000
            advanced(table, owner)
            clock.begin -= 10_000
            renewed.append(clock.now)

    clock.meanwhile = renew
    with hold_lock(table, "COMPACT", wait=90) as held:
        held.check(newest(table))
        assert clock.now > renewed[0] + 30, "counted from the renewal"


def test_those_who_wait_have_it_in_their_order(table: LoadedTable, clock: HandClock) -> None:
    owner = left_behind(table)
    second = lock._Taker(table, replace(owner, owner="second", token=uuid4().hex), 600.0)

    def take_at_once() -> None:
        with hold_lock(table, "RESOLVE", owner="loop"):
            pytest.fail("others have waited")

    def loop() -> None:
        clock.meanwhile = lambda: None
        second._put_claim(600)
        lock._release(table, owner)
        with pytest.raises(LockedError, match="is to be locked next by first for COMPACT") as told:
            take_at_once()
        assert told.value.owner == "first"

    clock.meanwhile = loop
    with hold_lock(table, "COMPACT", owner="first", wait=60):
        assert [each.owner for each in lock_claims(newest(table))] == ["second"]
    with pytest.raises(LockedError, match="next by second"):
        take_at_once()
    second.run()
    assert not lock_claims(newest(table))
    assert second.held.state == lock_state(newest(table))


def test_a_claim_ends_with_its_lease_and_one_that_is_given_up_at_once(
    table: LoadedTable, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = left_behind(table, lease=1000)
    refusal(table, wait=5)
    assert not lock_claims(newest(table)), "it was given up"
    with monkeypatch.context() as dying:
        dying.setattr(lock, "_release", lambda *_: None)
        refusal(table, owner="dead/2", wait=30)
    lock._release(table, owner)
    [claim] = lock_claims(newest(table))
    assert (claim.owner, claim.lease_ms) == ("dead/2", 30_000), "no longer than it would wait"
    clock.now = 0.0
    refusal(table, "next by dead/2")
    clock.now = 39.0
    with hold_lock(table, "RESOLVE"):
        assert not lock_claims(newest(table))


def test_unlock_removes_what_is_over_or_by_force(table: LoadedTable, clock: HandClock) -> None:
    opened = IcebergTable.for_name(table.spark, str(table.name))
    assert str(opened.unlock()) == f"UNLOCK of {table.name}: it is not locked"
    for force, seconds in ((False, 400), (True, 0)):
        dead = left_behind(table)
        with pytest.raises(LockedError, match="dead/1") as refused:
            opened.unlock()
        assert "unlock(force=True)" in (refused.value.hint or "")
        clock.now += seconds
        planned = opened.unlock(force=force, dry_run=True)
        assert lock_state(newest(table)) == dead
        report = opened.unlock(force=force)
        assert (report.owner, report.expires_ms) == ("dead/1", dead.expires_ms)
        assert (replace(planned, dry_run=False), set(newest(table).refs)) == (report, {"main"})


@pytest.mark.parametrize("name", ["resolve", "compact"])
def test_who_works_under_it_says_how_long_to_wait_and_its_lease(
    table: LoadedTable, clock: HandClock, name: str
) -> None:
    opened = IcebergTable.for_name(table.spark, str(table.name))
    work: Any = partial(opened.compact, options={"rewrite-all": True})
    if name == "resolve":
        opened.delete_keys([1], "id")
        work = opened.resolve
    left_behind(table, lease=100)
    with pytest.raises(LockedError):
        work()
    assert work(wait=150, lease=600).snapshot_id is not None
    assert clock.now > 100
    last = parse_state(newest(table), LOCK_PROPERTY)
    assert last is not None
    assert (last.operation, last.lease_ms) == (name.upper(), 600_000)


def test_a_lost_lock_is_noticed_and_not_given_back(table: LoadedTable) -> None:
    with hold_lock(table, "RESOLVE", lease=60, owner="slow") as held:
        thief = replace(state_of(held), owner="thief", token=uuid4().hex)
        taken = advanced(table, thief)
        held.check()  # nobody has told it yet
        with pytest.raises(LockedError, match="thief has taken it over"):
            held.check(newest(table))
        with pytest.raises(LockedError):
            held.check()
    assert lock_state(newest(table)) == taken


def test_a_lock_that_somebody_removed_is_noticed_by_the_next_renewal(
    table: LoadedTable, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    with hold_lock(table, "RESOLVE") as held:
        drop_tag(load_table(table.spark, table.name), state_of(held).tag)
        held.check()
        clock.advance(100)
        eventually(lambda: held.lost is not None)
        with pytest.raises(LockedError, match="somebody removed it"):
            held.check()
    assert "is lost: somebody removed it" in caplog.text


def test_an_owner_that_cannot_renew_knows_it_when_its_lease_ends(
    table: LoadedTable,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def gone(_: LoadedTable) -> LoadedTable:
        raise StorageError("the catalog is away")

    with monkeypatch.context() as broken, hold_lock(table, "RESOLVE") as held:
        broken.setattr(lock, "reload_table", gone)
        clock.advance(299)
        held.check()
        clock.advance(1)
        with pytest.raises(LockedError, match="its lease has ended, and it could not be renewed"):
            held.check()
    assert "was not given back: the catalog is away" in caplog.text
    assert lock_state(newest(table)) is not None
    caplog.clear()
    clock.now = 0.0  # its lease is not over for others
    with hold_lock(table, "COMPACT") as held:
        assert "took over" not in caplog.text
        held.lost = "it was stopped for a while, and nobody has taken it over"
    assert lock_state(newest(table)) is None, "it is given back all the same"


@pytest.mark.parametrize("catalog", ["lake", "sqlite"])
def test_commits_of_others_are_no_loss(spark: SparkSession, catalog: str) -> None:
    table = empty(spark, catalog)
    insert(table, 1)
    with numbered({0: before(lambda: insert(table, 2))}), hold_lock(table, "RESOLVE") as held:
        insert(table, 3)
        held.check(newest(table))
    assert (set(newest(table).refs), ids(spark, str(table.name))) == ({"main"}, [1, 2, 3])
    with hold_lock(table, "RESOLVE"), numbered({0: before(lambda: insert(table, 4))}):
        pass
    assert lock_state(newest(table)) is None


def test_a_commit_without_an_answer_is_looked_for(table: LoadedTable) -> None:
    with numbered({0: lost}), hold_lock(table, "RESOLVE") as held:
        held.check(newest(table))
    assert lock_state(newest(table)) is None


def test_others_that_commit_again_win(table: LoadedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_ATTEMPTS", 2)
    always = {number: before(lambda: insert(table, 2)) for number in (0, 1)}
    with numbered(always), pytest.raises(ConflictError) as refused, hold_lock(table, "RESOLVE"):
        pytest.fail("it cannot have it")
    assert not isinstance(refused.value, LockedError)
    assert refused.value.attempts == 2


def test_a_table_without_snapshots_has_no_lock(spark: SparkSession) -> None:
    table = empty(spark)
    before_it = table.current.metadataFileLocation()
    with hold_lock(table, "RESOLVE") as held, hold_lock(table, "COMPACT") as other:
        held.check(newest(table))
        assert held == other == Held(str(table.name))
    assert load_table(spark, table.name).current.metadataFileLocation() == before_it


def test_a_table_whose_main_is_empty_has_one(spark: SparkSession) -> None:
    table = create_branch(empty(spark), "changes", staging=True)
    with hold_lock(table, "RESOLVE"), pytest.raises(LockedError), hold_lock(table, "COMPACT"):
        pytest.fail("two have the lock")
    with hold_lock(table, "RESOLVE"):
        head = newest(table).refs["changes"].snapshot_id
        assert IcebergTable.for_name(spark, str(table.name)).check(snapshot_id=head).ok


def test_a_table_that_was_dropped_is_told(table: LoadedTable) -> None:
    with hold_lock(table, "RESOLVE"):
        table.spark.sql(f"DROP TABLE {table.name}")
    refusal(table, kind=TableNotFoundError)
    table.spark.sql(f"CREATE TABLE {table.name} (id BIGINT) USING iceberg")
    refused = refusal(table, "made again", kind=ConflictError)
    assert not refused.retryable
    assert f"expected UUID {table.metadata.uuid}, found {newest(table).uuid}" in str(refused)
    assert refused.hint


@pytest.mark.parametrize(("lease", "wait"), [(0.5, 0.0), (300.0, -1.0)])
def test_wrong_times_are_refused(table: LoadedTable, lease: float, wait: float) -> None:
    with (
        pytest.raises(InvalidArgumentError, match="a lease is 1 second to a day") as refused,
        hold_lock(table, "RESOLVE", lease=lease, wait=wait),
    ):
        pytest.fail("it cannot have it")
    assert str(table.name) in str(refused.value)
    assert refused.value.hint


def next_generation(metadata: TableMetadata) -> int:
    return next_state(metadata, LockState(0, "me", "RESOLVE", 0, 1000, "x")).generation


def test_no_generation_is_used_that_others_have(table: LoadedTable) -> None:
    create_tag(table, "delvec-lock-1")  # of somebody else
    create_tag(table, "delvec-lock-x")
    assert lock_state(newest(table)) is None
    with hold_lock(table, "RESOLVE") as held:
        assert state_of(held).generation == 2
        assert set(newest(table).refs) == {"main", "delvec-lock-2", "delvec-lock-x"}
    assert next_generation(newest(table)) == 3
    create_branch(table, "delvec-lock-3")
    assert next_generation(newest(table)) == 4
    assert is_lock_tag(create_tag(table, "delvec-lock-50").metadata, "delvec-lock-50")
    assert not is_lock_tag(newest(table), "delvec-lock-3")
    assert not is_lock_tag(newest(table), "delvec-lock-x")


def test_after_the_last_generation_comes_the_first(table: LoadedTable) -> None:
    last = replace(left_behind(table), generation=10**15 - 1)
    metadata = newest(table)
    ended = replace(metadata, properties={LOCK_PROPERTY: json.dumps(asdict(last))}, refs={})
    assert next_generation(ended) == 1
    assert next_generation(replace(ended, refs=metadata.refs)) == 2, "the tag of 1 is there"


@pytest.mark.parametrize("wrong", ["", "[]", "{}", '{"generation": "x"}', "7"])
def test_a_property_without_sense_is_no_lock(table: LoadedTable, wrong: str) -> None:
    create_tag(table, "delvec-lock-7")
    metadata = replace(newest(table), properties={LOCK_PROPERTY: wrong})
    assert lock_state(metadata) is None
    assert next_generation(metadata) == 1
    good = left_behind(table)
    more = {**asdict(good), "added by a later version": 1}
    metadata = replace(newest(table), properties={LOCK_PROPERTY: json.dumps(more)})
    assert lock_state(metadata) == good


@pytest.mark.slow
def test_it_survives_expiry_and_rollback(spark: SparkSession, table: LoadedTable) -> None:
    # By this, expiry would remove each tag that has no age of its own.
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('history.expire.max-ref-age-ms'='1')")
    facade = IcebergTable.for_name(spark, str(table.name))
    with hold_lock(table, "RESOLVE") as held:
        for number in (2, 3):
            insert(table, number)
        report = expire_snapshots(load_table(spark, table.name), timedelta(0))
        assert (report.refs, report.snapshots) == ((), 1)
        held.check(newest(table))
        insert(table, 4)
        rollback(table, timestamp=datetime.now(timezone.utc) - timedelta(milliseconds=1))
        first = max(newest(table).snapshots.values(), key=lambda each: each.timestamp_ms)
        rollback(table, snapshot_id=first.parent_id)
        held.check(newest(table))
        assert (facade.detail().branches, facade.detail().tags) == (
            ("main",),
            (state_of(held).tag,),
        )
        listed = {row["name"]: row["type"] for row in facade.refs().collect()}
        assert listed == {"main": "branch", state_of(held).tag: "tag"}
        assert facade.check().ok
    assert ids(spark, str(table.name)) == [1, 2, 3]
    report = expire_snapshots(load_table(spark, table.name), timedelta(0))
    assert (report.snapshots, len(newest(table).snapshots)) == (2, 1)


def test_the_tag_of_the_dead_expires(table: LoadedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = left_behind(table)
    assert expire_snapshots(table, timedelta(0)).refs == ()
    drop_tag(table, dead.tag)
    monkeypatch.setattr(lock, "_DAY_MS", 0)
    again = left_behind(table, lease=1.0)
    time.sleep(1.2)
    assert expire_snapshots(load_table(table.spark, table.name), timedelta(0)).refs == (again.tag,)
    with hold_lock(table, "RESOLVE") as held:
        assert state_of(held).generation == again.generation + 1
