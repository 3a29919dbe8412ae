"""Attacks by links: folders and files that lead out of the table, some put there under way.

A swap strikes at one system call, which Python announces to audit hooks before it is made: what was
looked at then is a link when the call comes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal

from tests.delta.builder import TableBuilder
from tests.delta.vacuum.aging import age, tombstone
from tests.hostile.attack import Attack, Ground, Put, Then, harmless

_LOG: Final = "_delta_log"
_MANIFESTS: Final = "_symlink_format_manifest"
_PLAIN: Final = {"delta.enableDeletionVectors": "false"}
_FEED: Final = {"delta.enableChangeDataFeed": "true"}
_V2: Final = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}

# Swaps


@dataclass
class _Strike:
    """What is done right before some system calls on files whose names contain one."""

    calls: tuple[str, ...]
    name: str
    do: Callable[[], object]
    most: int
    times: int = 0
    lock: Lock = field(default_factory=Lock)

    def announced(self, call: str, arguments: tuple[Any, ...]) -> None:
        if self.times == self.most or call not in self.calls:
            return
        if not any(self.name in str(each) for each in arguments[:2]):
            return
        if self.lock.acquire(blocking=False):  # else the call is one of those that are made here
            try:
                self.times += 1
                self.do()
            finally:
                self.lock.release()


_strikes: list[_Strike] = []


@lru_cache
def _listen() -> None:
    def announced(call: str, arguments: tuple[Any, ...]) -> None:
        for strike in _strikes:
            strike.announced(call, arguments)

    sys.addaudithook(announced)  # for good: a hook cannot be removed


def _strike_at(calls: Sequence[str], name: str, do: Callable[[], object], most: int = 1) -> None:
    _listen()
    _strikes[:] = [_Strike(tuple(calls), name, do, most)]


def strikes_under_way() -> bool:
    """Forget what would strike; tell whether there was anything. Other engines make other calls."""
    found = bool(_strikes)
    _strikes.clear()
    return found


def _has_struck(_: Ground, _result: object) -> None:
    [strike] = _strikes
    _strikes.clear()
    assert strike.times, "the system call at which the swap strikes was never made"


def _swap(folder: Path, target: Path) -> None:
    """Put a link in the place of a folder, which goes on under another name."""
    if folder.exists():
        folder.rename(folder.with_name(f"_was-{folder.name}"))
    folder.symlink_to(target)


def _swapped(make: Put, folder: str, event: str, name: str) -> Put:
    """Make a table with a twin of its folder outside; later one takes the place of the other."""

    def put(ground: Ground) -> None:
        make(ground)
        twin = ground.outside / folder.rpartition("/")[2]
        if (ground.table / folder).exists():
            shutil.copytree(ground.table / folder, twin)
        else:
            twin.mkdir()
        _strike_at([event], name, lambda: _swap(ground.table / folder, twin))

    return put


# Tables


def _table(ground: Ground, properties: dict[str, str] | None = None) -> TableBuilder:
    """Make a table of four old versions, with orphan files in a folder below a folder."""
    table = TableBuilder(ground.table, properties=properties or {})
    if properties == _V2:
        for features in ("readerFeatures", "writerFeatures"):
            table.protocol[features].append("v2Checkpoint")
    table.create()
    adds = [table.write_file(f"{name}.parquet", {"id": range(10)}) for name in "ab"]
    table.commit(*({"add": add} for add in adds))
    gone = table.write_file("up/old/removed.parquet", {"id": range(10)})
    table.commit({"add": gone})
    table.checkpoint([*adds, gone])
    table.commit(tombstone(gone, 3))
    for name in ("x-0.parquet", ".x-0.parquet.crc", "x-1.parquet"):
        shutil.copy(ground.table / "a.parquet", ground.table / "up" / "old" / name)
    (ground.table / "up" / "old" / "empty").mkdir()
    age(ground.table, 60, log=True)
    return table


_without_vectors: Final[Put] = partial(_table, properties=_PLAIN)


def _with_stale_manifest(ground: Ground) -> None:
    _table(ground, _PLAIN)
    folder = ground.table / _MANIFESTS / "day=1"
    folder.mkdir(parents=True)
    (folder / "stale").touch()


def _linked(folder: str, properties: dict[str, str] | None = None) -> Put:
    """Make a table a folder of which is a link from the beginning."""

    def put(ground: Ground) -> None:
        _table(ground, properties)
        target = ground.outside / "target"
        if (ground.table / folder).exists():
            (ground.table / folder).rename(target)
        else:
            target.mkdir()
        (ground.table / folder).symlink_to(target)

    return put


def _hard_linked(name: str) -> Put:
    """Make a table a file of which is also one outside."""

    def put(ground: Ground) -> None:
        _table(ground, _PLAIN)
        twin, path = ground.outside / "twin", ground.table / name
        twin.write_text("{}")
        path.parent.mkdir(exist_ok=True)
        os.link(twin, path)
        age(ground.table, 60, log=True)

    return put


def _folders_stay(ground: Ground, _: object) -> None:
    _has_struck(ground, _)
    assert (ground.outside / "old" / "empty").is_dir(), "a folder outside was removed"


# A folder that is a link at every other system call

_CALLS: Final = ("os.remove", "os.rmdir", "os.scandir", "open")


def _flickering(ground: Ground) -> None:
    _table(ground)
    folder, twin = ground.table / "up" / "old", ground.outside / "old"
    shutil.copytree(folder, twin)
    link, aside = ground.table / "_link", ground.table / "_aside"
    link.symlink_to(twin)

    def flicker() -> None:
        out, back = (aside, link) if link.is_symlink() else (link, aside)
        folder.rename(out)
        back.rename(folder)

    _strike_at(_CALLS, "", flicker, most=400)


_OUT: Final = "is behind a symbolic link that leads out of"
# The operation, what is said if it is refused, the table, the folder that is swapped, the system
# call at which that happens, and the name of its file.
_SWAPS: Final[list[tuple[str, str, Put, str, str, str]]] = [
    ("vacuum", "", _table, "up/old", "os.remove", "x-0.parquet"),
    ("vacuum", "", _table, "up/old", "os.remove", ".x-0.parquet.crc"),
    ("vacuum", "", _table, "up/old", "os.scandir", "up/old"),
    ("vacuum", "", _table, "up", "os.remove", "x-0.parquet"),
    ("vacuum", "", _table, "up/old", "os.rmdir", "empty"),
    ("lite vacuum", "", _table, "up/old", "os.remove", "removed.parquet"),
    ("clean log", "", _table, _LOG, "os.remove", "00000000000000000001.json"),
    ("checkpoint", "does not exist", _table, _LOG, "open", ".delvec-staged-"),
    ("checkpoint", "", _table, _LOG, "os.rename", "_last_checkpoint"),
    ("restore", "", _table, _LOG, "os.link", "00000000000000000004.json"),
    ("generate manifest", _OUT, _without_vectors, _MANIFESTS, "os.mkdir", _MANIFESTS),
    ("generate manifest", "", _without_vectors, _MANIFESTS, "open", ".delvec-staged-"),
    ("generate manifest", "", _with_stale_manifest, f"{_MANIFESTS}/day=1", "os.remove", "stale"),
]

# The operation, what is said if it is refused, and the folder that is a link from the beginning.
_LINKED: Final[list[tuple[str, str, str, dict[str, str]]]] = [
    ("vacuum", "", "up", {}),
    ("lite vacuum", "", "up/old", {}),
    ("vacuum", _OUT, _LOG, {}),
    ("clean log", _OUT, _LOG, {}),
    ("checkpoint", _OUT, _LOG, {}),
    ("checkpoint", _OUT, f"{_LOG}/_sidecars", _V2),
    ("restore", _OUT, _LOG, {}),
    ("generate manifest", _OUT, _MANIFESTS, _PLAIN),
    ("update", _OUT, "_change_data", _FEED),
]
_HARD_LINKED: Final = [
    ("vacuum", "up/old/twin.parquet"),
    ("checkpoint", f"{_LOG}/_last_checkpoint"),
    ("generate manifest", f"{_MANIFESTS}/manifest"),
    ("generate manifest", f"{_MANIFESTS}/.manifest.crc"),
]


def _link_attacks(rows: Iterable[tuple[str, str, str, Put, Then | None]]) -> Iterator[Attack]:
    """Return attacks by place, operation, what is said if it is refused, `put` and `then`."""
    for place, operation, says, put, then in rows:
        expected: Literal["refused", "harmless"] = "refused" if says else "harmless"
        yield Attack("deletes", place, operation, expected, put, says, then)


ATTACKS: Final = [
    *_link_attacks(
        (
            f"{folder} becomes a link at {event} of {name}",
            operation,
            says,
            _swapped(make, folder, event, name),
            _folders_stay if event == "os.rmdir" else _has_struck,
        )
        for operation, says, make, folder, event, name in _SWAPS
    ),
    *_link_attacks(
        (f"{folder} is a link", operation, says, _linked(folder, properties), None)
        for operation, says, folder, properties in _LINKED
    ),
    *harmless(
        "deletes",
        *((f"{name} is a hard link", each, _hard_linked(name)) for each, name in _HARD_LINKED),
        ("up/old is a link at every other system call", "vacuum", _flickering, _has_struck),
    ),
]
