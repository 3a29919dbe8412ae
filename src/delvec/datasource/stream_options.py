"""The options of `spark.readStream.format("delvec")`, by Delta's names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HAS_LIMITS", "STREAM_NAMES", "StreamOptions", "parse_size", "parse_stream_options"]

HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark lets a Python data source limit a batch: from 4.2 on."""

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)

STREAM_NAMES: Final = (
    "startingVersion",
    "startingTimestamp",
    "skipChangeCommits",
    "ignoreDeletes",
    "ignoreChanges",
    "readChangeFeed",
    "readChangeData",
    "failOnDataLoss",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
)
"""All options of Delta's source, those that are refused included."""


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream.

    Attributes:
        start: The first version whose changes are read, or `latest`; None for the whole table.
        start_timestamp: Or the first version that was committed then or later.
        skip_changes: Pass over commits that delete or update rows.
        ignore_deletes: Pass over commits that only remove files.
        change_feed: Read the change feed.
        max_files: How many files a batch reads at most.
        max_bytes: After how many bytes a batch takes no further file.
    """

    start: int | Literal["latest"] | None = None
    start_timestamp: str | None = None
    skip_changes: bool = False
    ignore_deletes: bool = False
    change_feed: bool = False
    max_files: int | None = None
    max_bytes: int | None = None


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the checked options of a stream, from those that `STREAM_NAMES` has.

    Raises:
        InvalidArgumentError: A value is invalid, or two of them contradict each other.
        UnsupportedFeatureError: Spark does not let a Python data source do it.
    """
    _refuse(given)
    if "startingVersion" in given and "startingTimestamp" in given:
        raise InvalidArgumentError("startingVersion and startingTimestamp: name one of them")
    return StreamOptions(
        _start(given.get("startingVersion")),
        given.get("startingTimestamp"),
        _flag(given, "skipChangeCommits"),
        _flag(given, "ignoreDeletes"),
        _flag(given, "readChangeFeed") or _flag(given, "readChangeData"),
        _number("maxFilesPerTrigger", given.get("maxFilesPerTrigger")),
        parse_size("maxBytesPerTrigger", given.get("maxBytesPerTrigger")),
    )


def parse_size(name: str, text: str | None) -> int | None:
    """Return the bytes of an option such as `64m`; None if it is not given.

    Raises:
        InvalidArgumentError: It is no size, or 0.
    """
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise InvalidArgumentError(
            f"{name} is a size above 0, not {text!r}", hint="write 64m, or a number of bytes"
        )
    return int(match[1]) * _UNITS[match[2].lower()]


def _number(name: str, text: str | None) -> int | None:
    if text is not None and not re.fullmatch("0*[1-9][0-9]{0,17}", text.strip()):
        raise InvalidArgumentError(f"{name} is a number above 0, not {text!r}")
    return None if text is None else int(text)


def _start(text: str | None) -> int | Literal["latest"] | None:
    if text is None:
        return None
    if text.strip().lower() == "latest":
        return "latest"
    if not re.fullmatch("[0-9]{1,18}", text.strip()):
        raise InvalidArgumentError(
            f"startingVersion is the number of a version or 'latest', not {text!r}"
        )
    return int(text)


def _flag(given: Mapping[str, str], name: str, default: str = "false") -> bool:
    value = given.get(name, default).strip().lower()
    if value not in ("true", "false"):
        raise InvalidArgumentError(f"{name} is true or false, not {given[name]!r}")
    return value == "true"


def _refuse(given: Mapping[str, str]) -> None:
    for name in ("maxFilesPerTrigger", "maxBytesPerTrigger"):
        if name in given and not HAS_LIMITS:
            raise UnsupportedFeatureError(
                f"{name} cannot be kept: before Spark 4.2, a Python data source is not told where"
                " a batch starts, nor that availableNow wants all that is new",
                feature=name,
                hint="omit it, or use Spark 4.2; tasks read files in parts of splitBytes",
            )
    if _flag(given, "ignoreChanges"):
        raise UnsupportedFeatureError(
            "ignoreChanges would return unchanged rows of rewritten files again",
            feature="ignoreChanges",
            hint="use skipChangeCommits=true, or readChangeFeed=true to get every change",
        )
    if not _flag(given, "failOnDataLoss", "true"):
        raise UnsupportedFeatureError(
            "failOnDataLoss=false would pass over versions whose commits are gone",
            feature="failOnDataLoss",
            hint="omit it, and begin anew with another checkpoint if versions are gone",
        )
