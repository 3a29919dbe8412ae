"""Whole adds and removes as Arrow columns, in the types that checkpoints hold them in.

A commit is read at once: memory grows with its actions. Those with tags, whose names are free, cost
one dictionary each; all others none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.json_actions import JsonActions

__all__ = ["ADD", "REMOVE", "STRING_MAP", "TYPES", "VECTOR", "Kind", "conform_struct", "from_json"]

Kind = Literal["add", "remove", "cdc"]

STRING_MAP: Final = pa.map_(pa.string(), pa.string())


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


def conform_struct(values: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    """Cast a struct of a checkpoint, which may have more fields or fewer, to one type.

    Raises:
        pa.ArrowInvalid: A field has a type that does not fit.
    """
    there = {field.name for field in values.type}
    arrays = [
        _fitted(pc.struct_field(values, [field.name]), field.type)
        if field.name in there
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    # Some writers have a struct of nulls where there is no vector; its first field is null then.
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=arrays[0].is_null())


def _fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return conform_struct(values, kind) if pa.types.is_struct(kind) else values.cast(kind)


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
