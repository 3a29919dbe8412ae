"""Run contests and report their results.

The speed of a machine varies, so absolute times mean little: each round runs every side once, in
alternating order, and the result is the ratio of the medians. Before anything is timed, the sides
must agree on the result.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Peer:
    """A peer that delvec is compared with, and the largest ratio allowed, if there is one."""

    name: str
    run: Callable[[], object]
    at_most: float | None = None


@dataclass(frozen=True)
class Contest:
    """One task, done by delvec and by its peers.

    `agree` gets the results of all sides, delvec's first, and must raise if they differ. `prepare`
    runs before each round and is not timed, nor are the first `warm_ups` rounds.
    """

    ours: Callable[[], object]
    peers: Sequence[Peer]
    agree: Callable[..., None] = field(default=lambda *_: None)
    rounds: int = 9
    prepare: Callable[[], None] = field(default=lambda: None)
    warm_ups: int = 0


@dataclass(frozen=True)
class Result:
    """The result of one comparison."""

    benchmark: str
    peer: str
    ours_ms: float
    peer_ms: float
    ratio: float
    at_most: float | None
    rounds: int

    @property
    def missed(self) -> bool:
        """Whether the ratio is above the limit."""
        return self.at_most is not None and self.ratio > self.at_most


REGISTRY: dict[str, Callable[[], Contest]] = {}


def benchmark(name: str) -> Callable[[Callable[[], Contest]], Callable[[], Contest]]:
    """Return a decorator that registers a function that prepares a contest."""

    def register(prepare: Callable[[], Contest]) -> Callable[[], Contest]:
        REGISTRY[name] = prepare
        return prepare

    return register


def run(name: str, contest: Contest, rounds: int | None = None) -> list[Result]:
    """Return the results of a contest: the sides must agree, then each round times them all."""
    contest.prepare()
    contest.agree(contest.ours(), *(peer.run() for peer in contest.peers))
    sides = [contest.ours, *(peer.run for peer in contest.peers)]
    times: list[list[float]] = [[] for _ in sides]
    count = rounds or contest.rounds
    for number in range(-contest.warm_ups, count):
        contest.prepare()
        for step in range(len(sides)):
            index = (number + step) % len(sides)
            seconds = _timed(sides[index])
            if number >= 0:
                times[index].append(seconds)
    ours, *others = [statistics.median(series) * 1000 for series in times]
    return [
        Result(name, peer.name, ours, other, ours / other, peer.at_most, count)
        for peer, other in zip(contest.peers, others, strict=True)
    ]


def _timed(side: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        side()
        return time.perf_counter() - begin
    finally:
        gc.enable()


def machine() -> dict[str, Any]:
    """Return the facts about the machine that the results depend on."""
    packages = ("delvec", "numpy", "pyroaring", "pyarrow", "pyspark")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in packages},
    }


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def report(results: Sequence[Result], facts: dict[str, Any], file: Path) -> None:
    """Print the results as a table and write them as JSON."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("benchmark", "delvec", "against", "takes", "ratio", "at most"):
        table.add_column(title, justify="left" if title in ("benchmark", "against") else "right")
    for result in results:
        ratio = f"[red]{result.ratio:.2f}[/red]" if result.missed else f"{result.ratio:.2f}"
        goal = "" if result.at_most is None else f"{result.at_most:.2f}"
        ours, theirs = f"{result.ours_ms:,.1f} ms", f"{result.peer_ms:,.1f} ms"
        table.add_row(result.benchmark, ours, result.peer, theirs, ratio, goal)
    console = Console(width=max(100, Console().width), highlight=False)
    console.print(table)
    console.print(
        f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']};"
        " medians, ratio = delvec / peer (below 1 delvec is faster)"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": facts, "results": [asdict(result) for result in results]}
    file.write_text(json.dumps(document, indent=2) + "\n")
    console.print(f"written to {file}")
    if missed := [f"{result.benchmark} / {result.peer}" for result in results if result.missed]:
        sys.exit(f"over the promised ratio: {', '.join(missed)}")
