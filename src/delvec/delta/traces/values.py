"""Values that a condition names, and whether a log mentions them, however they are spelled.

A log holds values of rows: the smallest and largest of each column in a file, partition values,
and conditions of past operations. Which of them belong to matching rows can be told where the
condition compares a column by `=` or `IN`. Texts spell values in SQL, in JSON inside of JSON, in
lines of CSV: what is found may be another value spelled alike; what is not found is not there.

In a redacted report a digest stands for each value: SHA-256 of the table's id, a colon and the
value as a string, its first 32 hexadecimal digits. Who knows the value can compare it. A value that
can be guessed, such as a short number, can be found by trying: a digest is a pseudonym, not
encryption.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.paths import UUID
from delvec.delta.schema.partition_values import parse_partition_value, partition_column
from delvec.delta.schema.traversal import find
from delvec.delta.schema.types import PrimitiveType, StructType, arrow_type
from delvec.delta.skipping.predicate import And, Comparison, In, Or, Predicate, comparable
from delvec.delta.traces.report import TracesReport
from delvec.errors import FormatError

if TYPE_CHECKING:
    from delvec.delta.traces.rows import Reading


# No part of a longer word; letters of an escape before it are no part of it.
_BEFORE: Final = r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
# Literals of SQL have letters for their types.
_AFTER_NUMBER: Final = r"(?:BD|[LSYDF])?(?!\w)"
_LONGEST_PLAIN: Final = 400  # digits: those of any float without an exponent
_QUARTER: Final = timedelta(minutes=15)
_FARTHEST: Final = 14 * 4  # quarters of an hour between a zone's time and UTC
# Of times without a zone.
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_FIRST, _LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
# A shorter value counts next to the name of its column, or in what people write.
_TELLING: Final = 4
# Groups of UUIDs are no values, but for values that are UUIDs.
_UUID: Final = re.compile(UUID)
# What writers put after the beginning of a string to make it an upper bound.
_ENDS: Final = frozenset("\ufffd\U0010ffff\x7f")
# Quoted identifiers stay; strings and numbers are values.
_LITERAL: Final = re.compile(
    r"(?P<name>`[^`]*`)|'(?P<single>(?:[^'\\]|\\.|'')*)'|\"(?P<double>(?:[^\"\\]|\\.|\"\")*)\""
    r"|(?<![\w.])(?P<number>\d[\w.+]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class NamedValues:
    """Values of one column that a condition names."""

    names: tuple[str, ...]  # the column, as users call it and as they did before it was renamed
    # The path to it in statistics; its only part is the key of a partition value.
    physical: tuple[str, ...]
    kind: PrimitiveType
    values: tuple[object, ...]
    time_zone: str  # of partition values that are timestamps without one
    # How many characters of a string the statistics of known writers have at least, or all of it.
    # Others may have fewer.
    prefix: int

    @cached_property
    def probes(self) -> tuple[bytes, ...] | None:
        """Bytes of which one is in every file that mentions a value, whatever escapes it uses.

        None if there are no such bytes.
        """
        found = [self._probe(value).encode() for value in self.values]
        return tuple(found) if all(found) else None

    def _probe(self, value: object) -> str:
        if isinstance(value, str):
            # The last character of a beginning may be another one.
            runs = re.findall(r"[A-Za-z0-9]+", value[: self._shortest(value, _TELLING) - 1])
            return max(runs, key=len, default="")
        is_exact = isinstance(value, int) or type(value) is date
        return str(value) if is_exact and not isinstance(value, bool) else ""

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.kind)

    def _shortest(self, value: str, most: int | None = None) -> int:
        """Return how many characters of a value statistics have at least."""
        prefix = self.prefix if most is None else min(self.prefix, most)
        # Writers in Java count a character beyond the first 65,536 as two.
        is_wide = any(each > "\uffff" for each in value)
        return max(1, prefix // 2 if is_wide else prefix)

    @cached_property
    def _cuttable(self) -> list[str]:
        """The strings of which statistics may have a beginning only, in order."""
        texts = (each for each in self.values if isinstance(each, str))
        return sorted(each for each in texts if len(each) > self._shortest(each, _TELLING))

    def _are_cut(self, found: pa.Array) -> NDArray[np.bool_]:
        """Return which bounds are a beginning of a value, or the next string after it."""
        mask = np.zeros(len(found), dtype=np.bool_)
        texts = self._cuttable
        if not texts:
            return mask
        least = min(self._shortest(each, _TELLING) for each in texts)
        heads = pa.array(sorted({each[: least - 1] for each in texts}), pa.string())
        begins = pc.is_in(pc.utf8_slice_codeunits(found, 0, least - 1), value_set=heads)
        rows = np.flatnonzero(begins.to_numpy(zero_copy_only=False))
        for row, bound in zip(rows.tolist(), found.take(pa.array(rows)).to_pylist(), strict=True):
            if not bound or len(bound) < least:
                continue
            # Whatever begins with a text stands in order right after it.
            first = bisect_left(texts, bound[:-1])
            begun_so = takewhile(lambda each: each.startswith(bound[:-1]), texts[first:])  # noqa: B023
            mask[row] = any(self._is_cut(each, bound) for each in begun_so)
        return mask

    def _is_cut(self, text: str, bound: str) -> bool:
        """Return whether a bound is a text that was cut, of which it has all but the last."""
        if text.startswith(bound) or len(bound) > len(text):
            return len(bound) < len(text)
        # One more than a text is another value as well: it counts where writers are known to cut.
        is_next = ord(bound[-1]) == ord(text[len(bound) - 1]) + 1 and len(bound) < len(text)
        is_usual = len(text) > self._shortest(text) and len(bound) >= self._shortest(text)
        return bound[-1] in _ENDS or is_next or is_usual

    def among(self, found: pa.Array, *, cut: bool = True) -> NDArray[np.bool_]:
        """Return which bounds of statistics are one of the values, or its beginning.

        Writers cut timestamps to milliseconds, and strings after some characters; a character more
        makes a beginning the upper bound, or the last one is another.
        """
        values = comparable(self.values, found.type)
        if values is None:
            return np.zeros(len(found), dtype=np.bool_)
        if pa.types.is_timestamp(found.type):
            found, values = (pc.floor_temporal(x, unit="millisecond") for x in (found, values))
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
        except FormatError:  # one of them is not a value of the type: each by itself
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

    def is_in_text(self, text: str, *, is_written: bool = False) -> bool:
        """Return whether a text has one of the values; a short one next to its column's name.

        Where people write, a short one counts without that name as well.
        """
        plain = _UUID.sub(" ", text)
        for value, patterns in self._spelled.items():
            shown = str(value)
            where = text if _UUID.search(shown) else plain
            if any(pattern.search(where) for pattern in patterns) and (
                is_written or len(shown) >= _TELLING or self._name.search(text)
            ):
                return True
        return False

    def is_in_free_text(self, text: str) -> bool:
        """Return whether a text has one of the values, or its beginning as statistics have it."""
        patterns = (pattern for each in self._spelled.values() for pattern in each)
        return any(pattern.search(text) for pattern in (*patterns, *self._cut))

    @cached_property
    def _name(self) -> re.Pattern[str]:
        names = {*(name.rpartition(".")[2] for name in self.names), self.physical[-1]}
        either = "|".join(begun(spelled(each), whole=True) for each in sorted(names))
        return re.compile(either, re.IGNORECASE)

    @cached_property
    def _spelled(self) -> dict[object, list[re.Pattern[str]]]:
        is_single = self.kind.name == "float"
        return {each: patterns_of(each, is_single=is_single) for each in self.values}

    @cached_property
    def _cut(self) -> list[re.Pattern[str]]:
        texts = (each for each in self._cuttable if len(each) > self._shortest(each))
        beginnings = (each[: self._shortest(each) - 1] for each in texts)
        return [re.compile(begun(spelled(each), whole=False)) for each in beginnings if each]


def named_values(
    readings: Sequence[Reading], schemas: Sequence[StructType], time_zone: str, prefix: int
) -> tuple[tuple[NamedValues, ...], bool]:
    """Return the values that a condition names, for every column that a name ever stood for.

    And whether all of them can be searched for. The schemas are those that the table ever had.
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
            named = NamedValues(
                _names(column, physical, schemas), physical, kind, values, time_zone, prefix
            )
            found.setdefault((physical, kind, tuple(map(repr, values))), named)
            is_whole = is_whole and named.has_spelling
    return tuple(found.values()), is_whole and bool(found)


