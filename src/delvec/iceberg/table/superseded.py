"""Files that only older snapshots have: one job reads the manifests of all retained snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import snapshot_table
from delvec.inspection.figures import Freed
from delvec.spark import sql_text

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["LISTED", "superseded_files"]

LISTED: Final = 100
"""The snapshots whose manifests are read without being asked for it."""


def superseded_files(table: LoadedTable, *, listing: bool | None) -> Freed:
    """Return what files take that no branch has at its head, and no tag.

    An expiry frees so much at most: snapshots that are young enough, or among the last of a branch,
    stay, and which of these files they need would take a job for each snapshot.

    Args:
        table: The table.
        listing: Whether to look for them; None to do so if there are few snapshots.
    """
    snapshots = len(table.metadata.snapshots)
    if listing is None and snapshots > LISTED:
        how = "listing=True, or --listing, reads their manifests"
        return Freed(why_unknown=f"over {LISTED} snapshots; {how}")
    if listing is False:
        return Freed(why_unknown="the manifests of other snapshots were not to be read")
    if not snapshots:
        return Freed(vacuum=0)
    heads = sorted({ref.snapshot_id for ref in table.metadata.refs.values()})
    spark, name = table.spark, table.name
    with explained(str(name)):
        columns = "file_path, file_size_in_bytes"
        query = f"SELECT DISTINCT {columns} FROM {name}.all_files"  # noqa: S608
        everything = sql_text.run(spark, query)
        needed = [snapshot_table(table, "files", head).select("file_path") for head in heads]
        for each in needed:
            everything = everything.join(each, "file_path", "left_anti")
        sums = (F.count("*"), F.coalesce(F.sum("file_size_in_bytes"), F.lit(0)))
        [row] = everything.agg(*sums).collect()
    return Freed(vacuum=int(row[1]), vacuum_files=int(row[0]))
