"""The sequence numbers of data files that equality deletes are about.

A delete applies to data files of lower sequence numbers, in its partition or, if its partition spec
has no fields, in all. Which these are decides what can be done with a delete: nothing else about
data files matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from delvec.errors import PlanError
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.files import snapshot_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["DataSequences", "data_sequences", "is_global"]


@dataclass(frozen=True)
class DataSequences:
    """Distinct sequence numbers of live data files, in ascending order.

    Attributes:
        everywhere: Of all data files.
        by_delete: By the path of an equality delete of one partition: of the data files there.
    """

    everywhere: tuple[int, ...] = ()
    by_delete: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, delete: EqualityDeleteFile) -> tuple[int, ...]:
        """Return those of the data files in the scope of a delete, whatever their numbers are."""
        return self.by_delete.get(delete.path, self.everywhere)


def data_sequences(
    table: LoadedTable, snapshot_id: int, deletes: Sequence[EqualityDeleteFile]
) -> DataSequences:
    """Return the sequence numbers of the data files in the scope of each delete.

    Spark reads all manifests, and groups their entries by partition; the driver gets the numbers,
    8 bytes for each commit whose data files are left in a partition.

    Args:
        table: The table.
        snapshot_id: The snapshot.
        deletes: Its equality deletes.

    Raises:
        PlanError: The snapshot does not have one of them.
    """
    scoped = {each.path for each in deletes if not is_global(table.metadata, each.spec_id)}
    with explained(str(table.name)):
        live = snapshot_table(table, "entries", snapshot_id).where("status < 2")
        everywhere: tuple[int, ...] = ()
        if len(scoped) < len(deletes):
            data = live.where("data_file.content = 0").select("sequence_number").distinct()
            everywhere = tuple(sorted(row[0] for row in data.collect()))
        by_delete = _by_delete(live, scoped) if scoped else {}
    if missing := scoped - by_delete.keys():
        # It must not pass for a delete that applies to nothing.
        raise PlanError(f"{min(missing)} is not a delete file of snapshot {snapshot_id}")
    return DataSequences(everywhere, by_delete)


def is_global(metadata: TableMetadata, spec_id: int) -> bool:
    """Tell whether equality deletes of a partition spec apply to all partitions."""
    fields = metadata.specs[spec_id]["fields"]
    return all(each["transform"] == "void" for each in fields)


def _by_delete(live: DataFrame, scoped: set[str]) -> dict[str, tuple[int, ...]]:
    # Spark compares structs by value and null with null. Iceberg distinguishes -0.0 from 0.0: the
    # group is then larger than the partition, and what is done with its deletes less.
    content = F.col("data_file.content")
    groups = (
        live.where(content.isin(0, 2))
        .groupBy("data_file.spec_id", "data_file.partition")
        .agg(
            F.collect_set(F.when(content == 0, F.col("sequence_number"))).alias("numbers"),
            F.collect_list(F.when(content != 0, F.col("data_file.file_path"))).alias("paths"),
        )
        .where("size(paths) > 0")
    )
    # A compaction under way may move rows of other specs here, with the numbers that they have.
    by_spec = {
        row["spec_id"]: set(row["numbers"])
        for row in live.where(content == 0)
        .groupBy("data_file.spec_id")
        .agg(F.collect_set("sequence_number").alias("numbers"))
        .collect()
    }
    found: dict[str, tuple[int, ...]] = {}
    for row in groups.select("spec_id", "numbers", "paths").collect():
        others = [each for spec_id, each in by_spec.items() if spec_id != row["spec_id"]]
        numbers = tuple(sorted(set(row["numbers"]).union(*others)))
        found.update((path, numbers) for path in row["paths"] if path in scoped)
    return found
