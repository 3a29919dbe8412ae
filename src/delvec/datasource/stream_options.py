"""The options of `spark.readStream.format("delvec")`, by Delta's names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["STREAM_NAMES", "StreamOptions", "parse_stream_options"]

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
    """

    start: int | Literal["latest"] | None = None
    start_timestamp: str | None = None
    skip_changes: bool = False
    ignore_deletes: bool = False
    change_feed: bool = False


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
    )


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
        if name in given:
            raise UnsupportedFeatureError(
                f"{name} cannot be kept: Spark does not tell a Python data source where a batch"
                " starts, so that each batch is all that is new",
                feature=name,
                hint="omit it; tasks read files in parts of splitBytes",
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