def _names(
    column: tuple[str, ...], physical: tuple[str, ...], schemas: Sequence[StructType]
) -> tuple[str, ...]:
    found = (find(schema, physical, physical=True) for schema in schemas)
    former = (".".join(each.name for each in path) for path in found if path)
    return tuple(dict.fromkeys((".".join(column), *former)))


def is_judged(predicate: Predicate) -> bool:
    """Return whether every row that matches has one of the values that a condition names."""
    match predicate:
        case And(children):
            return any(map(is_judged, children))
        case Or(children):
            return bool(children) and all(map(is_judged, children))
    return is_plain(predicate)


def is_plain(predicate: Predicate) -> bool:
    """Return whether every row that has one of the values matches, whatever else it has."""
    match predicate:
        case Or(children):
            return bool(children) and all(map(is_plain, children))
        case Comparison(_, op, _):
            return op in ("=", "<=>")
    return isinstance(predicate, In)


def patterns_of(value: object, *, is_single: bool = False) -> list[re.Pattern[str]]:
    """Return patterns of which one is in every text that has a value; none if nobody knows them."""
    if isinstance(value, str):
        return [re.compile(begun(spelled(value), whole=True))] if value else []
    if isinstance(value, datetime):
        return [re.compile(_moment(value))]
    if isinstance(value, date):
        return [re.compile(begun([str(value), str(value).replace("-", "")], whole=True))]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return []
    if not math.isfinite(value):
        return []
    numbers = {Decimal(repr(value)) if isinstance(value, float) else Decimal(value)}
    if is_single:
        numbers.add(Decimal(str(np.float32(float(value)))))
    return [re.compile(_number(each), re.IGNORECASE) for each in sorted(numbers)]


