"""The options of `df.write` and `df.writeStream.format("delvec")`: strings from Spark, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NoReturn

from delvec.delta.write.options import CheckedOptions
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WriteSettings", "parse_write_options"]

_NAMES: Final = ("path", "partitionBy", "txnAppId", "txnVersion", "userMetadata")
_SPELLINGS: Final = {"partition_by": "partitionBy"}
_STORAGE: Final = "storage."
_PROPERTY: Final = "delta."
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
class WriteSettings:
    """The options of a write.

    Attributes:
        path: The table.
        partition_by: The partition columns of a table that is created.
        properties: Its properties.
        checked: The transaction of a batch write, and the string for the history.
        storage_options: Keys and endpoints of the object store.
    """

    path: str
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    checked: CheckedOptions = CheckedOptions(max_retries=0)  # noqa: RUF009 - frozen as well
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_write_options(options: Mapping[str, str]) -> WriteSettings:
    """Return the checked options of a write; names are case-insensitive.

    >>> parse_write_options({"path": "/lake/t", "partition_by": "day, hour"}).partition_by
    ('day', 'hour')

    Raises:
        InvalidArgumentError: An option is unknown, or its value is invalid.
        UnsupportedFeatureError: Only `DeltaTable` writes that way.
    """
    known = {name.lower(): name for name in _NAMES} | _SPELLINGS
    given: dict[str, str] = {}
    properties, storage_options = {}, {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(_STORAGE):
            storage_options[name[len(_STORAGE) :]] = value
        elif lower.startswith(_PROPERTY):
            properties[name] = value
        elif lower in known:
            given[known[lower]] = value
        elif lower in _REFUSED:
            _refuse(name, value)
        elif lower not in _SPARK:
            _refuse_unknown(name)
    if not given.get("path"):
        raise InvalidArgumentError(
            "which table? the option path is not set",
            hint='df.write.format("delvec").mode("append").save("/lake/orders")',
        )
    return WriteSettings(
        given["path"],
        _names(given.get("partitionBy")),
        properties,
        CheckedOptions.of(
            max_retries=0,  # the rows cannot be computed again from here
            commit_metadata=given.get("userMetadata"),
            txn_app_id=given.get("txnAppId"),
            txn_version=_number(given.get("txnVersion")),
        ),
        storage_options,
    )


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names: Any = [name.strip() for name in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(f"partitionBy is not JSON: {text[:80]!r}") from error
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidArgumentError(
            f"partitionBy is a list of names, not {text!r}", hint='write day,hour or ["day"]'
        )
    return tuple(names)


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise InvalidArgumentError(f"txnVersion is a number, not {text!r}")
    return int(text)


def _refuse(name: str, value: str) -> None:
    harmless, call = _REFUSED[name.lower()]
    if harmless is not None and value.strip().lower() == harmless:
        return
    raise UnsupportedFeatureError(
        f'format("delvec") does not write with {name}={value}',
        feature=name,
        hint=f"use delvec.DeltaTable.for_path(spark, path).{call}",
    )


def _refuse_unknown(name: str) -> NoReturn:
    lower = {known.lower(): known for known in _NAMES}
    near = get_close_matches(name.lower(), lower, 1)
    raise InvalidArgumentError(
        f'writing with format("delvec") has no option {name!r}, only {", ".join(_NAMES)},'
        " storage.* and delta.*",
        hint=f"did you mean {lower[near[0]]!r}?" if near else None,
    )
