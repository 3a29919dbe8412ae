"""Arrow columns of data files, converted to the names and types of the table.

Files are as the table was when they were written: physical names, columns that were dropped or not
yet added, types that were widened since. Nested columns are rebuilt around the same validity
bitmaps and offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from delvec.delta.schema.types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    arrow_type,
)
from delvec.errors import FormatError, UnsupportedFeatureError

FIELD_ID: Final = b"PARQUET:field_id"
_VARIANT: Final = StructType(
    (Field("value", PrimitiveType("binary")), Field("metadata", PrimitiveType("binary")))
)
# Where the old calendar of Spark 2 differs from today's: before the reform of 1582, and by odd
# offsets of time zones before 1900.
_FIRST_SAFE: Final = {"date": -141_427, "timestamp": -2_208_988_800_000_000}


@dataclass(frozen=True, slots=True)
class Conformer:
    """How the columns of one file are found and read."""

    path: str
    by_id: bool = False  # fields are found by their Parquet ids and not by their names
    old_calendar: bool = False  # dates and timestamps were written in the calendar of Spark 2

    def conform(self, array: pa.Array, data_type: DataType, where: str) -> pa.Array:
        """Return an array in exactly `arrow_type(data_type)`."""
        array = _unwrapped(array)
        if types.is_null(array.type):
            return pa.nulls(len(array), arrow_type(data_type))
        if isinstance(data_type, StructType):
            return self._struct(array, data_type, where)
        if isinstance(data_type, ArrayType):
            if not types.is_list(array.type) and _is_list_like(array.type):
                array = array.cast(pa.list_(array.type.value_field))
            self._require(types.is_list, array, data_type, where)
            elements = self.conform(array.values, data_type.element, f"{where}.element")
            return _list_of(elements, arrow_type(data_type), array)
        if isinstance(data_type, MapType):
            return self._map(array, data_type, where)
        if data_type.name == "variant":
            return self._variant(array, where)
        return self._primitive(array, data_type, where)

    def _struct(self, array: pa.Array, data_type: StructType, where: str) -> pa.Array:
        self._require(types.is_struct, array, data_type, where)
        stored = [array.type.field(index) for index in range(array.type.num_fields)]
        children = []
        for field in data_type.fields:
            index = find_field(stored, field, by_id=self.by_id, path=self.path)
            children.append(
                pa.nulls(len(array), arrow_type(field.type))
                if index is None
                else self.conform(array.field(index), field.type, f"{where}.{field.name}")
            )
        return _struct_of(children, arrow_type(data_type), array)

    def _map(self, array: pa.Array, data_type: MapType, where: str) -> pa.Array:
        self._require(types.is_map, array, data_type, where)
        entries, target = array.values, arrow_type(data_type)
        keys = self.conform(entries.field(0), data_type.key, f"{where}.key")
        values = self.conform(entries.field(1), data_type.value, f"{where}.value")
        pairs = pa.Array.from_buffers(
            pa.struct([target.key_field, target.item_field]),
            len(entries),
            [None],
            children=[keys, values],
        )
        return _list_of(pairs, target, array)

    def _variant(self, array: pa.Array, where: str) -> pa.Array:
        variant = PrimitiveType("variant")
        self._require(types.is_struct, array, variant, where)
        names = {array.type.field(index).name for index in range(array.type.num_fields)}
        if "typed_value" in names:
            raise UnsupportedFeatureError(
                f"{self.path} holds a shredded variant in {where}, which delvec does not read",
                feature="variantShredding",
                needed_by=self.path,
            )
        if not names >= {"value", "metadata"}:
            raise self._mismatch(array, variant, where)
        return Conformer(self.path).conform(array, _VARIANT, where)

    def _primitive(self, array: pa.Array, data_type: PrimitiveType, where: str) -> pa.Array:
        target = arrow_type(data_type)
        if array.type != target:
            if not _is_allowed(array.type, target):
                raise self._mismatch(array, data_type, where)
            try:
                array = array.cast(target)
            except pa.ArrowInvalid as error:
                raise FormatError(
                    f"column {where} holds a value that its type cannot hold: {error}",
                    path=self.path,
                    expected=data_type,
                    found=array.type,
                ) from error
        if types.is_string(target):
            try:  # Arrow takes bytes that are no text, and fails whoever looks at them
                array.cast(pa.binary()).cast(pa.string())
            except pa.ArrowInvalid as error:
                raise FormatError(
                    f"column {where} holds a string that is not UTF-8",
                    path=self.path,
                    hint="read the table by to_df(), or without this column",
                ) from error
        if self.old_calendar and data_type.name in _FIRST_SAFE:
            first = pc.min(
                array.view(pa.int32() if data_type.name == "date" else pa.int64())
            ).as_py()
            if first is not None and first < _FIRST_SAFE[data_type.name]:
                raise UnsupportedFeatureError(
                    f"column {where} of {self.path} holds old dates in the calendar of Spark 2,"
                    " which delvec does not read",
                    feature="legacy calendar",
                    needed_by=self.path,
                    hint="rewrite the file with Spark 3 or later",
                )
        return array

    def _require(
        self, test: Callable[[pa.DataType], bool], array: pa.Array, data_type: DataType, where: str
    ) -> None:
        if not test(array.type):
            raise self._mismatch(array, data_type, where)

    def _mismatch(self, array: pa.Array, data_type: DataType, where: str) -> FormatError:
        return FormatError(
            f"column {where} is stored as a type that cannot be read as the table's",
            path=self.path,
            expected=data_type,
            found=array.type,
        )


def find_field(stored: Sequence[pa.Field], wanted: Field, *, by_id: bool, path: str) -> int | None:
    """Return the index of a field, if the file has it: by id, else by physical name as Spark."""
    if by_id:
        number = str(wanted.field_id).encode()
        found = [
            i for i, each in enumerate(stored) if (each.metadata or {}).get(FIELD_ID) == number
        ]
    else:
        name = wanted.physical_name
        found = [i for i, each in enumerate(stored) if each.name == name]
        if not found:
            found = [i for i, each in enumerate(stored) if each.name.lower() == name.lower()]
    if len(found) > 1:
        raise FormatError(
            f"column {wanted.name} is there more than once",
            path=path,
            found=", ".join(stored[index].name for index in found),
        )
    return found[0] if found else None


def has_field_ids(stored: Sequence[pa.Field]) -> bool:
    return any(FIELD_ID in (each.metadata or {}) for each in stored)


def plain_type(stored: pa.DataType) -> pa.DataType:
    """Return the type of values without dictionaries, extensions and large or view layouts."""
    if isinstance(stored, pa.BaseExtensionType):
        return plain_type(stored.storage_type)
    if types.is_dictionary(stored) or types.is_run_end_encoded(stored):
        return plain_type(stored.value_type)
    if types.is_large_string(stored) or types.is_string_view(stored):
        return pa.string()
    if types.is_large_binary(stored) or types.is_binary_view(stored):
        return pa.binary()
    return stored


def _unwrapped(array: pa.Array) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        return _unwrapped(array.storage)
    if types.is_dictionary(array.type):
        return _unwrapped(array.dictionary_decode())
    if types.is_run_end_encoded(array.type):
        return _unwrapped(pc.run_end_decode(array))
    return array


def _is_list_like(stored: pa.DataType) -> bool:
    tests = (types.is_large_list, types.is_fixed_size_list, types.is_list_view)
    return any(test(stored) for test in (*tests, types.is_large_list_view))


def _is_allowed(stored: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether values may be cast: other layouts of one type, and Delta's type widening."""
    if types.is_timestamp(target) and target.tz:
        return bool(types.is_timestamp(stored))  # Spark's INT96 names no zone and means UTC
    is_integer, is_text = types.is_integer(stored), plain_type(stored) in (pa.string(), pa.binary())
    is_local = types.is_timestamp(stored) and stored.tz is None  # an instant is something else
    allowed = (
        (types.is_integer, is_integer),
        (types.is_float64, types.is_float32(stored) or (is_integer and stored.bit_width <= 32)),
        (types.is_decimal, types.is_decimal(stored) or is_integer),
        (types.is_string, is_text),
        (types.is_binary, is_text or types.is_fixed_size_binary(stored)),
        (types.is_date, types.is_date(stored)),
        (types.is_timestamp, types.is_date(stored) or is_local),
    )
    return any(fits and test(target) for test, fits in allowed)


def _struct_of(children: Sequence[pa.Array], target: pa.DataType, like: pa.Array) -> pa.Array:
    """Return a struct of its children, null where `like` is.

    Not by StructArray.from_arrays: it refuses nulls of a required field even where the struct is.
    """
    validity = None
    if like.null_count:
        valid = like.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        target, len(like), [validity], null_count=like.null_count, children=list(children)
    )


def _list_of(elements: pa.Array, target: pa.DataType, like: pa.Array) -> pa.Array:
    """Return lists or maps of all elements, with the offsets and nulls of `like`."""
    if not len(like):
        return pa.nulls(0, target)
    return pa.Array.from_buffers(
        target,
        len(like),
        like.buffers()[:2],
        null_count=like.null_count,
        offset=like.offset,
        children=[elements],
    )
