"""The options of `format("delvec")`, for reads, streams and writes: strings from Spark, checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, Final, Literal, NoReturn, get_args

import pyarrow as pa

from delvec.delta.schema.types import StructType
from delvec.delta.skipping.predicate import Predicate, find_column, parse_filters
from delvec.delta.write.transaction import CheckedOptions
from delvec.documents import parse_time, size_bytes, whole_number
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.report.format import did_you_mean

View = Literal["rows", "files", "vectors", "positions", "history"]
ALLOWED: Final = "allowedPaths"
_STORAGE: Final = "storage."
FOLLOWS: Final = "_follows"
"""Internal, to be seen in plans: whether `versionAsOf` is what was the newest, not asked for."""
# Options that Spark adds to tables of its catalog.
_CATALOG: Final = frozenset(
    {"owner", "provider", "location", "external", "is_managed_location", "comment", "collation"}
)
HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark lets a Python data source limit a batch: from 4.2 on."""
_PROPERTY: Final = "delta."
_Parser = Callable[[str, str], Any]  # takes the name of an option, for errors, and its string
_Option = tuple[str, _Parser]  # the field that an option sets, and how its string is parsed
# Spark's own options of a stream, which the engine has read.
_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
# Options of Delta that only the calls of DeltaTable carry out, and the values that ask for nothing.
_REFUSED: Final = {
    "mergeschema": ("false", "append(df, merge_schema=True)"),
    "overwriteschema": ("false", "overwrite(df, replace_schema=True)"),
    "replacewhere": (None, 'overwrite(df, where="day = current_date()")'),
    "partitionoverwritemode": ("static", 'overwrite(df, partitions="dynamic")'),
    "datachange": ("true", "optimize()"),
}


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream; `DelvecDataSource` tells what they mean."""

    start: int | Literal["latest"] | None = None
    start_timestamp: str | None = None
    skip_changes: bool = False
    ignore_deletes: bool = False
    change_feed: bool = False
    max_files: int | None = None
    max_bytes: int | None = None


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
    files: Literal["all", "vectored"] = "all"
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream: StreamOptions = StreamOptions()
    allowed_paths: str | None = None


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the checked options of a read; names are case-insensitive.

    >>> parse_options({"path": "/lake/t", "COLUMNS": "id, _pos", "splitbytes": "64m"}).columns
    ('id', '_pos')
    """
    example = 'spark.read.format("delvec").load("/lake/orders")'
    values, storage_options = _parsed(options, _READ | _STREAM, _refuse_option, example)
    names = [each.name for each in fields(StreamOptions) if each.name in values]
    stream = StreamOptions(**{name: values.pop(name) for name in names})
    return _checked(ReadOptions(**values, storage_options=storage_options, stream=stream))


def require_batch(options: ReadOptions) -> None:
    if options.stream != StreamOptions():
        raise InvalidArgumentError(
            "startingVersion, skipChangeCommits, readChangeFeed and the like are for streams",
            hint='use spark.readStream.format("delvec"), or'
            " delvec.DeltaTable.for_path(spark, path).changes(start_version)",
        )


def require_stream(options: ReadOptions) -> None:
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


def names_zone(moment: str) -> bool:
    """Return whether a time contains its zone.

    >>> names_zone("2026-01-31T10:00:00+01:00"), names_zone("2026-01-31 10:00:00")
    (True, False)
    """
    found = parse_time(moment.strip())
    return found is not None and found.tzinfo is not None


def parse_json_filters(text: str, schema: StructType) -> Predicate:
    """Return the predicate of filters such as `[["day", "=", "2026-01-31"], ["price", ">", 1.25]]`.

    >>> from delvec.delta.schema.types import Field, PrimitiveType, StructType
    >>> schema = StructType((Field("price", PrimitiveType("decimal(5,2)")),))
    >>> parse_json_filters('[["price", ">", 1.25]]', schema)
    Comparison(column=('price',), op='>', value=Decimal('1.25'))
    """
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise InvalidArgumentError(f"the option filters is not JSON: {text[:80]!r}") from error
    if _are_leaves(found):
        return parse_filters([_leaf(each, schema) for each in found], schema)
    if isinstance(found, list) and all(map(_are_leaves, found)):
        return parse_filters([[_leaf(each, schema) for each in group] for group in found], schema)
    raise InvalidArgumentError(
        f"the option filters is malformed: {text[:80]!r}",
        hint='write [["id", ">=", 5]], or a list of such lists for OR',
    )


