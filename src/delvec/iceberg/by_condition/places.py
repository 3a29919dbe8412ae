"""Rows of data files as bitmaps of their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from delvec.errors import PlanError
from delvec.iceberg.client.failures import explained
from delvec.spark.positions import NUMBER, POSITION, find_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.vector import Bitmap

__all__ = ["bitmaps_by_path"]

_PATH: Final = "__delvec_path"


def bitmaps_by_path(
    table: LoadedTable, rows: DataFrame, paths: Sequence[str], *, in_order: bool = True
) -> Mapping[str, Bitmap]:
    """Return the positions of rows by the path of their data file, by one job.

    Its tasks send the driver at most 24 bytes for each 64 rows with a hit.

    Args:
        table: The table.
        rows: With `_file` and `_pos`.
        paths: All data files that they may be in.
        in_order: See `find_rows`.

    Raises:
        PlanError: A row is in another data file.
    """
    numbers = pa.table({_PATH: pa.array(paths, pa.string()), NUMBER: range(len(paths))})
    known = F.broadcast(table.spark.createDataFrame(numbers))
    places = rows.select(F.col("_file"), F.col("_pos").alias(POSITION))
    joined = places.join(known, F.col("_file") == F.col(_PATH), "left")
    # A row of an unknown file must not get lost: it would not be deleted.
    number = F.coalesce(F.col(NUMBER), F.lit(len(paths)))
    with explained(str(table.name)):
        numbered = joined.select(number.alias(NUMBER), POSITION)
        found = find_rows(numbered, in_order=in_order).bitmaps
    if len(paths) in found:
        raise PlanError(
            f"rows were found in a file that the snapshot of {table.name} does not list",
            hint="was the table changed meanwhile? Run it again",
        )
    return {paths[number]: bitmap for number, bitmap in found.items()}
