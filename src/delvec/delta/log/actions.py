"""Actions of commits, compacted commits and v2 checkpoints in JSON, one to a line.

Those of data files become Arrow columns in the types of checkpoints, with no Python object each,
but for adds with tags, whose names are free. The others (protocol, metadata, transactions, domains)
are few and become dictionaries. A file is read at once: memory grows with its actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.documents import is_plain, parse_json
from delvec.errors import FormatError, add_location

Kind = Literal["add", "remove", "cdc"]
STRING_MAP: Final = pa.map_(pa.string(), pa.string())
_BLOCK: Final = 8 << 20
# Where a line begins whose action is not one of a data file.
_OTHER: Final = re.compile(rb'^[ \t]*\{(?![ \t]*"(?:add|remove|cdc)"[ \t]*:[ \t]*\{)', re.MULTILINE)


def _vector_type(number: pa.DataType) -> pa.DataType:
    return pa.struct(
        [
            ("storageType", pa.string()),
            ("pathOrInlineDv", pa.string()),
            ("offset", number),
            ("sizeInBytes", number),
            ("cardinality", pa.int64()),
        ]
    )


# Descriptors are read with room for numbers that are too large, which are refused by name later.
VECTOR: Final = _vector_type(pa.int64())
# Checkpoints hold both numbers in 32 bits, as delta-spark reads them.
_STORED_VECTOR: Final = _vector_type(pa.int32())
ADD: Final = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", STRING_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", STRING_MAP),
        ("deletionVector", _STORED_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)
REMOVE: Final = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", STRING_MAP),
        ("size", pa.int64()),
        ("deletionVector", _STORED_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
_CDC: Final = pa.struct(
    [("path", pa.string()), ("partitionValues", STRING_MAP), ("size", pa.int64())]
)
TYPES: Final[Mapping[Kind, pa.DataType]] = {"add": ADD, "remove": REMOVE, "cdc": _CDC}
_TAGGED: Final = re.compile(rb'"tags"\s*:\s*\{\s*"')


@dataclass
class JsonActions:
    """The actions of one file.

    >>> actions = JsonActions("0.json", b'{"txn":{"appId":"a","version":1}}')
    >>> list(actions.others())
    [{'txn': {'appId': 'a', 'version': 1}}]
    """

    uri: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not self.data.isascii():
            try:
                self.data.decode()
            except UnicodeDecodeError as error:
                raise self._damaged(error.start, "not UTF-8") from error

    def others(self) -> Iterator[dict[str, Any]]:
        """Yield the actions that are not of data files, as dictionaries."""
        for found in _OTHER.finditer(self.data):
            start = found.start()
            end = self.data.find(b"\n", start)
            yield self._parsed(start, self.data[start : end if end >= 0 else len(self.data)])

    def table(self, partition_names: Sequence[str]) -> pa.Table:
        """Return the columns `add` and `remove`, one row for each line; null for other actions."""
        add = [*adds_schema(partition_names), pa.field("stats", pa.string())]
        remove = [("path", pa.string()), ("deletionVector", VECTOR)]
        return self.columns(pa.schema([("add", pa.struct(add)), ("remove", pa.struct(remove))]))

    def columns(self, schema: pa.Schema) -> pa.Table:
        if not self.data.strip():
            return schema.empty_table()
        if not is_plain(self.data):  # other engines read the first document of a line alone
            self._find_damage()
        is_small = len(self.data) < _BLOCK
        longest = 0 if is_small else max(len(line) for _, line in self._lines)
        try:
            found = pj.read_json(
                pa.BufferReader(self.data),
                read_options=pj.ReadOptions(block_size=max(_BLOCK, longest + 1)),
                parse_options=pj.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid as error:
            self._find_damage()
            raise FormatError(
                f"an action has a field of the wrong type ({error})", path=self.uri
            ) from error
        lines = self.data.count(b"\n") + (not self.data.endswith(b"\n"))
        if found.num_rows != lines and len(self._lines) != found.num_rows:  # some may be empty
            raise self._damaged(0, f"{found.num_rows} objects in {self.line_count} lines")
        return found

    def all_actions(self) -> Iterator[dict[str, Any]]:
        """Yield all actions, each as a dictionary; for single commits."""
        return (self._parsed(*each) for each in self._lines)

    def actions_with(self, probes: Sequence[bytes] | None) -> Iterator[dict[str, Any]]:
        """Yield the actions whose lines have one of some bytes, or all; fractions are strings."""
        for start, line in self._lines:
            if probes is None or any(each in line for each in probes):
                yield self._parsed(start, line, parse_float=str)

    @property
    def line_count(self) -> int:
        """How many lines there are, as rows of `table`."""
        return len(self._lines)

    def action(self, row: int) -> dict[str, Any]:
        return self._parsed(*self._lines[row])

    @cached_property
    def _lines(self) -> list[tuple[int, bytes]]:
        lines, start = [], 0
        for line in self.data.split(b"\n"):
            if line.strip():
                lines.append((start, line))
            start += len(line) + 1
        return lines

    def _find_damage(self) -> None:
        """Raise for the first line that is not JSON, which Arrow's error names by row only."""
        for each in self._lines:
            self._parsed(*each)

    def _parsed(
        self, start: int, line: bytes, parse_float: Callable[[str], Any] | None = None
    ) -> dict[str, Any]:
        try:
            action = parse_json(line, "a line of the log", parse_float=parse_float)
        except FormatError as error:
            # Not the line itself: it may be one of a private file that a link leads to.
            raise self._damaged(start, str(error.found)) from error
        if not isinstance(action, dict):
            raise self._damaged(start, f"a {type(action).__name__}")
        return action

    def _damaged(self, offset: int, found: str) -> FormatError:
        return FormatError(
            "a line of the log is damaged",
            path=self.uri,
            offset=offset,
            expected="one action as a JSON object",
            found=found,
            hint="restore the file from a copy; the versions before it can still be read",
        )


