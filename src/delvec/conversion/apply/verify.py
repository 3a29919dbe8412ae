"""Holding the target against the source, on a snapshot that nobody sees yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote as url_unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from delvec.conversion.planning.target_files import hold
from delvec.errors import VerificationError
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import rows_of
from delvec.identifiers import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from delvec.conversion.planning.target_files import Holdings
    from delvec.iceberg.client.commit import Staged

__all__ = ["verify_counts", "verify_rows", "verify_total"]

_SHOWN: Final = 5
_HINT: Final = (
    "the target still holds what it held before; please report this with the plan of the conversion"
)


def verify_counts(staged: Staged, expected: Holdings, paths: pa.Array | None) -> None:
    """Compare files, their physical rows and their deleted rows, by the target's own metadata.

    Args:
        staged: What was staged.
        expected: What the target shall hold.
        paths: Of which data files; None for all.

    Raises:
        VerificationError: A file is missing, is too much, or has other counts.
    """
    found = hold(
        staged.table, staged.snapshot_id, paths, lambda rows: pa.nulls(len(rows), pa.string())
    )
    at = pc.index_in(expected.paths, value_set=found.paths)
    places = pc.fill_null(at, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    there = places >= 0
    wrong = ~there
    for mine, theirs in ((expected.rows, found.rows), (expected.deleted, found.deleted)):
        wrong[there] |= mine[there] != theirs[places[there]]
    extra = np.ones(len(found), dtype=np.bool_)
    extra[places[there]] = False
    files = [
        *expected.paths.filter(pa.array(wrong)).to_pylist(),
        *found.paths.filter(pa.array(extra)).to_pylist(),
        *found.strays.to_pylist(),
    ]
    if files:
        raise VerificationError(
            f"{staged.table.name} would not hold what the source says of {_some(files)}",
            files=files,
            expected=_counts(expected),
            found=_counts(found),
            hint=_HINT,
        )


def verify_total(staged: Staged, expected: int | None) -> None:
    """Compare the number of all data files, where the source tells it: at no cost.

    Args:
        staged: What was staged.
        expected: Files of the source, by the checksum of its version; None if there is none.

    Raises:
        VerificationError: The numbers differ.
    """
    summary = staged.table.metadata.snapshots[staged.snapshot_id].summary
    found = summary.get("total-data-files")
    if expected is not None and found is not None and int(found) != expected:
        raise VerificationError(
            f"{staged.table.name} would not have as many data files as the source",
            expected=expected,
            found=int(found),
            hint=_HINT,
        )


def verify_rows(staged: Staged, source: DataFrame) -> None:
    """Compare all rows of both sides, by a hash that knows no order: one scan of each.

    Raises:
        VerificationError: Rows differ; the files are named.
    """
    with explained(str(staged.table.name)):
        target = rows_of(staged.table, staged.snapshot_id)
        columns = [quote(name) for name in source.columns]
        sums = [_summed(side.select(*columns)) for side in (source, target)]
        if sums[0] == sums[1]:
            return
        files = _differing(source, target)
    raise VerificationError(
        f"{staged.table.name} would not read as the source does; files that differ: {_some(files)}",
        files=files,
        expected=f"{sums[0][0]:,} rows with hash {sums[0][1]}",
        found=f"{sums[1][0]:,} rows with hash {sums[1][1]}",
        hint=_HINT,
    )


def _summed(rows: DataFrame) -> tuple[int, Any]:
    found = rows.agg(F.count(F.lit(1)).alias("n"), _hash_of_all(rows).alias("h")).first()
    if found is None:
        raise AssertionError("an aggregate without groups gives a row")
    return int(found["n"]), found["h"]


def _hash_of_all(rows: DataFrame) -> Column:
    columns = [_hashable(F.col(quote(f.name)), f.dataType) for f in rows.schema.fields]
    hashed = F.xxhash64(*columns) if columns else F.lit(0)
    return F.coalesce(F.sum(hashed.cast("decimal(20,0)")), F.lit(0))


def _hashable(column: Column, kind: DataType) -> Column:
    """Give a column that Spark can hash: maps have no order and no hash, their entries do."""
    if not _has_map(kind):
        return column
    if isinstance(kind, MapType):
        entries = F.map_entries(column)
        parts = F.transform(
            entries,
            lambda entry: F.struct(
                _hashable(entry["key"], kind.keyType).alias("key"),
                _hashable(entry["value"], kind.valueType).alias("value"),
            ),
        )
        return F.array_sort(F.transform(parts, _hash))
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: _hashable(element, kind.elementType))
    if isinstance(kind, StructType):
        fields = [_hashable(column[f.name], f.dataType).alias(f.name) for f in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    raise AssertionError(f"{kind} holds no map")


def _hash(value: Column) -> Column:
    return F.xxhash64(value)


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)


def _differing(source: DataFrame, target: DataFrame) -> list[str]:
    """Name the files whose rows differ: another scan of both sides."""
    sides = []
    columns = [quote(name) for name in source.columns]
    for rows, file in ((source, F.input_file_name()), (target, F.col("_file"))):
        named = rows.select(file.alias("delvec file"), *columns)
        grouped = named.groupBy("delvec file").agg(
            F.count(F.lit(1)).alias("n"), _hash_of_all(named.select(*columns)).alias("h")
        )
        sides.append({_plain(row[0]): (row["n"], row["h"]) for row in grouped.collect()})
    names = sides[0].keys() | sides[1].keys()
    return sorted(name for name in names if sides[0].get(name) != sides[1].get(name))


def _plain(path: str) -> str:
    """Write a path as Spark and as Iceberg do, in one way."""
    name = url_unquote(path)
    return "/" + name.removeprefix("file:").lstrip("/") if name.startswith("file:") else name


def _counts(side: Holdings) -> str:
    return f"{len(side):,} files, {side.rows.sum():,} rows, {side.deleted.sum():,} deleted"


def _some(files: list[str]) -> str:
    more = f" and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else ""
    return ", ".join(files[:_SHOWN]) + more
