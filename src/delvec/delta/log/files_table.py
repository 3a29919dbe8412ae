"""The live files of a version as an Arrow table: one row with all that the log holds of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.schema.walk import walk

if TYPE_CHECKING:
    from delvec.delta.log.file_set import FileSet

__all__ = ["files_table"]


def files_table(files: FileSet, *, statistics: bool = True) -> pa.Table:
    """Return one row for each live file.

    Columns: `path` (decoded), `partition_values`, `size`, `modified`, `row_count` (physical rows),
    `deleted_rows`, `vector` (its kind: u, p or i), `vector_bytes`, `tight_bounds`, and a struct
    `statistics` with `null_count`, `minimum` and `maximum` of each column that has any.
    """
    vector = files.vectors
    count = len(files)
    tight = files.statistic(("tightBounds",), pa.bool_())
    columns: dict[str, Any] = {
        "path": files.paths,
        "partition_values": _partition_values(files),
        "size": pa.array(files.sizes),
        "modified": pa.array(files.modification_times).cast(pa.timestamp("ms", "UTC")),
        "row_count": files.row_counts,
        "deleted_rows": pa.array(files.deleted_rows),
        "vector": pc.struct_field(vector, "storageType"),
        "vector_bytes": pc.struct_field(vector, "sizeInBytes"),
        "tight_bounds": pa.nulls(count, pa.bool_()) if tight is None else tight,
    }
    if statistics:
        columns["statistics"] = _statistics(files)
    return pa.table(columns)


def _partition_values(files: FileSet) -> pa.Array:
    """Return the partition values of the log under their logical names."""
    fields = files.metadata.partition_fields
    names = pa.array([field.name for field in fields] * len(files), pa.string())
    rows = zip(*(files.partition_strings(f.physical_name).to_pylist() for f in fields), strict=True)
    texts = pa.array([text for row in rows for text in row], pa.string())
    offsets = pa.array(range(0, len(names) + 1, max(1, len(fields))), pa.int32())
    if not fields:
        offsets = pa.array([0] * (len(files) + 1), pa.int32())
    return pa.MapArray.from_arrays(offsets, names, texts)


def _statistics(files: FileSet) -> pa.StructArray:
    found = {}
    for path in walk(files.metadata.schema, structs_only=True):
        kind = path[-1].type
        if not isinstance(kind, PrimitiveType) or kind.name in ("variant", "void"):
            continue
        physical, data_type = tuple(each.physical_name for each in path), arrow_type(kind)
        values = {
            "null_count": files.statistic(("nullCount", *physical), pa.int64()),
            "minimum": files.statistic(("minValues", *physical), data_type),
            "maximum": files.statistic(("maxValues", *physical), data_type),
        }
        known = {name: value for name, value in values.items() if value is not None}
        known = {n: v for n, v in known.items() if v.null_count < len(v)}
        if known:
            column = pa.StructArray.from_arrays(list(known.values()), list(known))
            found[".".join(each.name for each in path)] = column
    if not found:
        return pa.nulls(len(files), pa.struct([]))
    return pa.StructArray.from_arrays(list(found.values()), list(found))