@dataclass
class TableActions:
    """The newest small action of each kind; files are replayed newest first."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str | None] = field(default_factory=dict)

    def replay(self, actions: Iterable[dict[str, Any]], uri: str) -> list[str]:
        """Take what is not known yet from the actions of one file; return the sidecars it names."""
        sidecars = []
        # Inside a file the last wins, should there be two.
        for action in reversed(list(actions)):
            with add_location(uri):
                if (value := _object(action, "protocol")) and self.protocol is None:
                    self.protocol = Protocol.from_json(value)
                if (value := _object(action, "metaData")) and self.metadata is None:
                    self.metadata = Metadata.from_json(value)
                if value := _object(action, "txn", appId=str, version=int):
                    self.transactions.setdefault(value["appId"], value["version"])
                if value := _object(action, "domainMetadata", domain=str):
                    text = None if value.get("removed") else value.get("configuration")
                    if not isinstance(text, str | None):
                        raise FormatError("the configuration of a domain is not a text")
                    self.domains.setdefault(value["domain"], text)
                if value := _object(action, "sidecar", path=str):
                    sidecars.append(value["path"])
        return sidecars

    def required(self, table: str) -> tuple[Protocol, Metadata]:
        """Return the protocol and the metadata, which every table must have."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metaData"
            raise FormatError(
                f"the log of {table} has no {missing}",
                path=table,
                expected=f"one {missing} action in the first commit or the checkpoint",
            )
        return self.protocol, self.metadata


def read_state_change(actions: JsonActions) -> tuple[Protocol | None, Metadata | None]:
    """Return the protocol and the metadata that one commit sets, None for what it does not set."""
    state = TableActions()
    state.replay(actions.others(), actions.uri)
    return state.protocol, state.metadata


