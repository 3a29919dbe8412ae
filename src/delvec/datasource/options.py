"""The options of `format("delvec")`: strings from Spark, checked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, cast, get_args

from delvec.datasource.stream_options import (
    STREAM_NAMES,
    StreamOptions,
    parse_size,
    parse_stream_options,
)
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ALLOWED",
    "FOLLOWS",
    "ReadOptions",
    "View",
    "names_zone",
    "parse_options",
    "require_batch",
    "require_stream",
]

View = Literal["rows", "files", "vectors", "positions", "history"]

ALLOWED: Final = "allowedPaths"

_NAMES: Final = (
    "path",
    "versionAsOf",
    "timestampAsOf",
    "columns",
    "filters",
    "view",
    "splitBytes",
    "timeZone",
    ALLOWED,
)
_STORAGE: Final = "storage."
# Internal: which files of the version to read.
_FILES: Final = "_files"
FOLLOWS: Final = "_follows"
"""Internal, to be seen in plans: whether `versionAsOf` is what was the newest, not asked for."""
# Options that Spark adds to tables of its catalog.
_CATALOG: Final = frozenset(
    {"owner", "provider", "location", "external", "is_managed_location", "comment", "collation"}
)
_ZONE: Final = re.compile(r".*(Z|[+-][0-9]{2}:[0-9]{2})", re.DOTALL)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read; None where the user gave none."""

    path: str
    view: View = "rows"
    version: int | None = None
    timestamp: str | None = None
    columns: tuple[str, ...] | None = None
    filters: str | None = None
    split_bytes: int | None = None
    time_zone: str | None = None
    only_vectored: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream: StreamOptions = StreamOptions()  # noqa: RUF009 - frozen as well
    allowed_paths: str | None = None


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the checked options of a read; names are case-insensitive.

    >>> parse_options({"path": "/lake/t", "COLUMNS": "id, _pos", "splitbytes": "64m"}).columns
    ('id', '_pos')

    Raises:
        InvalidArgumentError: An option is unknown, or its value is invalid.
    """
    known = {name.lower(): name for name in (*_NAMES, *STREAM_NAMES, _FILES, FOLLOWS)}
    given: dict[str, str] = {}
    storage_options = {}
    for name, value in options.items():
        if name.lower().startswith(_STORAGE):
            storage_options[name[len(_STORAGE) :]] = value
        elif name.lower() in known:
            given[known[name.lower()]] = value
        else:
            _refuse_option(name)
    return _checked(
        ReadOptions(
            _path(given),
            cast("View", _one_of("view", given.get("view", "rows"), get_args(View))),
            _version(given),
            given.get("timestampAsOf"),
            _columns(given.get("columns")),
            given.get("filters"),
            parse_size("splitBytes", given.get("splitBytes")),
            given.get("timeZone"),
            _one_of(_FILES, given.get(_FILES, "all"), ("all", "vectored")) == "vectored",
            storage_options,
            parse_stream_options(given),
            given.get(ALLOWED),
        )
    )


def names_zone(moment: str) -> bool:
    """Return whether a time contains its zone.

    >>> names_zone("2026-01-31T10:00:00+01:00"), names_zone("2026-01-31 10:00:00")
    (True, False)
    """
    return _ZONE.fullmatch(moment.strip()) is not None


def _checked(options: ReadOptions) -> ReadOptions:
    if options.version is not None and options.timestamp is not None:
        raise InvalidArgumentError("versionAsOf and timestampAsOf: name one of them")
    if options.view == "history" and (options.version, options.timestamp) != (None, None):
        raise InvalidArgumentError(
            "view=history lists all versions: versionAsOf does not go with it"
        )
    if options.view != "rows" and options.filters is not None:
        raise InvalidArgumentError(
            f"filters are for rows of the table, not for view={options.view}",
            hint="use .where(...) on the DataFrame",
        )
    for name, moment in (
        ("timestampAsOf", options.timestamp),
        ("startingTimestamp", options.stream.start_timestamp),
    ):
        if moment is not None and not names_zone(moment) and options.time_zone is None:
            _refuse_open_zone(name, moment)
    return options


def require_batch(options: ReadOptions) -> None:
    """Refuse options of streams in a batch.

    Raises:
        InvalidArgumentError: There is one.
    """
    if options.stream != StreamOptions():
        raise InvalidArgumentError(
            "startingVersion, skipChangeCommits, readChangeFeed and the like are for streams",
            hint='use spark.readStream.format("delvec"), or'
            " delvec.DeltaTable.for_path(spark, path).changes(start_version)",
        )


def require_stream(options: ReadOptions) -> None:
    """Refuse options of batches in a stream.

    Raises:
        InvalidArgumentError: There is one.
    """
    given = {
        "versionAsOf": options.version is not None,
        "timestampAsOf": options.timestamp is not None,
        "filters": options.filters is not None,
        "view": options.view != "rows",
    }
    for name in (name for name, is_given in given.items() if is_given):
        raise InvalidArgumentError(
            f"the option {name} is for batches, not for streams",
            hint='use spark.read.format("delvec"), or .where(...) on the stream',
        )


def _refuse_open_zone(name: str, moment: str) -> NoReturn:
    raise InvalidArgumentError(
        f"{name}={moment!r} names no zone, and none is known here",
        hint="write 2026-01-31T10:00:00+01:00 or 2026-01-31T09:00:00Z, or set the option"
        ' timeZone to spark.conf.get("spark.sql.session.timeZone")',
    )


def _path(given: Mapping[str, str]) -> str:
    if not given.get("path"):
        raise InvalidArgumentError(
            "which table? the option path is not set",
            hint='spark.read.format("delvec").load("/lake/orders")',
        )
    return given["path"]


def _version(given: Mapping[str, str]) -> int | None:
    text = given.get("versionAsOf")
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", text.strip()):
        raise InvalidArgumentError(f"versionAsOf is the number of a version, not {text!r}")
    return int(text)


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names: Any = [name.strip() for name in text.split(",")]
    if text.lstrip().startswith("["):
        names = _json("columns", text)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgumentError(
            f"columns is a list of names, not {text!r}", hint="write id,name or ['id', 'name']"
        )
    return tuple(names)


def _json(name: str, text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"the option {name} is not JSON: {text[:80]!r}") from error


def _one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    if value.lower() in allowed:
        return value.lower()
    near = get_close_matches(value.lower(), allowed, 1)
    raise InvalidArgumentError(
        f"there is no {name} {value!r}, only {', '.join(allowed)}",
        hint=f"did you mean {near[0]!r}?" if near else None,
    )


def _refuse_option(name: str) -> NoReturn:
    if name.lower() == "paths":
        raise InvalidArgumentError("one table at a time: load(path), not a list of paths")
    if name.lower() in _CATALOG:
        raise UnsupportedFeatureError(
            "Spark does not tell a Python data source where a table of its catalog is",
            feature="CREATE TABLE USING delvec",
            hint="CREATE TEMPORARY VIEW orders USING delvec OPTIONS (path '/lake/orders')",
        )
    lower = {known.lower(): known for known in (*_NAMES, *STREAM_NAMES)}
    near = get_close_matches(name.lower(), lower, 1)
    raise InvalidArgumentError(
        f'format("delvec") has no option {name!r}, only {", ".join(_NAMES)} and storage.*',
        hint=f"did you mean {lower[near[0]]!r}?" if near else None,
    )
