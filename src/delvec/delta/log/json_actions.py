"""Actions in JSON, as commits, compacted commits and v2 checkpoints hold them.

One action to a line. Those of data files are read as Arrow columns, with no Python object each;
the others (protocol, metadata, transactions, ...) are few and become dictionaries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.json as pj

from delvec.delta.log.action_columns import VECTOR
from delvec.documents import is_plain, parse_json
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["JsonActions", "adds_schema"]

_BLOCK: Final = 8 << 20
# Where a line begins whose action is not one of a data file.
_OTHER: Final = re.compile(rb'^[ \t]*\{(?![ \t]*"(?:add|remove|cdc)"[ \t]*:[ \t]*\{)', re.MULTILINE)


def adds_schema(partition_names: Sequence[str]) -> pa.Schema:
    """Return the columns of added files; partition values are strings."""
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


def _action_schema(partition_names: Sequence[str]) -> pa.Schema:
    """Return the fields that are read of `add` and `remove`."""
    add = [*adds_schema(partition_names), pa.field("stats", pa.string())]
    remove = [("path", pa.string()), ("deletionVector", VECTOR)]
    return pa.schema([("add", pa.struct(add)), ("remove", pa.struct(remove))])


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
            line = self.data[start : end if end >= 0 else len(self.data)]
            yield self._parsed(line, start)

    def table(self, partition_names: Sequence[str]) -> pa.Table:
        """Return the columns `add` and `remove`, one row for each line; null for other actions."""
        return self.columns(_action_schema(partition_names))

    def columns(self, schema: pa.Schema) -> pa.Table:
        """Return the fields of actions that a schema names, one row for each line."""
        if not self.data.strip():
            return schema.empty_table()
        if not is_plain(self.data):  # other engines read the first document of a line alone
            self._find_damage()
        try:
            found = pj.read_json(
                pa.BufferReader(self.data),
                read_options=pj.ReadOptions(block_size=max(_BLOCK, self._longest_line + 1)),
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
        for start, line in self._lines:
            yield self._parsed(line, start)

    @property
    def line_count(self) -> int:
        """How many lines there are, as rows of `table`."""
        return len(self._lines)

    def action(self, row: int) -> dict[str, Any]:
        """Return the whole action of one row of `table`."""
        start, line = self._lines[row]
        return self._parsed(line, start)

    @cached_property
    def _lines(self) -> list[tuple[int, bytes]]:
        lines, start = [], 0
        for line in self.data.split(b"\n"):
            if line.strip():
                lines.append((start, line))
            start += len(line) + 1
        return lines

    @property
    def _longest_line(self) -> int:
        if len(self.data) <= _BLOCK:
            return len(self.data)
        return max(len(line) for _, line in self._lines)

    def _find_damage(self) -> None:
        """Raise for the first line that is not JSON, which Arrow's error names by row only."""
        for start, line in self._lines:
            self._parsed(line, start)

    def _parsed(self, line: bytes, start: int) -> dict[str, Any]:
        try:
            action = parse_json(line, "a line of the log")
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
