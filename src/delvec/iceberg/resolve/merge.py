"""New deleted rows of data files united with those that they have, for one commit.

Exactly one vector of a data file is left, or, in tables of format 2, one position-delete file that
is about it alone. A data file without a row left is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delvec.iceberg.by_condition.position_vectors import earlier_positions
from delvec.iceberg.client.position_deletes import find_position_deletes
from delvec.iceberg.resolve.verify import Balance
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path
from delvec.vector.unite import unite

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.iceberg.client.position_deletes import DataFileWithDeletes
    from delvec.vector import Bitmap

__all__ = ["Merged", "MergedFiles", "merge"]


@dataclass(frozen=True, eq=False)
class Merged:
    """Data files with deleted rows, as they are to be.

    Attributes:
        files: The data files, by path, with the position deletes that they have.
        vectors: All deleted positions of those that keep rows, by path.
        whole: Paths of those that have no row left.
        rows: Rows that were live and are not any more.
    """

    files: Mapping[str, DataFileWithDeletes] = field(default_factory=dict)
    vectors: Mapping[str, Bitmap] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    rows: int = 0

    def replaced(self) -> Iterator[str]:
        """Yield the keys of delete files that the new ones replace."""
        for file in self.files.values():
            yield from (each.key for each in file.deletes if each.is_file_scoped)

    @property
    def replaced_vectors(self) -> int:
        """How many of the data files with a new vector have one before."""
        return sum(
            any(each.is_file_scoped for each in self.files[path].deletes) for path in self.vectors
        )


@dataclass(frozen=True, eq=False)
class MergedFiles:
    """The data files of a target, and those that it takes over, with their deleted rows."""

    target: Merged = field(default_factory=Merged)
    staged: Merged = field(default_factory=Merged)

    @property
    def taken(self) -> tuple[str, ...]:
        """The paths of data files that are taken over: those with rows left."""
        gone = set(self.staged.whole)
        return tuple(path for path in self.staged.files if path not in gone)

    @property
    def taken_rows(self) -> int:
        """How many live rows these have."""
        physical = sum(self.staged.files[path].row_count for path in self.taken)
        return physical - sum(each.cardinality for each in self.staged.vectors.values())

    def balance(self, resolved: Sequence[EqualityDeleteFile]) -> Balance:
        """Return how the totals of the target change, with the deletes by key that are removed."""
        target, staged = self.target, self.staged
        vectors = (*target.vectors.values(), *staged.vectors.values())
        replaced = (
            delete.record_count
            for file in target.files.values()
            for delete in file.deletes
            if delete.is_file_scoped
        )
        added = sum(staged.files[path].row_count for path in self.taken)
        removed = sum(target.files[path].row_count for path in target.whole)
        return Balance(
            added - removed,
            sum(vector.cardinality for vector in vectors) - sum(replaced),
            -sum(each.record_count for each in resolved),
            len(self.taken) - len(target.whole),
        )


def merge(
    table: LoadedTable,
    snapshot_id: int,
    hits: Mapping[str, Bitmap],
    *,
    whole: Collection[str] = (),
    complete: bool = False,
) -> Merged:
    """Unite new deleted rows with those that a snapshot has.

    The driver holds the vectors of all these data files.

    Args:
        table: The table.
        snapshot_id: The snapshot.
        hits: New deleted positions by path; data files without any keep what they have.
        whole: Paths of data files all rows of which are deleted.
        complete: Whether position-delete files of several data files do not stay where they are, so
            that the new ones have to repeat them.

    Raises:
        PlanError: A data file is not in the snapshot.
        FormatError: A vector is damaged; the error names its file.
    """
    files = find_position_deletes(table, snapshot_id, hits.keys() | set(whole))
    storage = open_storage(table.spark, local_path(table.metadata.location))
    touched = [files[path] for path in hits if path not in whole]
    earlier = earlier_positions(table, snapshot_id, storage, touched, complete=complete)
    vectors: dict[str, Bitmap] = {}
    gone = list(whole)
    rows = sum(files[path].row_count for path in whole)
    for file in touched:
        path, before = file.path, earlier.get(file.path)
        # Others may have deleted some of the rows since they were found.
        new = hits[path] if before is None else hits[path] - before
        united = unite(before, new, rows=file.row_count, path=path)
        rows += new.cardinality
        if united.cardinality == file.row_count:
            gone.append(path)
        elif united:
            vectors[path] = united
    return Merged(files, vectors, tuple(gone), rows)
