"""The lock among processes that race for it, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from pyspark.sql import SparkSession

from delvec.errors import LockedError
from delvec.iceberg.client.catalog import LoadedTable, load_table, table_name
from delvec.iceberg.commit.lock import hold_lock
from delvec.iceberg.commit.lock_state import lock_claims, lock_state
from tests.iceberg.deletes.tables import loaded, new_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROCESSES = 8
COMMAND = [sys.executable, "-m", f"{__package__}.test_lock_processes"]
ROUNDS = 12
DEADLINE = 300.0  # seconds for what takes a few
LOOP = 120.0  # seconds


@pytest.fixture
def table(spark: SparkSession) -> LoadedTable:
    name = new_table(spark, "id BIGINT", catalog="sqlite")
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    return loaded(spark, name)


class Process:
    """One that takes the lock when it is told to."""

    def __init__(self, table: LoadedTable) -> None:
        settings = dict(table.spark.sparkContext.getConf().getAll())
        prefix = "spark.sql.catalog.sqlite"
        wanted = {key: value for key, value in settings.items() if key.startswith(prefix)}
        wanted[f"{prefix}.uri"] += "?busy_timeout=60000"
        wanted |= {
            "spark.jars": settings["spark.jars"],
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
        }
        self.running = subprocess.Popen(
            [*COMMAND, json.dumps(wanted), str(table.name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._lines = Queue[str]()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.running.stdout is not None
        for line in self.running.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")  # it has ended

    def tell(self, line: str) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(f"{line}\n")
        self.running.stdin.flush()

    def hear(self) -> str:
        """Return the next line that it prints; empty if it has ended. Raises if it is silent."""
        return self._lines.get(timeout=DEADLINE)

    def kill(self) -> None:
        """End it and its JVM at once."""
        os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait(DEADLINE)
        self._reader.join(DEADLINE)
        for pipe in (self.running.stdin, self.running.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def process(table: LoadedTable) -> Iterator[Process]:
    made = Process(table)
    try:
        yield made
    finally:
        if made.running.returncode is None:
            made.kill()


def test_of_eight_processes_one_wins_each_time(table: LoadedTable, tmp_path: Path) -> None:
    with ExitStack() as stack:
        racers = [stack.enter_context(process(table)) for _ in range(PROCESSES)]
        assert [each.hear() for each in racers] == ["ready"] * PROCESSES
        generations = []
        for _ in range(ROUNDS):
            for each in racers:
                each.tell("try")
            heard = [each.hear() for each in racers]
            assert sorted(heard)[: PROCESSES - 1] == ["lost"] * (PROCESSES - 1), heard
            [winner] = [at for at, said in enumerate(heard) if said.startswith("won ")]
            generations.append(int(heard[winner].split()[1]))
            found = lock_state(load_table(table.spark, table.name).metadata)
            assert found is not None
            assert found.generation == generations[-1]
            racers[winner].tell("end")
            assert racers[winner].hear() == "ended"
        assert generations == sorted(set(generations))

        counter = tmp_path / "counter"
        counter.write_text("0")
        for each in racers:
            each.tell(f"count 5 {counter}")
        found_by = [json.loads(each.hear()) for each in racers]
    assert counter.read_text() == str(5 * PROCESSES)
    assert len({number for numbers in found_by for number in numbers}) == 5 * PROCESSES
    assert set(load_table(table.spark, table.name).metadata.refs) == {"main"}


def test_of_two_that_loop_both_have_their_turns(table: LoadedTable, tmp_path: Path) -> None:
    """One has the lock almost all the time, and never waits for it; the other only waits."""
    running = tmp_path / "running"
    running.touch()
    with process(table) as looping:
        assert looping.hear() == "ready"
        looping.tell(f"loop {running}")
        begin = time.monotonic()
        turns = 0
        while time.monotonic() - begin < LOOP:
            with hold_lock(table, "COMPACT", wait=DEADLINE):
                turns += 1
        running.unlink()
        others = int(looping.hear())
    assert turns, "nobody had a turn"
    assert others <= 3 * turns, "it starves"
    assert turns <= 3 * others, "the other starves"
    assert not lock_claims(load_table(table.spark, table.name).metadata)


def test_a_killed_owners_lock_is_taken_over_after_its_lease(table: LoadedTable) -> None:
    lease = 6.0
    with process(table) as owner:
        assert owner.hear() == "ready"
        owner.tell(f"keep {lease}")
        assert owner.hear().startswith("won")
        time.sleep(lease * 1.5)  # it lives, so it is renewed
        with pytest.raises(LockedError, match="RACE"), hold_lock(table, "COMPACT"):
            pytest.fail("its owner lives")
        owner.kill()
        left = lock_state(load_table(table.spark, table.name).metadata)
        assert left is not None
        assert left.expires_ms > time.time() * 1000
        refused = 0
        while time.time() * 1000 < left.expires_ms - 200:
            with pytest.raises(LockedError), hold_lock(table, "COMPACT"):
                pytest.fail("taken over before its lease was over")
            refused += 1
        assert refused
        with hold_lock(table, "COMPACT", wait=3 * lease) as held:
            assert time.time() * 1000 > left.expires_ms
            assert held.state is not None
            assert held.state.generation == left.generation + 1


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


def attempt(table: LoadedTable, lease: float = 300.0) -> None:
    try:
        with hold_lock(table, "RACE", lease=lease) as held:
            assert held.state is not None
            say("won", held.state.generation)
            assert sys.stdin.readline() == "end\n"
            held.check()
        say("ended")
    except LockedError:
        say("lost")


def count(table: LoadedTable, times: int, file: Path) -> None:
    generations = []
    for _ in range(times):
        with hold_lock(table, "COUNT", wait=300) as held:
            assert held.state is not None
            generations.append(held.state.generation)
            number = int(file.read_text())
            time.sleep(0.05)
            file.write_text(str(number + 1))
    say(json.dumps(generations))


def loop(table: LoadedTable, file: Path) -> None:
    turns = 0
    while file.exists():
        try:
            with hold_lock(table, "LOOP"):
                turns += 1
                time.sleep(1.0)
        except LockedError:  # noqa: PERF203
            time.sleep(0.05)
    say(turns)


def main() -> None:
    """Take the lock of a table when it is told to, and say what became of it.

    It prints `ready`, and then answers lines: `try` with `won <generation>` or `lost`, and a winner
    has the lock until the line `end`; `keep <seconds>` is the same with a lease of so long; `count
    <times> <path>` adds one to the number in a file so many times, each under the lock, and prints
    the generations; `loop <path>` has the lock again and again, a second each and without a pause,
    until the file is gone, and prints how often.
    """
    builder = SparkSession.builder.master("local[1]")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    table = load_table(spark, table_name(spark, sys.argv[2]))
    say("ready")
    for line in sys.stdin:
        match line.split():
            case ["try"]:
                attempt(table)
            case ["keep", lease]:
                attempt(table, float(lease))
            case ["loop", path]:
                loop(table, Path(path))
            case ["count", times, path]:
                count(table, int(times), Path(path))


if __name__ == "__main__":
    main()
