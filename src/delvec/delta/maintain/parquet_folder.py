"""A folder of Parquet files: which files it has, and their partition values.

The values are in the names of folders, as Hive and Spark write them: `day=2024-01-31/`. Memory
grows with the files, some 500 bytes each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.log.segment import LOG
from delvec.delta.schema.parse import parse_schema
from delvec.delta.schema.partition_values import HIVE_NULL, parse_partition_value
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.report.wordings import Wording, call, worded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delvec.storage import Storage
    from delvec.storage.counts import FileInfo

__all__ = ["PartitionFolders", "data_files", "partition_folders"]

_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_NOT_ASCII: Final = re.compile(r"%[89A-Fa-f][0-9A-Fa-f]")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LIKE_A_NUMBER: Final = re.compile(r"[+-]?\.?[0-9].*")
_NOT_A_WORD: Final = re.compile(r"true|false|nan|[+-]?inf(inity)?", re.IGNORECASE)
_ALIASES: Final = {
    "int": "integer",
    "bigint": "long",
    "smallint": "short",
    "tinyint": "byte",
    "bool": "boolean",
}


@dataclass(frozen=True)
class PartitionFolders:
    """The partition columns of a folder, and the values of its files.

    Attributes:
        fields: The columns with their types, in the order of the folders.
        values: For each file its values in this order, None for null.
    """

    fields: tuple[Field, ...]
    values: Sequence[tuple[str | None, ...]]


def data_files(storage: Storage) -> list[FileInfo]:
    """List the data files of a folder, without hidden and empty ones.

    Raises:
        TableNotFoundError: There are none.
        UnsupportedFeatureError: It is a table of another format, or has one inside.
    """
    found = []
    for info in storage.list(recursive=True):
        *folders, name = info.key.split("/")
        _require_plain(storage, folders, name)
        # Empty ones are markers of folders in object stores.
        if info.size and not _is_hidden(folders, name):
            found.append(info)
    if not found:
        raise TableNotFoundError(
            f"there are no Parquet files in {storage.root}",
            table=storage.root,
            hint=worded("is the path right? {} makes an empty table", call("create")),
        )
    return found


def _is_hidden(folders: Sequence[str], name: str) -> bool:
    """Return whether Delta ignores a file; folders of partitions may begin with anything."""
    return name.startswith(("_", ".")) or any(
        each.startswith(("_", ".")) and "=" not in each for each in folders
    )


def _require_plain(storage: Storage, folders: Sequence[str], name: str) -> None:
    """Refuse folders of formats in which not every file is live: deleted rows would come back."""
    what, where = "", storage.root
    if folders[:1] == ["metadata"] and name.endswith(".metadata.json"):
        what = "an Iceberg table"
    elif ".hoodie" in folders:
        what = "a Hudi table"
    elif "_spark_metadata" in folders:
        what = "the target of a stream, whose log in _spark_metadata tells which files count"
    elif LOG in folders[1:]:
        what, where = "a Delta table", storage.uri_of("/".join(folders[: folders.index(LOG)]))
    if what:
        raise UnsupportedFeatureError(
            f"{storage.root} cannot be converted: {where} is {what}",
            feature=what,
            needed_by=storage.root,
            hint=worded(
                "rows that are deleted there would come back: copy the rows to a new table by {},"
                " or move what is no part of the table elsewhere",
                call("append"),
            ),
        )


def partition_folders(keys: Sequence[str], partition_by: object, root: str) -> PartitionFolders:
    """Read the partition values of files from the names of their folders.

    Args:
        keys: The files, relative to the root.
        partition_by: The columns: a mapping from names to types, a `StructType`, or names alone,
            whose types are inferred; None infers the names as well.
        root: The folder, for errors.

    Raises:
        InvalidArgumentError: A file has other partition columns, a value does not fit its type, or
            a type cannot be inferred for sure.
    """
    names, kinds = _asked(partition_by)
    found, like = [_pairs(key) for key in keys], "the table"
    if names is None:
        names, like = tuple(name for name, _ in found[0]) if found else (), keys[0]
    for key, pairs in zip(keys, found, strict=True):
        has = tuple(name for name, _ in pairs)
        if [name.lower() for name in has] != [name.lower() for name in names]:
            raise InvalidArgumentError(
                f"{key} in {root} is {_shown(has)}, by its folders, and {like} is {_shown(names)}",
                hint=worded(
                    "{} names the columns in the order of the folders; move files that are no part"
                    " of the table elsewhere",
                    Wording("partition_by={'day': 'date'}", "--partition-by day=date"),
                ),
            )
    values = [tuple(value for _, value in pairs) for pairs in found]
    columns = list(zip(*values, strict=True)) if names and values else [() for _ in names]
    fields = tuple(
        Field(name, kinds.get(name) or _inferred(name, column, root))
        for name, column in zip(names, columns, strict=True)
    )
    for field, column in zip(fields, columns, strict=True):
        _require_values(field, column, root)
    return PartitionFolders(fields, values)


def _asked(partition_by: object) -> tuple[tuple[str, ...] | None, dict[str, PrimitiveType]]:
    """Return the names of the columns, None to infer them, and the types that are given."""
    if partition_by is None:
        return None, {}
    if isinstance(partition_by, Mapping):
        fields: list[dict[str, Any]] = [
            {"name": str(name), "type": _ALIASES.get(str(kind), str(kind))}
            for name, kind in partition_by.items()
        ]
        partition_by = parse_schema(json.dumps({"type": "struct", "fields": fields}))
    if isinstance(partition_by, StructType):
        given = {each.name: each.type for each in partition_by.fields}
        plain = {name: kind for name, kind in given.items() if isinstance(kind, PrimitiveType)}
        if len(plain) == len(given):
            return partition_by.names, plain
    elif isinstance(partition_by, list | tuple) and all(isinstance(n, str) for n in partition_by):
        return tuple(partition_by), {}
    raise InvalidArgumentError(
        f"partition_by is a mapping from columns to primitive types, or a list of columns, not"
        f" {partition_by!r}",
        hint="such as partition_by={'day': 'date', 'shop': 'int'}",
    )


def _pairs(key: str) -> list[tuple[str, str | None]]:
    """Return the partition columns and values that the folders of a file name."""
    pairs: list[tuple[str, str | None]] = []
    for part in key.split("/")[:-1]:
        name, sign, text = part.partition("=")
        if not sign:
            continue
        if not name or not text:
            raise InvalidArgumentError(
                f"the folder {part!r} of {key} has no partition column, or no value",
                hint="move the folder elsewhere",
            )
        if _NOT_ASCII.search(part):
            raise InvalidArgumentError(
                f"the folder {part!r} of {key} can be read in two ways: Spark takes each %xx for a"
                " character, others for a byte of UTF-8",
                hint="rename the folder: letters beyond ASCII stand as they are in names of"
                " partitions, as in city=K\u00f6ln",
            )
        value = _unescaped(text)
        pairs.append((_unescaped(name), None if value == HIVE_NULL else value))
    return pairs


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _shown(names: Sequence[str]) -> str:
    return f"partitioned by {', '.join(names)}" if names else "not partitioned"


def _inferred(name: str, values: Iterable[str | None], root: str) -> PrimitiveType:
    """Return the one type that values can be meant to have: numbers, dates, or words."""
    texts = {value for value in values if value is not None}
    if texts and all(map(_INTEGER.fullmatch, texts)):
        highest = max(abs(int(text)) for text in texts)
        if highest < 1 << 63:
            return PrimitiveType("integer" if highest < 1 << 31 else "long")
    elif texts and all(map(_DAY.fullmatch, texts)):
        return PrimitiveType("date")
    doubtful = sorted(
        text for text in texts if _LIKE_A_NUMBER.fullmatch(text) or _NOT_A_WORD.fullmatch(text)
    )
    if texts and not doubtful:
        return PrimitiveType("string")
    example = f"{doubtful[0]!r}, for example," if doubtful else "null, its only value,"
    raise InvalidArgumentError(
        f"the type of the partition column {name} of {root} cannot be told: {example} may be meant"
        " as one of several",
        hint=f"name it: partition_by={{'{name}': 'string'}}",
    )


def _require_values(field: Field, values: Iterable[str | None], root: str) -> None:
    for text in {value for value in values if value is not None}:
        try:
            parse_partition_value(text, field.type)
        except FormatError as error:  # noqa: PERF203 - for distinct values only
            raise InvalidArgumentError(
                f"the folder {field.name}={text} of {root} has a value that is no {field.type}",
                hint=f"give another type: partition_by={{'{field.name}': 'string'}}",
            ) from error