def from_json(
    actions: JsonActions, kind: Kind, partition_names: Sequence[str]
) -> tuple[pa.StructArray, NDArray[np.int64]]:
    """Return all actions of one kind in a file of the log, in its order, and the line of each.

    Partition values are those of the table's current partition columns.
    """
    read = [field for field in TYPES[kind] if field.type != STRING_MAP]
    if partition_names:
        strings = pa.struct([(name, pa.string()) for name in partition_names])
        read.append(pa.field("partitionValues", strings))
    schema = pa.schema([(kind, pa.struct(read))])
    column = actions.columns(schema).column(kind).combine_chunks()
    lines = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    found = column.take(lines)
    fields: dict[str, Any] = {field.name: pc.struct_field(found, [field.name]) for field in read}
    fields["partitionValues"] = _partition_values(found, fields, partition_names)
    if kind == "add" and _TAGGED.search(actions.data):
        tags = [actions.action(int(line))[kind].get("tags") for line in lines]
        fields["tags"] = pa.array([tag and list(tag.items()) for tag in tags], STRING_MAP)
    there = [field for field in TYPES[kind] if field.name in fields]
    whole = pa.StructArray.from_arrays([fields[f.name] for f in there], fields=there)
    return conform_struct(whole, TYPES[kind]), lines


def from_json_of_all(
    files: Sequence[JsonActions], kind: Kind, partition_names: Sequence[str]
) -> tuple[pa.StructArray, NDArray[np.int64]]:
    """Return all actions of one kind in some files of the log, and the number of the file of each.

    Parsed together: one takes milliseconds, however small it is.
    """
    whole = JsonActions(files[0].uri, b"\n".join(each.data for each in files))
    try:
        found, lines = from_json(whole, kind, partition_names)
    except FormatError:
        for each in files:  # for the error to name the right file
            from_json(each, kind, partition_names)
        raise
    return found, np.repeat(np.arange(len(files)), [each.line_count for each in files])[lines]


def adds_schema(partition_names: Sequence[str]) -> pa.Schema:
    columns = [
        ("path", pa.string()),
        ("deletionVector", VECTOR),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
    ]
    if partition_names:
        values = pa.struct([(name, pa.string()) for name in partition_names])
        columns.append(("partitionValues", values))
    return pa.schema(columns)


def conform_struct(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values of a checkpoint to one type; a struct there may have more fields or fewer."""
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    there = {field.name for field in values.type}
    arrays = [
        conform_struct(pc.struct_field(values, [field.name]), field.type)
        if field.name in there
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    # Some writers have a struct of nulls where there is no vector. A vector that lacks a field is
    # none of these: it is damaged, and without it deleted rows would be read.
    absent = reduce(pc.and_, (each.is_null() for each in arrays))
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=absent)


def _partition_values(
    found: pa.StructArray, fields: Mapping[str, pa.Array], names: Sequence[str]
) -> pa.MapArray:
    rows, width = len(found), len(names)
    if not width:
        none = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array([0] * (rows + 1), pa.int32()), none, none)
    values = fields["partitionValues"]
    columns = pa.concat_arrays([pc.struct_field(values, [name]) for name in names])
    by_row = np.arange(rows * width).reshape(width, rows).T.ravel()
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    keys = pa.array(list(names), pa.string()).take(pa.array(np.tile(np.arange(width), rows)))
    return pa.MapArray.from_arrays(offsets, keys, columns.take(by_row), mask=values.is_null())


def _object(action: dict[str, Any], name: str, **needed: type) -> dict[str, Any] | None:
    """Return the body of an action of one kind, with all needed fields; None for other kinds."""
    value = action.get(name)
    if value is None:
        return None
    if not isinstance(value, dict) or not all(_is(value.get(key), needed[key]) for key in needed):
        raise FormatError(
            f"a {name} action is damaged",
            expected=f"an object with {', '.join(needed)}" if needed else "an object",
            found=repr(value)[:60],
        )
    return value


def _is(value: object, kind: type) -> bool:
    return type(value) is kind and (not isinstance(value, int) or abs(value) < 1 << 63)
