"""What becomes of files in which rows were found: a new vector, a rewrite, or a removal.

Memory grows with the vectors of the files that have hits, at most one bit for each of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delvec.delta.parquet.footer_statistics import require_row_count
from delvec.delta.parquet.row_counts import row_counts
from delvec.delta.read.load_vectors import load_vectors
from delvec.delta.write.change import VectorUpdate
from delvec.errors import InvalidArgumentError
from delvec.spark.positions import find_rows, fits_driver
from delvec.vector.unite import unite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from delvec.delta.log.file_set import FileEntry, FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.transaction import Attempt
    from delvec.vector import Bitmap

__all__ = ["FileOutcomes", "Found", "find_outcomes", "require_ratio"]


@dataclass(frozen=True)
class FileOutcomes:
    """Files with hits, by what becomes of them.

    Attributes:
        vector_updates: Files that get a new vector.
        emptied: Files without a live row left.
        rewritten: All deleted rows of the files whose live rows are copied to new files, by the
            number of the file among those that were scanned.
        rewritten_files: The same files, in that order.
    """

    vector_updates: tuple[VectorUpdate, ...] = ()
    emptied: tuple[FileEntry, ...] = ()
    rewritten: Mapping[int, Bitmap] = field(default_factory=dict)
    rewritten_files: tuple[FileEntry, ...] = ()

    @property
    def removed(self) -> tuple[FileEntry, ...]:
        """All files that are removed from the table."""
        return (*self.emptied, *self.rewritten_files)

    @property
    def is_empty(self) -> bool:
        """Whether no file has a hit."""
        return not (self.vector_updates or self.removed)


@dataclass(frozen=True)
class Found:
    """The rows that a scan found, and what becomes of their files.

    Attributes:
        outcomes: What becomes of the files.
        rows: How many rows were found.
        counts: How many of them satisfy each of the conditions that were asked for.
        repeated: Paths of files in which a row was found more than once.
        hits: Positions by the number of their file; empty if tasks wrote the vectors.
        vector_files: Vector files that tasks have written, with their bytes.
    """

    outcomes: FileOutcomes = FileOutcomes()
    rows: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    repeated: tuple[str, ...] = ()
    hits: Mapping[int, Bitmap] = field(default_factory=dict)
    vector_files: Mapping[str, int] = field(default_factory=dict)


def require_ratio(ratio: float | None) -> None:
    """Refuse what is no share of rows."""
    if ratio is not None and not 0 < ratio <= 1:
        raise InvalidArgumentError(
            f"rewrite_ratio is a share of rows above 0 and up to 1, got {ratio}"
        )


def find_outcomes(
    attempt: Attempt,
    files: FileSet,
    rows: DataFrame,
    *,
    vectors: bool,
    ratio: float | None = None,
    counted: Mapping[str, str] | None = None,
    in_order: bool = True,
) -> Found:
    """Run the job that finds rows, and decide what becomes of their files.

    Args:
        attempt: The operation.
        files: The files that are scanned; their numbers are the rows' `NUMBER`.
        rows: The rows to delete, with `NUMBER` and `POSITION`.
        vectors: Whether the table takes vectors; without, files are rewritten.
        ratio: Rewrite a file when this share of its rows is deleted.
        counted: Conditions in SQL, by name, whose rows are counted.
        in_order: See `positions.find_rows`.
    """
    if vectors and ratio is None and not fits_driver(attempt.spark, files):
        from delvec.spark.delta.write.vectors_in_tasks import (  # noqa: PLC0415
            write_vectors_in_tasks,
        )

        return write_vectors_in_tasks(attempt, files, rows, counted or {})
    hits = find_rows(rows, counted, in_order=in_order)
    outcomes = decide(attempt.snapshot, files, hits.bitmaps, vectors=vectors, ratio=ratio)
    count = sum(bitmap.cardinality for bitmap in hits.bitmaps.values())
    repeated = tuple(files.paths[number].as_py() for number in hits.repeated)
    return Found(outcomes, count, hits.counts, repeated, hits.bitmaps)


def decide(
    snapshot: Snapshot,
    files: FileSet,
    hits: Mapping[int, Bitmap],
    *,
    vectors: bool,
    ratio: float | None = None,
) -> FileOutcomes:
    """Unite hits with the vectors that files have, and decide what becomes of each file.

    Args:
        snapshot: The version.
        files: The files that were scanned.
        hits: Rows to delete, by the number of their file.
        vectors: Whether the table takes vectors; without, files are rewritten.
        ratio: Rewrite a file when this share of its rows is deleted.
    """
    numbers = sorted(hits)
    olds = load_vectors(snapshot.storage, files.data_files(numbers)) if numbers else []
    lives = files.entries(numbers)
    counts = row_counts(snapshot.storage, files, numbers)
    updates: list[VectorUpdate] = []
    emptied: list[FileEntry] = []
    rewritten: dict[int, Bitmap] = {}
    copied: list[FileEntry] = []
    for number, old, live, rows in zip(numbers, olds, lives, counts, strict=True):
        vector = unite(old, hits[number], rows=rows, path=live.path)
        if vector.cardinality == rows:
            if old is not None:
                require_row_count(snapshot.storage, live.path, live.add, rows)
            emptied.append(live)
        elif vectors and (ratio is None or vector.cardinality < ratio * rows):
            updates.append(VectorUpdate(live, rows, vector))
        else:
            rewritten[number] = vector
            copied.append(live)
    return FileOutcomes(tuple(updates), tuple(emptied), rewritten, tuple(copied))
