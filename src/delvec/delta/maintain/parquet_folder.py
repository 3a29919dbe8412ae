"""A folder of Parquet files as a table: its files, their partition values and columns.

Partition values are in the names of folders, as Hive and Spark write them: `day=2024-01-31/`.
Files of Spark hold their schema themselves. For others, the types are those of Spark's converter:
unsigned integers get the next larger type, INT96 is a timestamp. What Delta or Spark have no type
for is refused by name. All columns are nullable. Memory grows by some 500 bytes for each file.

Where a streaming query has written the folder, the log of Spark's file sink says what counts.
`_spark_metadata/` has a file for each batch, named by its number. Every tenth, by default, is
`9.compact`, which has the entries of all batches up to its own. The first line is a version, each
other one a file: `{"path": "file:///lake/t/part-0.parquet", "size": 9, ..., "action": "add"}`.
Files that no batch names are those of attempts that failed. Spark reads none of them; their rows
would be there twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from delvec import errors
from delvec.delta.log.paths import LOG
from delvec.delta.schema.partition_values import folder_values, parse_partition_value, shared_text
from delvec.delta.schema.traversal import map_fields, nullable
from delvec.delta.schema.types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    parse_schema,
)
from delvec.delta.vacuum.candidates import table_of
from delvec.documents import parse_json, whole_number
from delvec.parquet.readable import readable
from delvec.report.format import format_count
from delvec.report.hints import Wording, call, format_hint
from delvec.storage import Storage
from delvec.storage.backend import FileInfo, locate, locate_decoded
from delvec.storage.parallel import gather

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
_PHYSICAL: Final = {
    "BOOLEAN": "boolean",
    "INT32": "integer",
    "INT64": "long",
    "INT96": "timestamp",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BYTE_ARRAY": "binary",
    "FIXED_LEN_BYTE_ARRAY": "binary",
}
_LOGICAL: Final = {"String": "string", "Enum": "string", "JSON": "string", "BSON": "binary"}
_INTEGERS: Final = {
    (8, True): "byte",
    (16, True): "short",
    (32, True): "integer",
    (64, True): "long",
    (8, False): "short",
    (16, False): "integer",
    (32, False): "long",
    (64, False): "decimal(20,0)",
}
_REFUSED: Final = {
    "Time": ("a time of day", "cast it to a string, or to a number of microseconds"),
    "UUID": ("a UUID", "cast it to a string"),
    "Float16": ("a number of 16 bits", "cast it to float"),
    "Interval": ("an interval", "cast it to a number of microseconds"),
    "Null": ("of no type: all of it is null", "cast it to the type that its values would have"),
}
_NANOSECONDS: Final = (
    "a timestamp in nanoseconds",
    "write the files again with microseconds: coerce_timestamps='us' of pyarrow and pandas",
)
_MOST_DIGITS: Final = 38
# Parquet stores them in the same way, so that one file can be read as any of them.
_WIDTHS: Final = {"byte": 0, "short": 1, "integer": 2}
SINK_LOG: Final = "_spark_metadata"
_COMPACT: Final = ".compact"
_VERSION: Final = "v1"
_HINT: Final = (
    "read the folder with Spark and append the rows to a new table; without a whole log nobody can"
    " tell which files are part of it"
)


def data_files(storage: Storage) -> tuple[list[FileInfo], list[str]]:
    """List the data files of a folder, without hidden and empty ones, and tell what is left out.

    Of the target of a stream these are the files that its log names, as Spark reads them.
    """
    found, notes = [], []
    for info in storage.list(recursive=True):
        *folders, name = info.key.split("/")
        _require_plain(storage, folders, name)
        # Empty ones are markers of folders in object stores.
        if info.size and not _is_hidden(folders, name):
            found.append(info)
    committed = committed_keys(storage)
    if committed is not None:
        listed, found = found, [info for info in found if info.key in committed]
        if gone := sorted({*committed}.difference(info.key for info in found)):
            raise errors.ObjectNotFoundError(  # its rows would be missing
                f"{format_count(len(gone), 'file')} that the log of the stream names"
                f" {'is' if len(gone) == 1 else 'are'} not in {storage.root}: {gone[0]}",
                uri=storage.uri_of(gone[0]),
                hint="restore what is gone from a copy; Spark cannot read the folder either",
            )
        left = format_count(len(listed) - len(found), "file")
        notes.append(f"the files are those that the log of a stream names; left out: {left}")
    if not found:
        raise errors.TableNotFoundError(
            f"there are no Parquet files in {storage.root}",
            table=storage.root,
            hint=format_hint("is the path right? {} makes an empty table", call("create")),
        )
    return found, notes


def partition_folders(
    keys: Sequence[str], partition_by: object, root: str
) -> tuple[tuple[Field, ...], list[tuple[str | None, ...]]]:
    """Return the partition columns in the order of the folders, and their values for each file."""
    names, kinds = _asked(partition_by)
    found, like = [_pairs(key) for key in keys], "the table"
    if names is None:
        names, like = tuple(name for name, _ in found[0]) if found else (), keys[0]
    for key, pairs in zip(keys, found, strict=True):
        has = tuple(name for name, _ in pairs)
        if [name.lower() for name in has] != [name.lower() for name in names]:
            raise errors.InvalidArgumentError(
                f"{key} in {root} is {_shown(has)}, by its folders, and {like} is {_shown(names)}",
                hint=format_hint(
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
        for text in {value for value in column if value is not None}:
            try:
                parse_partition_value(text, field.type)
            except errors.FormatError as error:  # noqa: PERF203 - for distinct values only
                raise errors.InvalidArgumentError(
                    f"the folder {field.name}={text} of {root} has a value that is no {field.type}",
                    hint=f"give another type: partition_by={{'{field.name}': 'string'}}",
                ) from error
    spelled = [
        tuple(shared_text([text], field.type) for field, text in zip(fields, row, strict=True))
        for row in values
    ]
    return fields, spelled


def file_schema(footer: pq.FileMetaData, path: str) -> StructType:
    written = (footer.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata")
    if written is not None:
        try:
            parsed = parse_schema(written.decode())
        except errors.UnsupportedFeatureError as error:
            error.message = f"{error.message} (in {path})"
            error.needed_by = path
            raise
        except ValueError as error:
            raise errors.FormatError(
                "the schema that Spark left is unreadable", path=path
            ) from error
        return map_fields(nullable(parsed), _plain)
    with readable(path, "the schema is unreadable"):
        stored = footer.schema.to_arrow_schema()
    leaves = (footer.schema.column(index) for index in range(len(footer.schema)))
    fields = [Field(each.name, _type(each.type, leaves, each.name, path)) for each in stored]
    return StructType(tuple(fields))


def merged(
    schema: StructType, more: StructType, path: str, where: tuple[str, ...] = ()
) -> StructType:
    """Return the columns of both schemas: of the first in its order, then the others."""
    by_name = {field.name.lower(): field for field in more.fields}
    fields = [
        replace(field, type=_merged(field.type, twin.type, (*where, field.name), path))
        if (twin := by_name.pop(field.name.lower(), None))
        else field
        for field in schema.fields
    ]
    return StructType((*fields, *by_name.values()))


def _is_hidden(folders: Sequence[str], name: str) -> bool:
    """Return whether Delta ignores a file; folders of partitions may begin with anything."""
    return name.startswith(("_", ".")) or any(
        each.startswith(("_", ".")) and "=" not in each for each in folders
    )


def _require_plain(storage: Storage, folders: Sequence[str], name: str) -> None:
    """Refuse folders of formats in which not every file is live: deleted rows would come back."""
    what, where = "", storage.root
    if inner := table_of("/".join([*folders, name])):
        what = "a Delta table" if LOG in folders else "an Iceberg table"
        where = where if folders == ["metadata"] else storage.uri_of(inner)
    elif ".hoodie" in folders:
        what = "a Hudi table"
    elif SINK_LOG in folders and folders != [SINK_LOG]:
        what = f"the target of a stream, whose log in {SINK_LOG} tells which files count"
    if what:
        raise errors.UnsupportedFeatureError(
            f"{storage.root} cannot be converted: {where} is {what}",
            feature=what,
            needed_by=storage.root,
            hint=format_hint(
                "rows that are deleted there would come back: copy the rows to a new table by {},"
                " or move what is not a part of the table elsewhere",
                call("append"),
            ),
        )


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
    raise errors.InvalidArgumentError(
        f"partition_by is a mapping from columns to primitive types, or a list of columns, not"
        f" {partition_by!r}",
        hint="such as partition_by={'day': 'date', 'shop': 'int'}",
    )


def _pairs(key: str) -> list[tuple[str, str | None]]:
    """Return the partition columns and values that the folders of a file name."""
    for part in key.split("/")[:-1]:
        name, sign, text = part.partition("=")
        if not sign:
            continue
        if not name or not text:
            raise errors.InvalidArgumentError(
                f"the folder {part!r} of {key} has no partition column, or no value",
                hint="move the folder elsewhere",
            )
        if _NOT_ASCII.search(part):
            raise errors.InvalidArgumentError(
                f"the folder {part!r} of {key} can be read in two ways: Spark takes each %xx for a"
                " character, others for a byte of UTF-8",
                hint="rename the folder: letters beyond ASCII stand as they are in names of"
                " partitions, as in city=K\u00f6ln",
            )
    return folder_values(key)


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
    raise errors.InvalidArgumentError(
        f"the type of the partition column {name} of {root} cannot be told: {example} may be meant"
        " as one of several",
        hint=f"name it: partition_by={{'{name}': 'string'}}",
    )


def _plain(field: Field) -> Field:
    """Return a field without what its metadata says of another table."""
    kept = {key: value for key, value in field.metadata.items() if key == "comment"}
    return replace(field, metadata=kept)


def _type(stored: pa.DataType, leaves: Iterator[Any], where: str, path: str) -> DataType:
    if isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if types.is_struct(stored):
        fields = [
            Field(each.name, _type(each.type, leaves, f"{where}.{each.name}", path))
            for each in stored
        ]
        return StructType(tuple(fields))
    if types.is_map(stored):
        key = _type(stored.key_type, leaves, f"{where}.key", path)
        return MapType(key, _type(stored.item_type, leaves, f"{where}.value", path))
    if types.is_nested(stored):
        return ArrayType(_type(stored.value_type, leaves, f"{where}.element", path))
    return PrimitiveType(_primitive(next(leaves), where, path))


def _primitive(column: Any, where: str, path: str) -> str:  # noqa: ANN401
    logical = json.loads(column.logical_type.to_json())
    kind = logical["Type"]
    if kind in ("None", "Undefined"):
        return _PHYSICAL[column.physical_type]
    if kind == "Int":
        return _INTEGERS[logical["bitWidth"], logical["isSigned"]]
    if kind == "Date":
        return "date"
    if kind == "Decimal" and logical["precision"] <= _MOST_DIGITS:
        return f"decimal({logical['precision']},{logical['scale']})"
    if kind == "Timestamp" and logical["timeUnit"] != "nanoseconds":
        return "timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz"
    if kind in _LOGICAL:
        return _LOGICAL[kind]
    shown, hint = _REFUSED.get(kind, (f"of the type {kind}", "cast it to another type"))
    if kind == "Timestamp":
        shown, hint = _NANOSECONDS
    elif kind == "Decimal":
        shown = f"a decimal of {logical['precision']} digits"
    raise errors.UnsupportedFeatureError(
        f"column {where} of {path} is {shown}, which Delta tables do not have",
        feature=kind,
        needed_by=path,
        hint=hint,
    )


def _merged(kind: DataType, other: DataType, where: tuple[str, ...], path: str) -> DataType:
    if isinstance(kind, StructType) and isinstance(other, StructType):
        return merged(kind, other, path, where)
    if isinstance(kind, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(kind.element, other.element, (*where, "element"), path))
    if isinstance(kind, MapType) and isinstance(other, MapType):
        key = _merged(kind.key, other.key, (*where, "key"), path)
        return MapType(key, _merged(kind.value, other.value, (*where, "value"), path))
    if kind == other:
        return kind
    both = (str(kind), str(other))
    if all(name in _WIDTHS for name in both):
        return PrimitiveType(max(both, key=lambda name: _WIDTHS[name]))
    raise errors.InvalidArgumentError(
        f"column {'.'.join(where)} is {other} in {path}, and {kind} in files before it",
        hint="write these files again with one type, or move them elsewhere",
    )


def committed_keys(storage: Storage) -> frozenset[str] | None:
    """Return the keys of the files that a stream has committed; None if it is no stream's target.

    Lists the log, and reads the newest compacted batch and those after it.
    """
    listed = {info.key.rpartition("/")[2] for info in storage.list(SINK_LOG)}
    batches = {whole_number(name.removesuffix(_COMPACT)): name for name in sorted(listed)}
    numbers = [number for number in batches if number is not None]
    if not listed:
        return None
    whole = [number for number in numbers if batches[number].endswith(_COMPACT)]
    needed = range(max(whole, default=0), max(numbers, default=-1) + 1)
    missing = next((number for number in needed if number not in batches), None)
    if missing is not None:
        raise errors.FormatError(
            "a batch of the stream's log is missing",
            path=storage.uri_of(f"{SINK_LOG}/{missing}"),
            expected=f"batches {needed[0]} to {needed[-1]}",
            found="no file",
            hint=_HINT,
        )
    read = gather(lambda number: list(_keys(storage, f"{SINK_LOG}/{batches[number]}")), needed)
    return frozenset(key for keys in read for key in keys)


def _keys(storage: Storage, batch: str) -> Iterator[str]:
    uri, home = storage.uri_of(batch), f"{locate(storage.root).name}/"
    version, *lines = storage.read(batch).decode("utf-8", "replace").rstrip("\n").split("\n")
    if version != _VERSION:
        raise errors.FormatError(
            "a batch of the stream's log has another form",
            path=uri,
            expected=f"{_VERSION} in the first line",
            found=repr(version[:60]),
            hint=_HINT,
        )
    for line in lines:
        entry = parse_json(line, "an entry of the stream's log", path=uri)
        named = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(named, str) or entry.get("action") != "add":
            raise errors.FormatError(
                "an entry of the stream's log adds no file",
                path=uri,
                found=repr(line[:100]),
                hint=_HINT,
            )
        name = locate_decoded(unquote(named)).name
        if not name.startswith(home):
            raise errors.FormatError(
                "the stream's log names a file outside of the folder, as after it was moved",
                path=uri,
                expected=f"a file below {storage.root}",
                found=named,
                hint=_HINT,
            )
        yield name[len(home) :]
