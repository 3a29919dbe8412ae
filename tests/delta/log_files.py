"""What can be seen of a table's files without delvec's reader of logs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from delvec.vector import Descriptor

Action = dict[str, Any]


def commits(path: Path) -> list[list[Action]]:
    """Give the actions of every commit that is there, oldest first."""
    files = sorted((path / "_delta_log").glob("*.json"))
    plain = [file for file in files if len(file.stem) == 20]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in plain]


def newest_version(path: Path) -> int:
    return len(commits(path)) - 1


def live_adds(path: Path) -> list[Action]:
    """Replay all commits, naively: each action by itself, a remove before the add of its commit."""
    live: dict[tuple[str, str], Action] = {}
    for actions in commits(path):
        for kind in ("remove", "add"):
            for action in (entry[kind] for entry in actions if kind in entry):
                key = (unquote(action["path"]), json.dumps(action.get("deletionVector")))
                if kind == "add":
                    live[key] = action
                else:
                    live.pop(key, None)
    return list(live.values())


def local(path: Path, name: str) -> Path:
    """Find a file that a log names."""
    if name.startswith("file:"):
        return Path(unquote(urlsplit(name).path))
    return path / unquote(name)


def payload_of(path: Path, add: Action) -> bytes:
    """Read the bytes of a vector: magic, count, bitmaps."""
    descriptor = Descriptor.from_json(add["deletionVector"])
    start, length = descriptor.file_range
    frame = (path / str(descriptor.file_path)).read_bytes()[start : start + length]
    assert len(frame) == length
    return frame[4:-4]


def container_kinds(payload: bytes) -> list[str]:
    """Name the kind of each container of a vector whose rows are all below 2^32."""
    assert int.from_bytes(payload[4:12], "little") == 1
    bitmap = payload[16:]
    cookie = int.from_bytes(bitmap[:4], "little")
    if cookie & 0xFFFF == 12347:
        count = (cookie >> 16) + 1
        flags, table = bitmap[4 : 4 + (count + 7) // 8], bitmap[4 + (count + 7) // 8 :]
    else:
        assert cookie == 12346
        count, flags, table = int.from_bytes(bitmap[4:8], "little"), b"", bitmap[8:]
    kinds = []
    for index in range(count):
        if flags and flags[index // 8] >> (index % 8) & 1:
            kinds.append("run")
        else:
            cardinality = int.from_bytes(table[4 * index + 2 : 4 * index + 4], "little") + 1
            kinds.append("array" if cardinality <= 4096 else "bitmap")
    return kinds


def row_groups(path: Path, adds: Iterable[Action]) -> list[int]:
    return [pq.ParquetFile(local(path, add["path"])).num_row_groups for add in adds]
