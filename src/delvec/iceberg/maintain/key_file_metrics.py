"""Counts and bounds of the keys in an equality-delete file, compared with those of its manifest.

Planners skip a delete whose bounds or null counts exclude the keys of a data file: wrong ones make
deleted rows reappear.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.iceberg.deletes.key_columns import FIELD_ID, arrow_type
from delvec.vector.bitmap import Bitmap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow.parquet as pq

    from delvec.iceberg.client.delete_files import EqualityDeleteFile

__all__ = ["KeyFileMetrics", "columns_by_id", "inner_ids", "stores"]

_BATCH: Final = 1 << 20  # keys
_UNORDERED: Final = ("uuid", "float", "double")  # engines compare them in different ways


@dataclass(frozen=True)
class KeyFileMetrics:
    """What the keys of a file are.

    Attributes:
        types: Iceberg's type of each key column, by field id.
        nulls: Null values by field id.
        lowest: The lowest value by field id, in a form that compares as Iceberg does.
        highest: The highest value.
        numbers: The keys as numbers, if they were asked for.
    """

    types: Mapping[int, str]
    nulls: Mapping[int, int]
    lowest: Mapping[int, Any]
    highest: Mapping[int, Any]
    numbers: Bitmap

    @classmethod
    def of(
        cls,
        parquet: pq.ParquetFile,
        file: EqualityDeleteFile,
        types: Mapping[int, str | None],
        *,
        has_numbers: bool,
    ) -> KeyFileMetrics:
        """Return the metrics of an open file, read in batches of a million keys.

        Args:
            parquet: The file, with columns that are of their types.
            file: Its manifest entry.
            types: Iceberg's type of each key column, by field id.
            has_numbers: Whether the keys are wanted as numbers, too.
        """
        kinds = {field_id: kind for field_id, kind in types.items() if kind is not None}
        nulls: dict[int, int] = dict.fromkeys(file.equality_ids, 0)
        lowest: dict[int, Any] = {}
        highest: dict[int, Any] = {}
        numbers = Bitmap()
        columns = columns_by_id(parquet.schema_arrow)
        names = [columns[field_id].name for field_id in file.equality_ids]
        for batch in parquet.iter_batches(_BATCH, columns=names):
            for field_id, name in zip(file.equality_ids, names, strict=True):
                values = batch.column(name)
                nulls[field_id] += values.null_count
                if has_numbers:
                    numbers |= _numbers(values)
                if len(values) == values.null_count or kinds[field_id] in _UNORDERED:
                    continue
                low, high = _extremes(values)
                lowest[field_id] = min(lowest.get(field_id, low), low)
                highest[field_id] = max(highest.get(field_id, high), high)
        return cls(kinds, nulls, lowest, highest, numbers)

    @property
    def has_null_keys(self) -> bool:
        """Whether some value is null."""
        return any(self.nulls.values())

    def problems(self, file: EqualityDeleteFile) -> Iterator[str]:
        """Yield how the manifest entry of the file is wrong."""
        for field_id, count in self.nulls.items():
            expected = file.null_counts.get(field_id, count)
            if count != expected:
                yield (
                    f"the number of null keys differs, of field id {field_id}: expected {expected},"
                    f" found {count}"
                )
        for field_id, low in self.lowest.items():
            bound = _bound(file.lower.get(field_id), self.types[field_id])
            if bound is not None and low < bound:
                yield _outside("lower", field_id, bound, low)
        for field_id, high in self.highest.items():
            bound = _bound(file.upper.get(field_id), self.types[field_id])
            if bound is not None and high > bound:
                yield _outside("upper", field_id, bound, high)


def columns_by_id(schema: pa.Schema) -> dict[int, pa.Field]:
    """Return the columns of a Parquet file by field id; those inside of structs are omitted."""
    return {number: field for field in schema if (number := _field_id(field)) is not None}


def inner_ids(schema: pa.Schema) -> set[int]:
    """Return the field ids of columns inside of structs of a Parquet file."""
    found: set[int] = set()
    below = [inner for field in schema for inner in _inside(field)]
    while below:
        field = below.pop()
        if (number := _field_id(field)) is not None:
            found.add(number)
        below += _inside(field)
    return found


def stores(have: pa.DataType, kind: str) -> bool:
    """Tell whether a column of a Parquet file can be read as an Iceberg type.

    >>> stores(pa.int32(), "long"), stores(pa.string(), "long")
    (True, False)
    """
    if isinstance(have, pa.BaseExtensionType):
        have = have.storage_type
    if kind in ("float", "double"):
        return bool(have == pa.float32() or (kind == "double" and have == pa.float64()))
    try:
        wanted = arrow_type(kind)
    except KeyError:
        return False
    if have == wanted:
        return True
    if pa.types.is_decimal(wanted):
        return bool(
            pa.types.is_decimal(have)
            and have.scale == wanted.scale
            and have.precision <= wanted.precision
        )
    if pa.types.is_timestamp(wanted):
        is_same_kind = pa.types.is_timestamp(have) and (have.tz is None) == (wanted.tz is None)
        return bool(is_same_kind and have.unit == wanted.unit)
    others = {"long": [pa.int32()], "string": [pa.string()], "binary": [pa.binary()]}
    return have in others.get(kind, [])


def _field_id(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(FIELD_ID.encode())
    return None if number is None else int(number)


def _inside(field: pa.Field) -> list[pa.Field]:
    return list(field.type) if pa.types.is_struct(field.type) else []


def _numbers(values: pa.Array) -> Bitmap:
    """Return what a vector can hold of some keys."""
    plain = _plain(values)
    if not pa.types.is_integer(plain.type):
        return Bitmap()
    plain = plain.drop_null().cast(pa.int64())
    return Bitmap(plain.filter(pc.greater_equal(plain, 0)).to_numpy())


def _plain(values: pa.Array) -> pa.Array:
    """Return values in a type whose order is Iceberg's: numbers, bytes or decimals."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    return values.cast(pa.large_binary()) if pa.types.is_large_string(kind) else values


def _extremes(values: pa.Array) -> tuple[Any, Any]:
    found = pc.min_max(_plain(values))
    return found["min"].as_py(), found["max"].as_py()


def _bound(stored: bytes | None, kind: str) -> Any:  # noqa: ANN401
    """Return a bound of a manifest in the form of `_plain`; None if there is none."""
    if stored is None or kind in _UNORDERED:
        return None
    if kind in ("string", "binary") or kind.startswith("fixed"):
        return stored
    if kind == "boolean":
        return stored != b"\0"
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").partition(",")[2])
        number = int.from_bytes(stored, "big", signed=True)
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    return int.from_bytes(stored, "little", signed=True)


def _outside(which: str, field_id: int, bound: object, found: object) -> str:
    return (
        f"its keys are outside of the {which} bound of field id {field_id}, and planners skip"
        f" them: expected {bound!r}, found {found!r}"
    )