def begun(texts: Collection[str], *, whole: bool) -> str:
    """Return a regular expression for texts where a word begins, and ends if it is a whole one."""
    either = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return rf"{_BEFORE}(?:{either})" + (r"(?!\w)" if whole else "")


def spelled(value: str) -> set[str]:
    """Return how SQL, JSON, JSON inside of JSON, and names of files write a string.

    >>> sorted(spelled("a=b"))
    ['a%3Db', 'a=b']
    """
    # SQL doubles quotes or escapes them.
    found = {value, value.replace("'", "''"), value.replace("'", "\\'")}
    found |= {value.replace('"', '""'), value.replace("\\", "\\\\").replace("'", "\\'")}
    for _ in range(2):
        found |= {
            json.dumps(each, ensure_ascii=ascii_only)[1:-1]
            for each in found
            for ascii_only in (True, False)
        }
    return found | {quote(value, safe="", errors="replace"), quote(value, errors="replace")}


def _number(number: Decimal) -> str:
    """Return a regular expression for a number, in plain form or with an exponent.

    >>> all(re.fullmatch(_number(Decimal("1.5")), x) for x in ("1.5", "1.50", "15e-1", "1.5e0"))
    True
    """
    # Arithmetic of decimals would round to 28 digits.
    _, digits, exponent = number.as_tuple()
    shown = "".join(map(str, digits)).lstrip("0")
    text = shown.rstrip("0")
    power = int(exponent) + len(shown) - len(text)
    if not text:
        return rf"(?:{_BEFORE}-?|-)(?:0+(?:\.0*)?|\.0+)(?:e[+-]?\d+)?{_AFTER_NUMBER}"
    forms = []
    if abs(power) <= _LONGEST_PLAIN:
        whole, _, fraction = f"{number.copy_abs():f}".partition(".")
        fraction, whole = fraction.rstrip("0"), whole.lstrip("0")
        forms.append(rf"0*{whole}\.{fraction}0*" if fraction else rf"0*{whole}(?:\.0*)?")
    for point in range(1, len(text) + 1):
        moved = power + len(text) - point
        sign = "-" if moved < 0 else r"\+?"
        rest = rf"\.{text[point:]}0*" if text[point:] else r"(?:\.0*)?"
        forms.append(rf"{text[:point]}{rest}e{sign}0*{abs(moved)}")
    # A sign may stand after a letter; without it, other numbers are found too.
    return rf"(?:{_BEFORE}-?|-)(?:{'|'.join(forms)}){_AFTER_NUMBER}"


