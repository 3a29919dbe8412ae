"""Resolving as a service: when it looks again, when it gives up, what it counts and serves."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from http.client import HTTPConnection
from socket import create_connection
from threading import Event, Thread, Timer
from threading import enumerate as threads
from typing import Any

import pytest

from delvec.errors import (
    ConflictError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    LockedError,
    PlanError,
    StorageError,
)
from delvec.iceberg.resolve.follow import Metrics, follow
from delvec.iceberg.resolve.report import ResolveReport
from delvec.spark import service as metrics
from delvec.spark.service import _Pace, served

IDLE = ResolveReport("lake.db.t", "main", "stage")
BUSY = ResolveReport("lake.db.t", "main", "stage", snapshot_id=7, commits=1, staged_snapshots=2)


class Rounds(Event):
    """Is set after so many waits, and waits for none of them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self.left -= 1
        if self.left <= 0:
            self.set()
        return self.is_set()


def followed(
    *results: ResolveReport | Exception,
    stop: Event | None = None,
    **options: Any,  # noqa: ANN401
) -> Metrics:
    """Follow cycles with these results."""
    left = iter(results)

    def resolve() -> ResolveReport:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    given: dict[str, Any] = {"on_report": lambda _: None, **options}
    return follow(resolve, stop=stop or Rounds(len(results)), **given)


def test_one_cycle_in_each_interval_and_what_changed_is_reported() -> None:
    stop = Rounds(4)
    seen: list[ResolveReport] = []
    counted: list[Metrics] = []
    options = {"interval": 30, "on_report": seen.append, "on_metrics": counted.append}
    found = followed(IDLE, IDLE, BUSY, IDLE, stop=stop, **options)
    assert seen == [IDLE, BUSY]
    assert stop.waits == pytest.approx([30] * 4, abs=0.5)
    assert [each.cycles for each in counted] == [1, 2, 3, 4]
    assert (found.cycles, found.idle_cycles, found.commits) == (4, 3, 1)
    assert (found.table, found.target, found.staging) == ("lake.db.t", "main", "stage")


def test_long_silence_is_broken_and_what_waits_is_told_before_a_cycle() -> None:
    told: list[str] = []
    ages: list[float] = []
    since = datetime.now(timezone.utc) - timedelta(seconds=100)
    oldest = iter([None, since, since, None, None])
    followed(
        *(IDLE, ConflictError("lost"), BUSY, IDLE, IDLE),
        interval=0,
        idle_after=0,
        oldest=lambda: next(oldest),
        on_report=lambda report: told.append(f"{report.commits} commits"),
        on_retry=lambda error, _: told.append(str(error)),
        on_idle=lambda metrics: told.append(f"{metrics.idle_cycles} idle"),
        on_metrics=lambda now: ages.append(round(now.oldest_unresolved_age_seconds, -1)),
    )
    assert told == ["0 commits", "lost", "1 commits", "2 idle", "3 idle"]
    assert ages == [0, 100, 100, 0, 0, 0]


def test_a_conflict_doubles_the_pause_up_to_eight_intervals() -> None:
    stop = Rounds(7)
    told: list[tuple[DelvecError, float]] = []
    error = LockedError("t is locked by somebody", owner="somebody")
    results: list[Any] = [*[error] * 5, IDLE, error]
    found = followed(*results, stop=stop, interval=10, on_retry=lambda *each: told.append(each))
    for wait, longest in zip(stop.waits, (10, 20, 40, 80, 80, 10, 10), strict=True):
        assert 0.75 * longest - 0.5 <= wait <= longest
    assert [seconds for _, seconds in told] == pytest.approx(
        [wait for at, wait in enumerate(stop.waits) if at != 5], abs=0.5
    )
    assert {each for each, _ in told} == {error}
    assert (found.conflicts, found.errors, found.cycles) == (6, 0, 7)
    pauses = {_Pace(10).after(ConflictError("x")) for _ in range(20)}
    assert len(pauses) > 10, "those of several resolvers differ"


@pytest.mark.parametrize("kind", [StorageError, EngineError])
def test_failures_are_tried_again_for_half_a_minute(kind: type[DelvecError]) -> None:
    told: list[float] = []
    metrics: list[Metrics] = []
    errors = [kind("away")] * 5 + [IDLE] + [kind("away")] * 6
    options = {"interval": 3, "on_retry": lambda _, seconds: told.append(seconds)}
    with pytest.raises(kind, match="away"):
        followed(*errors, stop=Rounds(100), on_metrics=metrics.append, **options)
    assert (told, metrics[-1].errors, metrics[-1].cycles) == ([3, 3, 4, 8, 16] * 2, 11, 12)


