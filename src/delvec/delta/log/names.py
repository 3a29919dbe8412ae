"""The names of files in `_delta_log`: here they are made and parsed, and nowhere else.

<20 digits>.json                            a commit
<20 digits>.<20 digits>.compacted.json      the commits from one version to another in one file
<20 digits>.checkpoint.parquet              a checkpoint: the whole state up to a version
<20 digits>.checkpoint.<n>.<of>.parquet     a part of a multi-part checkpoint (10 digits each)
<20 digits>.checkpoint.<uuid>.json|parquet  a v2 checkpoint, with sidecars
<20 digits>.crc                             a version checksum
_last_checkpoint                            where to begin; a hint that may be missing or wrong

Digits are those of ASCII, as in Java's patterns. Python's take any script's, and a file that is
named in Arabic digits would stand for another version.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "LAST_CHECKPOINT",
    "LOG",
    "SIDECARS",
    "LogName",
    "checkpoint_key",
    "checksum_key",
    "commit_key",
    "latest_version",
    "parse_name",
    "version_prefix",
]

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
SIDECARS: Final = f"{LOG}/_sidecars"

_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME: Final = re.compile(
    r"([0-9]{20})\.(?:(?P<commit>json)|(?P<checksum>crc)|(?P<compacted>([0-9]{20})\.compacted\.json)"
    rf"|(?P<checkpoint>checkpoint(?:\.([0-9]{{10}})\.([0-9]{{10}})|\.({_UUID})|\..+)?"
    r"\.(?:json|parquet)))",
    re.DOTALL,
)
# Staged commits have more after the version, and Hadoop's checksums a dot before it.
_VERSIONED: Final = re.compile(r"\.?([0-9]{20})(?:\.([0-9]{20})\.compacted)?")

Kind: TypeAlias = Literal["commit", "checksum", "compacted", "checkpoint"]


class LogName(NamedTuple):
    """What the name of a file in the log says.

    Attributes:
        kind: What the file is.
        version: The version that it is about; the first one if commits were compacted.
        last: The last version that it is about; beyond `LONG_MAX` it is none.
        part: The number of a part of a multi-part checkpoint, and of how many.
        is_v2: Whether it is a v2 checkpoint.
        is_whole: Whether it is a checkpoint in one file that readers know.
    """

    kind: Kind
    version: int
    last: int
    part: tuple[int, int] | None = None
    is_v2: bool = False
    is_whole: bool = False


def parse_name(name: str) -> LogName | None:
    r"""Return what a name in the log says; None for all others.

    >>> parse_name("00000000000000000007.json")
    LogName(kind='commit', version=7, last=7, part=None, is_v2=False, is_whole=False)
    >>> parse_name("0000000000000000000\N{ARABIC-INDIC DIGIT SEVEN}.json") is None
    True
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind: Kind = found.lastgroup  # type: ignore[assignment]
    version = int(found[1])
    last = int(found[5]) if found[5] else version
    if kind != "checkpoint":
        return LogName(kind, version, last)
    is_part = found[7] and name.endswith(".parquet")
    part = (int(found[7]), int(found[8])) if is_part else None
    is_v2 = found[9] is not None
    is_plain = found["checkpoint"] == "checkpoint.parquet"
    return LogName(kind, version, last, part, is_v2, is_v2 or is_plain)


def latest_version(name: str) -> int | None:
    """Return the last version that a file is about by the digits that it begins with.

    >>> latest_version(".00000000000000000003.00000000000000000007.compacted.json.crc")
    7
    """
    found = _VERSIONED.match(name)
    return int(found[2] or found[1]) if found else None


def version_prefix(version: int) -> str:
    """Return what the names of all files about a version begin with."""
    return f"{version:020d}"


def commit_key(version: int) -> str:
    """Return the key of a commit's file."""
    return f"{LOG}/{version_prefix(version)}.json"


def checksum_key(version: int) -> str:
    """Return the key of a version's checksum file."""
    return f"{LOG}/{version_prefix(version)}.crc"


def checkpoint_key(version: int, unique: str = "") -> str:
    """Return the key of a checkpoint in one file; of a v2 checkpoint if it gets a UUID."""
    return f"{LOG}/{version_prefix(version)}.checkpoint.{unique and unique + '.'}parquet"
