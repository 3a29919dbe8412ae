"""The same attacks on delta-spark and deltalake, by `python -m tests.hostile.peers`.

Each engine runs in a child with bounds of memory and time, which is started again after what it did
not survive. docs/hostile-tables.md gets the table; build/hostile-peers.json has the errors as well.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, Final, NoReturn

from pyspark.sql import SparkSession

from tests.hostile.attack import SECRET, SECRET_VARIABLE, Attack, Ground, content
from tests.hostile.attacks import ATTACKS
from tests.hostile.peer_operations import COMPARED, DELTA_SPARK, DELTALAKE
from tests.hostile.races import strikes_under_way
from tests.repository import ROOT

Outcomes = Mapping[str, tuple[str, str]]


PAGE: Final = ROOT / "docs" / "hostile-tables.md"
_PLACE: Final = re.compile(r"(<!-- attacks: begin[^\n]*-->\n).*(<!-- attacks: end -->)", re.DOTALL)
_REPORT: Final = ROOT / "build" / "hostile-peers.json"
_ANSWER: Final = "outcome: "
_ABSENT: Final = "\N{EN DASH}"
_NOT_TRIED: Final = "not tried"
_ORDER: Final = (
    *("harmless", "refuses", "runs", "wrong rows", "leaks", "changes what is outside"),
    *("takes the memory", "hangs", "crashes", _NOT_TRIED),
)
_ENGINES: Final = {"delta-spark": DELTA_SPARK, "deltalake": DELTALAKE}
_SECONDS: Final = {"delta-spark": 30, "deltalake": 15}
_WORKERS: Final = {"delta-spark": 2, "deltalake": 1}
_MEMORY: Final = 4 << 30  # of addresses, beyond what imports took: a JVM has a heap of 1 GB


class _Unknown:
    """What an engine returned where it is nothing that can be compared with what delvec returns."""

    def _refuse(self, *_: object) -> NoReturn:
        raise LookupError("of another engine")

    __getattr__ = __eq__ = __len__ = __iter__ = __getitem__ = __contains__ = __bool__ = _refuse
    __lt__ = __gt__ = __le__ = __ge__ = __str__ = __repr__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def judged(attack: Attack, ground: Ground, operation: Callable[[Ground], Any]) -> tuple[str, str]:
    """Carry out an attack on an engine; return what became of it, and its error."""
    ground.outside.mkdir(parents=True)
    (ground.outside / "secret.txt").write_text(SECRET)
    try:
        attack.put(ground)
    except Exception as error:  # noqa: BLE001 - such as for want of a session
        return _ABSENT, repr(error)
    if strikes_under_way():
        return _ABSENT, "strikes at a system call of Python's"
    before = content(ground.outside)
    result, failure = None, ""
    try:
        result = operation(ground)
    except BaseException as error:  # noqa: BLE001 - also what is not even an Exception
        failure = f"{type(error).__name__}: {error}"
    files = content(ground.table).values() if ground.table.exists() else ()
    if content(ground.outside) != before:
        return "changes what is outside", failure
    if SECRET in f"{failure}{result!r}" or any(SECRET.encode() in each for each in files):
        return "leaks", failure
    return (_failed(failure), failure) if failure else _compared(attack, ground, result)


def _failed(failure: str) -> str:
    if re.search("OutOfMemory|MemoryError|StackOverflow", failure):
        return "takes the memory"
    return "crashes" if failure.startswith("PanicException") else "refuses"


def _compared(attack: Attack, ground: Ground, result: object) -> tuple[str, str]:
    """Return what became of an attack that did no harm at first sight."""
    if attack.expected == "refused":
        return "runs", ""
    try:
        if attack.then is not None:
            attack.then(ground, result if attack.operation in COMPARED else _Unknown())
    except AssertionError as error:
        return "wrong rows", str(error)
    except Exception as error:  # noqa: BLE001 - it looks at a report of delvec's
        return "runs", repr(error)
    return "harmless", ""


def _unfenced(attack: Attack) -> str:
    """Return the operation; the others have no fence."""
    return attack.operation.removesuffix(", fenced")


# In a child


def _serve(engine: str) -> None:
    """Answer each line, the name of an attack and a folder, by what became of it."""
    attacks = {attack.name: attack for attack in ATTACKS}
    session, processes = None, [os.getpid()]
    if engine == "delta-spark":
        session = _session()
        jvm: Any = session._jvm  # in a session of its own
        processes.append(jvm.java.lang.ProcessHandle.current().pid())
    elif sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(_ANSWER + json.dumps(processes), flush=True)  # noqa: T201
    for line in sys.stdin:
        name, folder = json.loads(line)
        attack = attacks[name]
        operation = _ENGINES[engine][_unfenced(attack)]
        answer = judged(attack, Ground(Path(folder), session), operation)
        print(_ANSWER + json.dumps(answer), flush=True)  # noqa: T201


def _session() -> SparkSession:
    import delvec  # noqa: PLC0415
    from tests.spark.delta.readers import INTERPRETED  # noqa: PLC0415
    from tests.spark.jars import resolved_jars  # noqa: PLC0415

    session = delvec.session(
        tempfile.mkdtemp(prefix="warehouse-"),
        master="local[2]",
        conf={
            **{name: str(value) for name, value in INTERPRETED.items()},
            "spark.jars": ",".join(resolved_jars()),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="spark-warehouse-"),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # of VACUUM
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
        },
    )
    session.conf.set("spark.hostile.secret", SECRET)
    _warm_up(session)
    return session


def _warm_up(session: SparkSession) -> None:
    """Read and write an honest table: the first time takes long, and is no hang."""
    ground = Ground(Path(tempfile.mkdtemp(prefix="honest-")), session)
    session.range(10).write.format("delta").save(str(ground.table))
    for name in ("append", "update", "read"):
        DELTA_SPARK[name](ground)


class _Child:
    """An engine in a process of its own, with all that it starts."""

    def __init__(self, engine: str, folder: Path, deadline: float) -> None:
        self._deadline = deadline
        self._errors = (folder / f"{engine}.txt").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.peers", "--serve", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, SECRET_VARIABLE: SECRET, "TMPDIR": str(folder)},
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        Thread(target=self._read, daemon=True).start()
        self._processes: list[int] = [self._process.pid]
        started = time.monotonic()
        try:
            self._processes = json.loads(self._answer() or "[]")
        except queue.Empty:
            self.end()
        if not self._processes or self._process.poll() is not None:
            raise ChildProcessError(f"{engine} did not start: {self._told()}")
        # On a machine that is busy with other things, what takes long is no hang.
        self._seconds = max(_SECONDS[engine], time.monotonic() - started)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                self._lines.put(line.removeprefix(_ANSWER).strip())
        self._lines.put(None)

    def _answer(self, seconds: float = math.inf) -> str | None:
        """Return an answer, or None if the child died; raise `queue.Empty` if it takes too long."""
        left = self._deadline - time.monotonic()
        return self._lines.get(timeout=max(0.1, min(seconds, left)))

    def ask(self, attack: Attack, folder: Path) -> tuple[str, str]:
        assert self._process.stdin is not None
        try:
            print(json.dumps([attack.name, str(folder)]), file=self._process.stdin, flush=True)
            answer = self._answer(self._seconds)
        except BrokenPipeError:
            return "crashes", self._told()
        except queue.Empty:
            return (_NOT_TRIED if time.monotonic() > self._deadline else "hangs"), ""
        if answer is None:
            told = self._told()
            spent = re.search("memory allocation of|OutOfMemory|MemoryError|std::bad_alloc", told)
            return ("takes the memory" if spent else "crashes"), told
        outcome, failure = json.loads(answer)
        return outcome, failure

    def _told(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]

    def end(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):  # it died by itself
                os.kill(process, signal.SIGKILL)
        self._process.wait()


# All of it


def _tried(
    engine: str, scratch: Path, deadline: float, only: str, known: Outcomes
) -> dict[str, tuple[str, str]]:
    """Carry out on an engine all attacks that it has a counterpart for, if nothing is known."""
    found = {attack.name: (_ABSENT, "no counterpart") for attack in ATTACKS}
    same: dict[tuple[object, ...], list[Attack]] = {}  # as it reads in one way only
    for attack in ATTACKS:
        if (operation := _ENGINES[engine].get(_unfenced(attack))) is not None:
            same.setdefault((attack.kind, attack.place, operation), []).append(attack)
            found[attack.name] = known.get(attack.name, (_NOT_TRIED, ""))
    waiting: queue.SimpleQueue[list[Attack]] = queue.SimpleQueue()
    for attacks in same.values():
        if re.search(only, attacks[0].name) and found[attacks[0].name][0] == _NOT_TRIED:
            waiting.put(attacks)

    def work(worker: int) -> None:
        folder = scratch / f"{engine}-{worker}"
        folder.mkdir()
        for attacks, answer in _answers(engine, folder, waiting, deadline):
            for each in attacks:
                found[each.name] = answer
                print(f"{engine}: {each.name}: {answer[0]}", flush=True)  # noqa: T201

    with ThreadPoolExecutor(_WORKERS[engine]) as pool:
        list(pool.map(work, range(_WORKERS[engine])))
    return found


def _answers(
    engine: str, folder: Path, waiting: queue.SimpleQueue[list[Attack]], deadline: float
) -> Iterator[tuple[list[Attack], tuple[str, str]]]:
    """Carry out what waits, with one child after the other; the first attack stands for a list."""
    child: _Child | None = None
    for number in count():
        if time.monotonic() > deadline:
            break
        try:
            attacks = waiting.get_nowait()
            child = child or _Child(engine, folder, deadline)
        except queue.Empty:
            break
        except ChildProcessError as error:
            print(error, flush=True)  # noqa: T201
            continue
        place = folder / str(number)
        outcome, failure = child.ask(attacks[0], place)
        yield attacks, (outcome, failure[:2000])
        shutil.rmtree(place, ignore_errors=True)
        if outcome in ("hangs", "crashes", "takes the memory"):
            child.end()
            child = None
    if child is not None:
        child.end()


def shown(outcomes: Mapping[str, Outcomes], titles: Mapping[str, str], day: str) -> str:
    """Return the tables in Markdown: how many attacks ended how, then each by its kind.

    Args:
        outcomes: What became of each attack by its name, for each engine but delvec.
        titles: The engines with their versions.
        day: Of the run.
    """
    words = {"refused": "refuses", "harmless": "harmless"}
    columns = [
        {attack.name: words[attack.expected] for attack in ATTACKS},
        *({name: each[0] for name, each in outcomes[engine].items()} for engine in titles),
    ]
    head = ["delvec", *titles.values()]
    counts = [Counter(column.values()) for column in columns]
    lines = [f"{len(ATTACKS)} attacks, on {day}:", ""]
    lines += [f"| | {' | '.join(head)} |", "|---|" + "---:|" * len(head)]
    for outcome in _ORDER:
        if any(outcome in count for count in counts):
            numbers = (str(count[outcome] or _ABSENT) for count in counts)
            lines.append(f"| {outcome} | {' | '.join(numbers)} |")
    lines.append(f"| no counterpart | {' | '.join(str(count[_ABSENT]) for count in counts)} |")
    for kind in dict.fromkeys(attack.kind for attack in ATTACKS):
        lines += ["", f"### {kind.capitalize()}", ""]
        lines += [f"| put there | then | {' | '.join(head)} |", "|---|---|" + "---|" * len(head)]
        rows: dict[tuple[str, ...], list[str]] = {}
        for attack in ATTACKS:
            if attack.kind == kind:
                row = (attack.place, *(column[attack.name] for column in columns))
                rows.setdefault(row, []).append(attack.operation)
        for (place, *cells), operations in rows.items():
            words_of_row = [_escaped(place), ", ".join(operations), *cells]
            lines.append(f"| {' | '.join(words_of_row)} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    plain = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return re.sub(r"([\\|`*_<>{}\[\]$])", r"\\\1", plain)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=_ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="a pattern of the attacks that are tried")
    parser.add_argument("--resume", action="store_true", help="try what was not tried last time")
    parser.add_argument("--minutes", type=float, default=11, help="what is left then is not tried")
    chosen = parser.parse_args()
    if chosen.serve:
        _serve(chosen.serve)
        return
    from tests.spark.jars import DELTA_SPARK as COORDINATE  # noqa: PLC0415 - it imports PySpark

    known: dict[str, Outcomes] = json.loads(_REPORT.read_text()) if chosen.resume else {}
    deadline = time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as scratch:
        with ThreadPoolExecutor(len(_ENGINES)) as pool:
            runs = {
                engine: pool.submit(
                    _tried, engine, Path(scratch), deadline, chosen.only, known.get(engine, {})
                )
                for engine in _ENGINES
            }
        outcomes = {engine: run.result() for engine, run in runs.items()}
    _REPORT.parent.mkdir(exist_ok=True)
    _REPORT.write_text(json.dumps(outcomes, indent=1))
    titles = {
        "delta-spark": f"delta-spark {COORDINATE.rpartition(':')[2]}",
        "deltalake": f"deltalake {metadata.version('deltalake')}",
    }
    day = datetime.now(tz=timezone.utc).date().isoformat()
    if chosen.only:
        return
    page, table = PAGE.read_text(), shown(outcomes, titles, day)
    assert _PLACE.search(page), "the page has no place for the table"
    PAGE.write_text(_PLACE.sub(lambda match: f"{match[1]}\n{table}\n{match[2]}", page))


if __name__ == "__main__":
    _main()