NO_RETRY = [
    (PlanError("no"), PlanError, "no .committed before: 2 cycles: 1 commit, 0 keys, 0 rows del"),
    (ConflictError("replaced", retryable=False), ConflictError, "replaced"),
    (ConnectionRefusedError(), EngineError, "the JVM of this session has ended"),
]


@pytest.mark.parametrize(("error", "kind", "words"), NO_RETRY, ids=str)
def test_what_a_retry_cannot_resolve_is_raised_with_what_was_committed_before(
    error: Exception, kind: type[DelvecError], words: str
) -> None:
    seen: list[Metrics] = []
    with pytest.raises(kind, match=words) as ended:
        followed(BUSY, error, stop=Rounds(9), on_metrics=seen.append)
    if kind is not EngineError:  # which nobody can count
        assert [each.conflicts + each.errors for each in seen] == [0, 1]
        assert isinstance(ended.value.report, Metrics)
        assert ended.value.report.commits == 1


def test_the_running_cycle_is_completed() -> None:
    stop, running, go_on = Event(), Event(), Event()
    seen: list[ResolveReport] = []

    def resolve() -> ResolveReport:
        running.set()
        assert go_on.wait(30)
        return BUSY

    options: dict[str, Any] = {"stop": stop, "interval": 600, "on_report": seen.append}
    thread = Thread(target=follow, args=(resolve,), kwargs=options)
    thread.start()
    assert running.wait(30)
    stop.set()
    assert not seen
    go_on.set()
    thread.join(30)
    assert (thread.is_alive(), seen) == (False, [BUSY])


def test_a_stop_ends_a_pause_and_lets_nothing_begin() -> None:
    stop = Event()
    Timer(0.2, stop.set).start()
    begin = time.monotonic()
    followed(IDLE, stop=stop, interval=600)
    assert time.monotonic() - begin < 30
    assert followed(stop=stop).cycles == 0


@pytest.mark.parametrize("interval", [-1.0, float("nan"), 1e300])
def test_an_interval_that_is_none_is_refused(interval: float) -> None:
    with pytest.raises(InvalidArgumentError, match="expected a number of seconds from 0 to"):
        followed(interval=interval)


REPORT = ResolveReport(
    'lake.db."t\\',
    "main",
    "stage",
    snapshot_id=7,
    commits=2,
    staged_snapshots=3,
    delete_files=4,
    key_vectors=5,
    keys=60,
    absent=6,
    rows_deleted=54,
    data_files_added=7,
    rows_added=70,
    vectors_added=8,
    vector_bytes=800,
    index_rows=1000,
    conflicts=1,
    phases={"find": 1.5, "commit": 0.5},
)
LINE = re.compile(r'^(\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (-?[0-9.e+]+)$')


def parsed(text: str) -> dict[str, float]:
    """Read Prometheus' text format: each metric has its help and type, and all have labels."""
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in helped
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kinds[name] = line.split()
        else:
            match = LINE.match(line)
            assert match, line
            name, labels, value = match.groups()
            assert name in helped
            assert kinds[name] == ("counter" if name.endswith("_total") else "gauge")
            assert 'target="main",staging="stage"' in labels
            phase = re.search(r'phase="(\w+)"', labels)
            short = name.removeprefix("delvec_resolve_").removesuffix("_total")
            found[f"{short}:{phase[1]}" if phase else short] = float(value)
    return found


def test_reports_are_added_up() -> None:
    once = Metrics("").after(REPORT)
    twice = once.after(replace(REPORT, phases={"find": 2.0, "verify": 1.0}, index_rows=None))
    added = (
        *("commits", "staged_snapshots", "delete_files", "key_vectors", "keys", "rows_deleted"),
        *("rows_added", "data_files_added", "vectors_added", "vector_bytes"),
    )
    wanted: dict[str, Any] = {name: 2 * getattr(REPORT, name) for name in added}
    wanted |= {"cycles": 2, "idle_cycles": 0, "replans": 2, "absent_keys": 12, "index_rows": 1000}
    wanted |= {"phases": {"find": 3.5, "commit": 0.5, "verify": 1.0}, "table": REPORT.table}
    wanted |= {"conflicts": 0, "errors": 0}
    document = twice.to_json()
    assert json.loads(json.dumps(document)) == document
    assert {key: document[key] for key in wanted} == wanted
    found = parsed(twice.to_prometheus())
    counters = [name for name, value in document.items() if type(value) is int]
    assert {name: found[name] for name in counters} == {name: document[name] for name in counters}
    assert (found["phase_seconds:find"], found["index_rows"]) == (3.5, 1000)
    assert 'table="lake.db.\\"t\\\\"' in twice.to_prometheus()
    empty = Metrics("", staging="stage").to_prometheus()
    assert "index_rows" not in parsed(empty)
    assert parsed(empty)["cycles"] == 0
    assert parsed(empty)["last_success_timestamp_seconds"] == 0, "an alert sees it from the start"