def _moment(value: datetime) -> str:
    """Return a regular expression for a time: in any zone if it has one, or since 1970.

    Fractions of a second are not compared, since writers cut them.
    """
    local = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    reach = _FARTHEST if value.tzinfo else 0
    # Years that Python does not have are out of reach.
    last, first = (_LAST - local) // _QUARTER, (local - _FIRST) // _QUARTER
    offsets = range(-min(reach, first), min(reach, last) + 1)
    minutes = [local + offset * _QUARTER for offset in offsets]
    shown = "|".join(rf"{each:%m-%d}(?:[ T+]|%20){each:%H}(?::|%3A){each:%M}" for each in minutes)
    years = "|".join(sorted({f"{each.year:04}" for each in minutes}))
    is_whole = not local.second and not local.microsecond
    seconds = rf"(?:(?::|%3A){local.second:02})" + ("?" if is_whole else "")
    since = (local - _EPOCH) // timedelta(microseconds=1)
    units = (1, 1_000, 1_000_000)
    epochs = "|".join(f"{abs(since) // each}|{-(-abs(since) // each)}" for each in units)
    return rf"(?:{years})-(?:{shown}){seconds}|{_BEFORE}-?(?:{epochs})(?!\w)"


def _equalities(predicate: Predicate) -> Iterator[tuple[tuple[str, ...], tuple[object, ...]]]:
    match predicate:
        case And(children) | Or(children):
            for each in children:
                yield from _equalities(each)
        case Comparison(column, "=" | "<=>", value):
            yield column, (value,)
        case In(column, values):
            yield column, values


@dataclass
class Redaction:
    """Digests of values, and texts without these values."""

    table_id: str | None
    _digests: dict[str, str] = field(default_factory=dict)

    def digest(self, value: object) -> str:
        text = str(value)
        found = sha256(f"{self.table_id}:{text}".encode(errors="replace")).hexdigest()[:32]
        return self._digests.setdefault(text, f"sha256:{found}")

    def sql(self, condition: str) -> str:
        """Return a condition in SQL with digests for its literals."""

        def shown(match: re.Match[str]) -> str:
            if match["name"] is not None:
                return match[0]
            found = next(each for each in match.groups()[1:] if each is not None)
            quote = match[0][0]
            return self.digest(found.replace(quote * 2, quote) if quote in "'\"" else found)

        return _LITERAL.sub(shown, condition)

    def report(self, report: TracesReport, condition: Callable[[Redaction], str]) -> TracesReport:
        """Return a report without the values of its condition, in the names of files neither."""
        told = condition(self)
        texts = {text: digest for text, digest in self._digests.items() if text}
        forms = {form: texts[text] for text in texts for form in spelled(text)}
        pattern = re.compile(begun(forms, whole=True)) if forms else None

        def plain(text: str) -> str:
            return pattern.sub(lambda match: forms[match[0]], text) if pattern else text

        places = tuple(
            replace(each, path=plain(each.path), detail=plain(each.detail))
            for each in report.places
        )
        notes = tuple(note if plain(note) == note else plain(note) for note in report.notes)
        return replace(report, condition=told, places=places, notes=notes)
