"""Attacks by the names of files in the log, and by what lies under the name of a file."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

import delvec
from tests.delta.builder import TableBuilder
from tests.hostile.attack import Ground, Put, Then, harmless, refused

_SCRIPTS: Final = {"Arabic": 0x660, "Devanagari": 0x966, "fullwidth": 0xFF10}
_LONG_MAX: Final = 2**63 - 1
_BEYOND: Final = "9" * 20
_READS: Final = ("open", "read", "history", "check", "inspect", "vacuum", "checkpoint")


def _half_deleted(ground: Ground) -> TableBuilder:
    """Make a table of 100 rows, of which version 2 deletes 50."""
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(100)})
    table.commit({"add": add})
    [vector] = table.write_vectors(range(50))
    table.delete(add, vector)
    return table


def _rows(ground: Ground) -> int:
    table = delvec.DeltaTable.for_path(None, str(ground.table))
    return int(table.to_arrow().num_rows)


def _half_is_deleted(ground: Ground, _: Any) -> None:  # noqa: ANN401
    assert _rows(ground) == 50


# Names in other digits than those of ASCII, and names that only seem to be a file's of the log.


def _foreign_digits(ground: Ground, script: str, version: int, suffix: str) -> None:
    first = _SCRIPTS[script]
    digits = {ord("0") + digit: first + digit for digit in range(10)}
    name = f"{version:020d}".translate(digits) + suffix.translate(digits)
    (_forged if "checkpoint" in name else _also)(ground, name)


def _first_add(table: TableBuilder) -> dict[str, Any]:
    """Return the file as it was added, without the vector."""
    lines = table.commit_path(1).read_text().splitlines()
    add: dict[str, Any] = json.loads(lines[-1])["add"]
    return add


def _also(ground: Ground, name: str) -> None:
    """Copy the commit that adds the file to another name."""
    table = _half_deleted(ground)
    shutil.copy(table.commit_path(1), table.log / name)


def _forged(ground: Ground, name: str) -> TableBuilder:
    """Put a checkpoint without the vector under a name."""
    table = _half_deleted(ground)
    [whole] = table.checkpoint([_first_add(table)])
    whole.rename(table.log / name)
    return table


_V2: Final = f".checkpoint.{UUID(int=7)}.parquet"
_IN_DIGITS: Final = [
    (script, version, suffix)
    for script in _SCRIPTS
    for version, suffix in (
        (2, ".json"),
        (3, ".json"),
        (3, ".checkpoint.parquet"),
        (3, ".checkpoint.0000000001.0000000001.parquet"),
        (3, _V2),
        (1, f".{3:020d}.compacted.json"),
    )
]
_LIKE_NAMES: Final = [
    *("2.json", f"{2:021d}.json", f"{2:020d}.json\n", f" {2:020d}.json", f"+{2:019d}.json"),
    *(f"{2:018d}_2.json", f"{3:020d}.JSON", f"{3:020d}.checkpoint.json"),
    *(f"{3:020d}.checkpoint.{'0' * 36}.json", f"{0:020d}.{_BEYOND[:9]}.compacted.json"),
]

# Versions that no table has.


def _version(version: int, suffix: str = ".checkpoint.parquet") -> Put:
    return partial(_forged, name=f"{version:020d}{suffix}")


_HINTS: Final = {
    "a huge version": f'{{"version":{_BEYOND},"size":1}}',
    "a version of 4000 digits": f'{{"version":{"9" * 4000},"size":1}}',
    "a version of 5000 digits": f'{{"version":{"9" * 5000},"size":1}}',
    "a negative version": '{"version":-1,"size":1}',
    "a version with a fraction": '{"version":2.0,"size":1}',
    "a version that is a string": '{"version":"2","size":1}',
    "a version of a later checkpoint": '{"version":50,"size":1}',
    "billions of parts": '{"version":2,"size":1,"parts":2147483647}',
    "a huge size": '{"version":2,"size":1000000000000000000,"sizeInBytes":1e300}',
    "deep JSON": "[" * 100_000,
    "a list": "[2]",
    "bytes that are no text": "\udcff\udcfe",
}


def _write_hint(ground: Ground, text: str) -> None:
    table = _half_deleted(ground)
    table.checkpoint([json.loads(table.commit_path(2).read_text().splitlines()[-1])["add"]])
    (table.log / "_last_checkpoint").write_bytes(text.encode(errors="surrogateescape"))


# What is no file, under the name of one.


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


def _socket(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, socket.socket(socket.AF_UNIX) as made:
        patch.chdir(path.parent)  # names of sockets are short
        made.bind(path.name)


_NO_FILES: Final[dict[str, Callable[[Path], object]]] = {
    "a folder": Path.mkdir,
    "a folder that is not empty": _full_folder,
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


def _instead_of(ground: Ground, name: str, make: Callable[[Path], object]) -> None:
    """Put what is no file to the place of a file of the table, or where one comes next."""
    own = name.rpartition("/")[2]
    table = _forged(ground, own) if "checkpoint" in name else _half_deleted(ground)
    path = table.vector_path() if name == "vector" else ground.table / name
    path.unlink(missing_ok=True)
    make(path)


def _nothing_came(ground: Ground, _: Any) -> None:  # noqa: ANN401
    files = [each.name for each in (ground.table / "_delta_log").iterdir()]
    assert not [name for name in files if name.startswith(".delvec")]
    assert _rows(ground) == 50


def _has_finding(_: Ground, report: Any) -> None:  # noqa: ANN401
    assert any(_BEYOND in each.path for each in report.findings), report.findings


def _names_the_file(_: Ground, report: Any) -> None:  # noqa: ANN401
    errors = [str(each) for each in report.findings if each.severity == "error"]
    assert any(re.search(r"a\.parquet|deletion_vector_", each) for each in errors), report.findings


def _told(what: str, shown: str) -> str:
    leads_nowhere = "link" in what and shown != "a commit"
    return "leads to no file" if leads_nowhere else "does not exist|lacks the commit"


_GO_ON: Final = {
    "check": _names_the_file,
    **dict.fromkeys(("inspect", "traces without Spark", "vacuum")),
}


def _is_committed(version: int) -> Then:
    def look(ground: Ground, _: Any) -> None:  # noqa: ANN401
        table = delvec.DeltaTable.for_path(None, str(ground.table))
        assert table.version == version
        assert table.detail().properties["hostile"] == "no"

    return look


def _instead(what: str, name: str) -> Put:
    return partial(_instead_of, name=name, make=_NO_FILES[what])


_NEXT: Final = {what: _instead(what, f"_delta_log/{3:020d}.json") for what in _NO_FILES}

_ARABIC: Final = partial(_foreign_digits, script="Arabic", version=2, suffix=".json")
_LAST: Final = "a checkpoint of the last version that a long holds"
_LAST_BUT_ONE: Final = "a checkpoint of the last but one version that a long holds"
_TOO_LATE: Final = f"a file of version {_BEYOND}"
_MARK: Final = "_delta_log/_last_vacuum_info"
_PARTED: Final = ".checkpoint.0000000001.0000000001.parquet"


ATTACKS: Final = [
    *harmless(
        "comes back",
        *(
            (
                f"version {version} in {script} digits, as {suffix.strip('.')[:20]}",
                "read",
                partial(_foreign_digits, script=script, version=version, suffix=suffix),
            )
            for script, version, suffix in _IN_DIGITS
        ),
        then=_half_is_deleted,
        slow=lambda place, _: "Arabic" not in place,
    ),
    *harmless(
        "comes back",
        (
            "version 2 in Arabic digits",
            ("history", "check", "inspect", "vacuum", "checkpoint", "set properties"),
            _ARABIC,
        ),
        *((f"a commit under {name!r}", "read", partial(_also, name=name)) for name in _LIKE_NAMES),
        then=_half_is_deleted,
    ),
    *refused(
        "comes back",
        *(
            (f"{_TOO_LATE}: {suffix.strip('.')[:20]}", operations, _version(int(_BEYOND), suffix))
            for suffix, operations in (
                (".checkpoint.parquet", (*_READS, "set properties")),
                *((each, "set properties") for each in (_V2, _PARTED, ".json", ".crc")),
            )
        ),
        says=f"no version in .*{_BEYOND}.*Hint",
    ),
    *refused(
        "comes back", (_LAST, "set properties", _version(_LONG_MAX)), says="no version can follow"
    ),
    *harmless(
        "comes back",
        (_TOO_LATE, "delvec check", _version(int(_BEYOND)), _has_finding),
        (_LAST_BUT_ONE, "set properties", _version(_LONG_MAX - 1), _is_committed(_LONG_MAX)),
        ("a checkpoint beyond the last commit", "set properties", _version(10), _is_committed(11)),
        *(
            (f"a hint with {what}", "set properties", partial(_write_hint, text=text))
            for what, text in _HINTS.items()
        ),
        then=_half_is_deleted,
    ),
    *harmless(
        "takes the machine",
        (
            f"a checkpoint of version {_LONG_MAX}",
            [each for each in _READS if each != "vacuum"],  # which commits
            _version(_LONG_MAX),
        ),
        confined=True,
    ),
    *refused(
        "takes the machine",
        *((f"{what} as the next commit", "set properties", put) for what, put in _NEXT.items()),
        says=f"{3:020d}.json is there, and is no file.*Hint",
        then=_nothing_came,
        confined=True,
    ),
    *harmless(
        "takes the machine",
        *((f"{what} as the next commit", "read", put) for what, put in _NEXT.items()),
        then=_half_is_deleted,
        confined=True,
        slow=lambda place, _: not place.startswith(("a pipe", "a device")),
    ),
    *refused(
        "takes the machine",
        *(
            (f"{what} as {shown}", operation, _instead(what, name), _told(what, shown))
            for what in ("a pipe", "a device", "a folder", "a link to itself")
            for shown, name, operation in (
                ("a commit", f"_delta_log/{1:020d}.json", "open"),
                ("a data file", "a.parquet", "read"),
                ("a vector", "vector", "read"),
            )
        ),
        confined=True,
    ),
    *harmless(
        "takes the machine",
        *(
            (f"{what} as {shown}", operation, _instead(what, name), then)
            for what in ("a pipe", "a folder", "a link to itself")
            for shown, name in (("a data file", "a.parquet"), ("a vector", "vector"))
            for operation, then in _GO_ON.items()
        ),
        ("a folder as the mark of a vacuum", "vacuum", _instead("a folder", _MARK)),
        confined=True,
    ),
    *harmless(
        "takes the machine",
        *(
            (f"{what} as {name[-20:]}", ("read", "check"), _instead(what, f"_delta_log/{name}"))
            for what in ("a pipe", "a device", "a folder")
            for name in (f"{2:020d}.checkpoint.parquet", f"{2:020d}.crc", "_last_checkpoint")
        ),
        then=_half_is_deleted,
        confined=True,
    ),
]
