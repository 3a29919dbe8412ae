"""Values that a condition names, and whether a log mentions them.

A log holds values of rows: the smallest and largest of each column in a file, partition values,
and conditions of past operations. Which of them belong to matching rows can be told where the
condition compares a column by `=` or `IN`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.maintain.traces.spellings import begun, patterns_of, spelled
from delvec.delta.pruning.literals import comparable
from delvec.delta.pruning.predicate import And, Comparison, In, Or
from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.partition_values import parse_partition_value, partition_column
from delvec.delta.schema.types import PrimitiveType
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from delvec.delta.maintain.traces.rows import Reading
    from delvec.delta.pruning.predicate import ColumnPath, Predicate

__all__ = ["NamedValues", "is_judged", "is_plain", "named_values"]

# Statistics hold this many characters of a string, at most one more to mark a cut.
_PREFIX: Final = 32
# A shorter string, or a number, is taken as a value only next to the name of its column.
_TELLING: Final = 4


def is_judged(predicate: Predicate) -> bool:
    """Return whether every row that matches has one of the values that a condition names."""
    match predicate:
        case And(children):
            return any(map(is_judged, children))
        case Or(children):
            return bool(children) and all(map(is_judged, children))
        case Comparison(_, op, _):
            return op in ("=", "<=>")
        case In():
            return True
        case _:
            return False


def is_plain(predicate: Predicate) -> bool:
    """Return whether every row that has one of the values matches, whatever else it has."""
    match predicate:
        case Or(children):
            return bool(children) and all(map(is_plain, children))
        case Comparison(_, op, _):
            return op in ("=", "<=>")
        case In():
            return True
        case _:
            return False


def _equalities(predicate: Predicate) -> Iterator[tuple[ColumnPath, tuple[object, ...]]]:
    match predicate:
        case And(children) | Or(children):
            for each in children:
                yield from _equalities(each)
        case Comparison(column, "=" | "<=>", value):
            yield column, (value,)
        case In(column, values):
            yield column, values
        case _:
            return


@dataclass(frozen=True)
class NamedValues:
    """Values of one column that a condition names.

    Attributes:
        name: The column, as users call it.
        physical: The path to it in statistics; its only part is the key of a partition value.
        kind: Its type.
        values: The values.
        time_zone: Of partition values that are timestamps without one.
        prefix: How many characters of a string statistics have at least, or all of it.
    """

    name: str
    physical: tuple[str, ...]
    kind: PrimitiveType
    values: tuple[object, ...]
    time_zone: str = "UTC"
    prefix: int = _PREFIX

    @cached_property
    def probes(self) -> tuple[bytes, ...] | None:
        """Bytes of which one is in every file that mentions a value, whatever escapes it uses.

        None if there are no such bytes.
        """
        found = []
        for value in self.values:
            if isinstance(value, str):
                # The last character of a beginning may be another one.
                runs = re.findall(r"[A-Za-z0-9]+", value[: self._shortest(value) - 1])
                text = max(runs, key=len, default="")
            else:
                is_exact = isinstance(value, int) or type(value) is date
                text = str(value) if is_exact and not isinstance(value, bool) else ""
            if not text:
                return None
            found.append(text.encode())
        return tuple(found)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the column."""
        return arrow_type(self.kind)

    def _shortest(self, value: str) -> int:
        """Return how many characters of a value statistics have at least."""
        # Writers in Java count a character beyond the first 65,536 as two.
        is_wide = any(each > "\uffff" for each in value)
        return max(1, self.prefix // 2 if is_wide else self.prefix)

    @cached_property
    def _cuttable(self) -> list[str]:
        """The strings of which statistics may have a beginning only, in order."""
        texts = (each for each in self.values if isinstance(each, str))
        return sorted(each for each in texts if len(each) > self._shortest(each))

    def _are_cut(self, found: pa.Array) -> NDArray[np.bool_]:
        """Return which bounds are a beginning of a value, but for one character at their end."""
        mask = np.zeros(len(found), dtype=np.bool_)
        texts = self._cuttable
        if not texts:
            return mask
        least = min(map(self._shortest, texts))
        heads = pa.array(sorted({each[: least - 1] for each in texts}), pa.string())
        begins = pc.is_in(pc.utf8_slice_codeunits(found, 0, least - 1), value_set=heads)
        rows = np.flatnonzero(begins.to_numpy(zero_copy_only=False))
        for row, bound in zip(rows.tolist(), found.take(pa.array(rows)).to_pylist(), strict=True):
            # Whatever begins with a text stands in order right after it.
            place = bisect_left(texts, bound[:-1]) if bound and len(bound) >= least else len(texts)
            mask[row] = place < len(texts) and texts[place].startswith(bound[:-1])
        return mask

    def among(self, found: pa.Array, *, cut: bool = True) -> NDArray[np.bool_]:
        """Return which bounds of statistics are one of the values, or its beginning.

        Writers cut timestamps to milliseconds, and strings after some characters; a character more
        makes a beginning the upper bound, or the last one is another.

        Args:
            found: The bounds.
            cut: Whether strings may be cut.
        """
        values = comparable(self.values, found.type)
        if values is None:
            return np.zeros(len(found), dtype=np.bool_)
        if pa.types.is_timestamp(found.type):
            found, values = _to_milliseconds(found), _to_milliseconds(values)
        found = found if found.type == values.type else found.cast(values.type)
        same = pc.is_in(found, value_set=values)
        if cut and pa.types.is_string(found.type):
            same = pc.or_(same, pa.array(self._are_cut(found)))
        mask: NDArray[np.bool_] = pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        return mask

    def among_partitions(self, texts: pa.Array) -> NDArray[np.bool_]:
        """Return which partition values, as the log writes them, are one of the values."""
        try:
            return self.among(partition_column(texts, self.kind, self.time_zone), cut=False)
        except FormatError:  # one of them is no value of the type: each by itself
            return np.array([self.is_partition(text) for text in texts.to_pylist()], np.bool_)

    def is_partition(self, text: str | None) -> bool:
        """Return whether one partition value, as a log or a folder writes it, is among them."""
        try:
            value = parse_partition_value(text, self.kind, self.time_zone)
        except FormatError:
            return False
        return value is not None and bool(self.among(pa.array([value], self.arrow), cut=False)[0])

    @property
    def has_spelling(self) -> bool:
        """Whether it is known how texts spell each of the values."""
        return all(self._spelled.values())

    def is_in_text(self, text: str) -> bool:
        """Return whether a text names one of the values, as the condition of an operation does."""
        return any(
            pattern.search(text)
            and ((isinstance(value, str) and len(value) >= _TELLING) or self._name.search(text))
            for value, patterns in self._spelled.items()
            for pattern in patterns
        )

    def is_in_free_text(self, text: str) -> bool:
        """Return whether a text has one of the values, or its beginning as statistics have it."""
        patterns = (pattern for each in self._spelled.values() for pattern in each)
        return any(pattern.search(text) for pattern in (*patterns, *self._cut))

    @cached_property
    def _name(self) -> re.Pattern[str]:
        names = {self.name.rpartition(".")[2], self.physical[-1]}
        return re.compile("|".join(begun(spelled(each), whole=True) for each in sorted(names)))

    @cached_property
    def _spelled(self) -> dict[object, list[re.Pattern[str]]]:
        is_single = self.kind.name == "float"
        return {each: patterns_of(each, is_single=is_single) for each in self.values}

    @cached_property
    def _cut(self) -> list[re.Pattern[str]]:
        texts = [each for each in self.values if isinstance(each, str)]
        return [
            re.compile(begun(spelled(text[: self._shortest(text) - 1]), whole=False))
            for text in texts
            if len(text) > self._shortest(text) > 1
        ]


def _to_milliseconds(moments: pa.Array) -> pa.Array:
    return pc.floor_temporal(moments, unit="millisecond")


def named_values(
    readings: Sequence[Reading], time_zone: str, prefix: int = _PREFIX
) -> tuple[tuple[NamedValues, ...], bool]:
    """Return the values that a condition names, for every column that a name ever stood for.

    Args:
        readings: How the condition reads files.
        time_zone: Of partition values that are timestamps without one.
        prefix: How many characters of strings statistics have at least.

    Returns:
        The values, and whether all of them can be searched for.
    """
    found: dict[Any, NamedValues] = {}
    is_whole = True
    for reading in readings:
        paths = {tuple(each.name for each in path): path for path in reading.columns}
        for column, compared in _equalities(reading.predicate):
            fields = paths.get(column)
            kind = fields[-1].type if fields else None
            if fields is None or not isinstance(kind, PrimitiveType):
                is_whole = False
                continue
            physical = tuple(each.physical_name for each in fields)
            values = compared
            if fields[0].char_width is not None:  # files and logs have them without the padding
                values += tuple(str(each).rstrip(" ") for each in compared)
            named = NamedValues(".".join(column), physical, kind, values, time_zone, prefix)
            found.setdefault((physical, kind, tuple(map(repr, values))), named)
            is_whole = is_whole and named.has_spelling
    return tuple(found.values()), is_whole and bool(found)