@dataclass(frozen=True)
class WriteSettings:
    """The options of a write; partition columns and properties are of a table that it creates."""

    path: str
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    checked: CheckedOptions = CheckedOptions(max_retries=0)  # noqa: RUF009 - frozen as well
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_write_options(options: Mapping[str, str]) -> WriteSettings:
    """Return the checked options of a write; names are case-insensitive.

    >>> parse_write_options({"path": "/lake/t", "partition_by": "day, hour"}).partition_by
    ('day', 'hour')
    """
    properties = {n: text for n, text in options.items() if n.lower().startswith(_PROPERTY)}
    others = {name: text for name, text in options.items() if name not in properties}
    example = 'df.write.format("delvec").mode("append").save("/lake/orders")'
    values, storage_options = _parsed(others, _WRITE, _refuse_write_option, example)
    path, partition_by = values.pop("path"), values.pop("partition_by", ())
    # No retries: the rows cannot be computed again from here.
    checked = CheckedOptions.of(max_retries=0, **values)
    return WriteSettings(path, partition_by, properties, checked, storage_options)


def _parsed(
    options: Mapping[str, str],
    known: Mapping[str, _Option],
    refuse: Callable[[str, str], None],
    example: str,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of known options by their fields, and the options of the object store."""
    names = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    storage_options = {}
    for given, text in options.items():
        if given.lower().startswith(_STORAGE):
            storage_options[given[len(_STORAGE) :]] = text
        elif name := names.get(given.lower()):
            set_field, parse = known[name]
            value = parse(name, text)
            values[set_field] = values.get(set_field) or value  # two names of one field
        else:
            refuse(given, text)
    values.pop(_NONE, None)
    if not values.get("path"):
        raise InvalidArgumentError("which table? the option path is not set", hint=example)
    return values, storage_options


def _checked(options: ReadOptions) -> ReadOptions:
    if options.version is not None and options.timestamp is not None:
        raise InvalidArgumentError("versionAsOf and timestampAsOf: name one of them")
    if options.stream.start is not None and options.stream.start_timestamp is not None:
        raise InvalidArgumentError("startingVersion and startingTimestamp: name one of them")
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
            raise InvalidArgumentError(
                f"{name}={moment!r} names no zone, and none is known here",
                hint="write 2026-01-31T10:00:00+01:00 or 2026-01-31T09:00:00Z, or set the option"
                ' timeZone to spark.conf.get("spark.sql.session.timeZone")',
            )
    return options


def _refuse_option(name: str, _text: str) -> NoReturn:
    if name.lower() == "paths":
        raise InvalidArgumentError("one table at a time: load(path), not a list of paths")
    if name.lower() in _CATALOG:
        raise UnsupportedFeatureError(
            "Spark does not tell a Python data source where a table of its catalog is",
            feature="CREATE TABLE USING delvec",
            hint="CREATE TEMPORARY VIEW orders USING delvec OPTIONS (path '/lake/orders')",
        )
    raise InvalidArgumentError(
        f'format("delvec") has no option {name!r}, only {", ".join(_public(_READ))} and storage.*',
        hint=did_you_mean(name, _public(_READ | _STREAM), 1),
    )


def _refuse_write_option(name: str, text: str) -> None:
    if name.lower() in _SPARK:
        return
    if name.lower() not in _REFUSED:
        raise InvalidArgumentError(
            f'writing with format("delvec") has no option {name!r}, only'
            f" {', '.join(_public(_WRITE))}, storage.* and delta.*",
            hint=did_you_mean(name, _public(_WRITE), 1),
        )
    harmless, call = _REFUSED[name.lower()]
    if text.strip().lower() != harmless:
        raise UnsupportedFeatureError(
            f'format("delvec") does not write with {name}={text}',
            feature=name,
            hint=f"use delvec.DeltaTable.for_path(spark, path).{call}",
        )


def _public(options: Iterable[str]) -> list[str]:
    """Return the names that errors list: without internal ones, and second spellings."""
    return [name for name in options if "_" not in name]


def _are_leaves(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(each, list) and len(each) == 3 and isinstance(each[1], str) for each in values
    )


def _leaf(value: list[Any], schema: StructType) -> tuple[Any, ...]:
    column, operator, operand = value
    path = (column,) if isinstance(column, str) else tuple(column)
    if len(path) == 1 and path[0] not in schema.names and "." in path[0]:
        path = tuple(path[0].split("."))
    kind = find_column(path, schema)[1]
    if isinstance(operand, list):
        return path, operator, [_in_type(each, kind) for each in operand]
    return path, operator, _in_type(operand, kind)


def _in_type(value: object, kind: pa.DataType) -> object:
    """Return a number as the column's type needs it; JSON numbers are parsed as Decimal."""
    return value if not isinstance(value, Decimal) or pa.types.is_decimal(kind) else float(value)


def _string(_name: str, text: str) -> str:
    return text


def _number(what: str, at_least: int = 0) -> _Parser:
    def parse(name: str, text: str) -> int:
        found = whole_number(text.strip())
        if found is None or found < at_least:
            raise InvalidArgumentError(f"{name} is {what}, not {text!r}")
        return found

    return parse


def _start(name: str, text: str) -> object:
    if text.strip().lower() == "latest":
        return "latest"
    return _number("the number of a version or 'latest'")(name, text)


def _names(name: str, text: str) -> tuple[str, ...]:
    names: Any = [each.strip() for each in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(f"the option {name} is not JSON: {text[:80]!r}") from error
    if not all(isinstance(each, str) and each for each in names):
        raise InvalidArgumentError(
            f"{name} is a list of names, not {text!r}", hint='write id,name or ["id", "name"]'
        )
    return tuple(names)


def _columns(name: str, text: str) -> tuple[str, ...]:
    if found := _names(name, text):
        return found
    raise InvalidArgumentError(f"{name} is a list of names, not {text!r}")


def _one_of(*allowed: str) -> _Parser:
    def parse(name: str, text: str) -> str:
        if text.lower() in allowed:
            return text.lower()
        raise InvalidArgumentError(
            f"there is no {name} {text!r}, only {', '.join(allowed)}",
            hint=did_you_mean(text, allowed, 1),
        )

    return parse


def _size(name: str, text: str) -> int:
    found = size_bytes(text)
    if not found:
        raise InvalidArgumentError(
            f"{name} is a size above 0, not {text!r}", hint="write 64m, or a number of bytes"
        )
    return found


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidArgumentError(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def _limit(parse: _Parser) -> _Parser:
    def parse_if_kept(name: str, text: str) -> object:
        if not HAS_LIMITS:
            raise UnsupportedFeatureError(
                f"{name} cannot be kept: before Spark 4.2, a Python data source is not told where"
                " a batch starts, nor that availableNow wants all that is new",
                feature=name,
                hint="omit it, or use Spark 4.2; tasks read files in parts of splitBytes",
            )
        return parse(name, text)

    return parse_if_kept


def _refused(value: str, why: str, hint: str) -> _Parser:
    def parse(name: str, text: str) -> None:
        if _flag(name, text) == (value == "true"):
            raise UnsupportedFeatureError(why, feature=name, hint=hint)

    return parse


_NONE: Final = ""
_READ: Final[dict[str, _Option]] = {
    "path": ("path", _string),
    "versionAsOf": ("version", _number("the number of a version")),
    "timestampAsOf": ("timestamp", _string),
    "columns": ("columns", _columns),
    "filters": ("filters", _string),
    "view": ("view", _one_of(*get_args(View))),
    "splitBytes": ("split_bytes", _size),
    "timeZone": ("time_zone", _string),
    ALLOWED: ("allowed_paths", _string),
    "_files": ("files", _one_of("all", "vectored")),  # internal
    FOLLOWS: (_NONE, _string),
}
# All options of Delta's source, those that are refused included.
_STREAM: Final[dict[str, _Option]] = {
    "startingVersion": ("start", _start),
    "startingTimestamp": ("start_timestamp", _string),
    "skipChangeCommits": ("skip_changes", _flag),
    "ignoreDeletes": ("ignore_deletes", _flag),
    "ignoreChanges": (
        _NONE,
        _refused(
            "true",
            "ignoreChanges would return unchanged rows of rewritten files again",
            "use skipChangeCommits=true, or readChangeFeed=true to get every change",
        ),
    ),
    "readChangeFeed": ("change_feed", _flag),
    "readChangeData": ("change_feed", _flag),
    "failOnDataLoss": (
        _NONE,
        _refused(
            "false",
            "failOnDataLoss=false would pass over versions whose commits are gone",
            "omit it, and begin again with another checkpoint if versions are gone",
        ),
    ),
    "maxFilesPerTrigger": ("max_files", _limit(_number("a number above 0", 1))),
    "maxBytesPerTrigger": ("max_bytes", _limit(_size)),
}
_WRITE: Final[dict[str, _Option]] = {
    "path": ("path", _string),
    "partitionBy": ("partition_by", _names),
    "partition_by": ("partition_by", _names),
    "txnAppId": ("txn_app_id", _string),
    "txnVersion": ("txn_version", _number("a number")),
    "userMetadata": ("commit_metadata", _string),
}