def test_failures_are_counted_by_kind() -> None:
    found = Metrics("t")
    for error in (LockedError("x"), ConflictError("x"), StorageError("x")):
        found = found.after_failure(error)
    assert (found.cycles, found.conflicts, found.errors) == (3, 2, 1)
    late = LockedError("lost")
    late.report = REPORT
    found = found.after_failure(late)
    assert (found.commits, found.keys, found.phases["find"]) == (2, 60, 1.5), "they stay"


def test_the_age_of_what_is_unresolved() -> None:
    now = time.time()
    started = Metrics("t", looked_ms=int((now - 7000) * 1000))
    assert started.oldest_unresolved_age_seconds == 0, "nothing has failed"
    first = started.after_failure(StorageError("x"))
    assert first.oldest_unresolved_age_seconds == pytest.approx(7000, abs=600), "since the start"
    soon = Metrics("t").after_failure(StorageError("x"))
    time.sleep(0.01)
    assert 0 < soon.oldest_unresolved_age_seconds < 600, "it grows"
    found = first.after(REPORT, now - 4000)
    assert found.oldest_unresolved_age_seconds == 0
    failed = found.after_failure(ConflictError("x"))
    assert failed.oldest_unresolved_age_seconds == pytest.approx(4000, abs=600), (
        "since the last look"
    )
    still = failed.after_failure(ConflictError("x"))
    assert still.oldest_unresolved_age_seconds == pytest.approx(4000, abs=600)
    oldest = int((now - 10_000) * 1000)
    waiting = replace(found, waiting_ms=oldest)
    assert waiting.oldest_unresolved_age_seconds == pytest.approx(10_000, abs=600), "while one runs"
    told = waiting.after_failure(ConflictError("x"))
    assert told.oldest_unresolved_age_seconds == pytest.approx(10_000, abs=600), (
        "what it was to take"
    )
    taken = waiting.after(REPORT, now)
    assert taken.waiting_ms is None
    assert taken.lag_seconds == pytest.approx(10_000, abs=600)
    taken = still.after(replace(REPORT, oldest_staged_ms=oldest), now)
    assert taken.oldest_unresolved_age_seconds == 0
    assert taken.lag_seconds == pytest.approx(10_000, abs=600)
    done = taken.after(REPORT, now)
    assert done.lag_seconds == taken.lag_seconds, "of the last commit that took some"


def answer(port: int, path: str, method: str = "GET") -> tuple[int, str, str | None]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        found = connection.getresponse()
        return found.status, found.read().decode(), found.getheader("Content-Type")
    finally:
        connection.close()


def test_only_metrics_are_served_and_only_in_the_block() -> None:
    current = [Metrics("t", staging="stage")]

    def newest() -> str:
        return current[0].to_prometheus()

    with served(newest, 0) as port:
        status, text, kind = answer(port, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert parsed(text)["cycles"] == 0
        current[0] = current[0].after(REPORT)
        assert (parsed(answer(port, "/metrics?x=1")[1])["cycles"], answer(port, "/")[0]) == (1, 404)
        assert answer(port, "/metrics", "POST")[0] == 501
        with pytest.raises(InvalidArgumentError, match="cannot be served"), served(str, port):
            pytest.fail("the port is taken")
    with pytest.raises(ConnectionRefusedError):
        answer(port, "/metrics")


@pytest.mark.more
def test_clients_that_stay_keep_nobody_out_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_SECONDS", 0.5)
    others = set(threads())
    with served(Metrics("t").to_prometheus, 0) as port, ExitStack() as clients:
        address = ("127.0.0.1", port)
        slow = [clients.enter_context(create_connection(address, 10)) for _ in range(30)]
        for each in slow:
            with suppress(OSError):  # sent away already
                each.sendall(b"GET /metrics HT")
        assert len(set(threads()) - others) <= 1 + 2 * 8, "the server's, and two for each client"
        for each in slow:
            with suppress(ConnectionResetError):
                assert each.recv(100) == b""
        assert answer(port, "/metrics")[0] == 200
