"""Comparing a staged snapshot with the source, before readers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote as url_unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from delvec.conversion.planning.target_files import list_target_files, without_ids
from delvec.errors import VerificationError
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import snapshot_rows
from delvec.identifiers import quote
from delvec.spark.row_sums import row_sums, sums_by_rows
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from delvec.conversion.planning.target_files import TargetFiles
    from delvec.iceberg.commits.changes import Staged

__all__ = ["verify_counts", "verify_rows", "verify_total"]

_SHOWN: Final = 5
_HINT: Final = "the target is unchanged; please report this with the plan of the conversion"


def verify_counts(staged: Staged, expected: TargetFiles, paths: pa.Array | None) -> None:
    """Compare data files, their physical rows and their deleted rows, by the target's metadata.

    Args:
        staged: What was staged.
        expected: The files that the target must have.
        paths: Only data files of these paths; None for all.

    Raises:
        VerificationError: A file is missing, is not expected, or has other counts.
    """
    found = list_target_files(staged.table, staged.snapshot_id, paths, without_ids)
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
            f"{staged.table.name} would not be equal to the source in {_some(files)}",
            files=files,
            expected=_counts(expected),
            found=_counts(found),
            hint=_HINT,
        )


def verify_total(staged: Staged, expected: int | None) -> None:
    """Compare the number of all data files, if the source has a checksum; costs nothing.

    Args:
        staged: What was staged.
        expected: Data files of the source, by the checksum of its version; None without one.

    Raises:
        VerificationError: The numbers differ.
    """
    found = staged.table.metadata.snapshots[staged.snapshot_id].data_file_count
    if expected is not None and found is not None and found != expected:
        raise VerificationError(
            f"{staged.table.name} would not have as many data files as the source",
            expected=expected,
            found=found,
            hint=_HINT,
        )


def verify_rows(staged: Staged, source: DataFrame) -> None:
    """Compare all rows of both sides by sums of hashes; one scan of each.

    Values of the source are compared in the target's types, which may be wider.

    Raises:
        VerificationError: Rows differ; the error names the files.
    """
    with explained(str(staged.table.name)):
        target = snapshot_rows(staged.table, staged.snapshot_id)
        kind = target.select(*map(quote, source.columns)).schema
        expected, found = (row_sums(side, kind) for side in (source, target))
        if expected == found:
            return
        files = _differing(source, target, kind)
    raise VerificationError(
        f"{staged.table.name} would not have the source's rows; files that differ: {_some(files)}",
        files=files,
        expected=_shown(expected),
        found=_shown(found),
        hint=_HINT,
    )


def _differing(source: DataFrame, target: DataFrame, kind: StructType) -> list[str]:
    """Return the files whose rows differ; another scan of both sides."""
    sides = []
    columns = [quote(field.name) for field in kind.fields]
    # Spark escapes the names of files, Iceberg does not.
    for rows, file, plain in (
        (source, F.input_file_name(), url_unquote),
        (target, F.col("_file"), str),
    ):
        named = rows.select(file.alias("delvec file"), *columns)
        grouped = named.groupBy("delvec file").agg(*sums_by_rows(kind))
        found = grouped.collect()
        sides.append({local_path(plain(name)): tuple(sums) for name, *sums in found})
    names = sides[0].keys() | sides[1].keys()
    return sorted(name for name in names if sides[0].get(name) != sides[1].get(name))


def _shown(sums: tuple[int, ...]) -> str:
    rows, *parts = sums
    return f"{rows:,} rows with hash {'-'.join(map(str, parts))}"


def _counts(side: TargetFiles) -> str:
    return f"{len(side):,} files, {side.rows.sum():,} rows, {side.deleted.sum():,} deleted"


def _some(files: list[str]) -> str:
    more = f" and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else ""
    return ", ".join(files[:_SHOWN]) + more
