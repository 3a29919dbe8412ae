"""What becomes of files in which rows were found: a vector, a copy without these rows, or nothing.

Memory grows with the vectors of the files that have hits, at most one bit for each of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delvec.delta.parquet.footer_statistics import require_row_count
from delvec.delta.parquet.row_counts import row_counts
from delvec.delta.read.load_vectors import load_vectors
from delvec.delta.write.change import Marked
from delvec.errors import InvalidArgumentError, PlanError
from delvec.spark.positions import find_rows, fits_driver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from delvec.delta.log.file_set import FileEntry, FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.transaction import Attempt
    from delvec.vector import Bitmap

__all__ = ["Fates", "Marks", "mark", "require_ratio"]


@dataclass(frozen=True)
class Fates:
    """Files with hits, by their number among the files that were looked at.

    Attributes:
        marked: Those that get a new vector.
        emptied: Those that have no live row left.
        rewritten: Those whose other rows are copied to new files, with all of their deleted rows.
        rewritten_files: The same files, in that order.
    """

    marked: tuple[Marked, ...] = ()
    emptied: tuple[FileEntry, ...] = ()
    rewritten: Mapping[int, Bitmap] = field(default_factory=dict)
    rewritten_files: tuple[FileEntry, ...] = ()

    @property
    def removed(self) -> tuple[FileEntry, ...]:
        """All files that go."""
        return (*self.emptied, *self.rewritten_files)

    @property
    def is_empty(self) -> bool:
        """Whether no file has a hit."""
        return not (self.marked or self.removed)


@dataclass(frozen=True)
class Marks:
    """What was found, and what becomes of it.

    Attributes:
        fates: What becomes of the files.
        rows: How many rows were found.
        counts: How many there are of each kind that was asked for.
        twice: Paths of files in which a row came more than once.
        hits: The rows, by the number of their file; empty if tasks kept them to themselves.
        vector_files: Files of vectors that tasks have written, with their bytes.
    """

    fates: Fates = Fates()
    rows: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    twice: tuple[str, ...] = ()
    hits: Mapping[int, Bitmap] = field(default_factory=dict)
    vector_files: Mapping[str, int] = field(default_factory=dict)


def require_ratio(ratio: float | None) -> None:
    """Refuse what is no share of rows."""
    if ratio is not None and not 0 < ratio <= 1:
        raise InvalidArgumentError(
            f"rewrite_ratio is a share of rows above 0 and up to 1, got {ratio}"
        )


def mark(
    attempt: Attempt,
    files: FileSet,
    rows: DataFrame,
    *,
    vectors: bool,
    ratio: float | None = None,
    kinds: Mapping[str, str] | None = None,
) -> Marks:
    """Run the job that finds rows, and decide what becomes of their files.

    Args:
        attempt: The operation.
        files: The files that are looked at; their numbers are the rows' `NUMBER`.
        rows: The rows that are to go, with `NUMBER` and `POSITION`.
        vectors: Whether the table takes vectors; without, files are rewritten.
        ratio: Rewrite a file when this share of its rows is deleted.
        kinds: Conditions in SQL, by name, whose rows are to be counted.
    """
    snapshot = attempt.snapshot
    if vectors and ratio is None and not fits_driver(attempt.spark, files):
        from delvec.spark.delta.write.vectors_in_tasks import mark_by_tasks  # noqa: PLC0415

        return mark_by_tasks(attempt, files, rows, kinds or {})
    hits = find_rows(rows, kinds)
    fates = decide(snapshot, files, hits.bitmaps, vectors=vectors, ratio=ratio)
    found = sum(bitmap.cardinality for bitmap in hits.bitmaps.values())
    twice = tuple(files.paths[number].as_py() for number in hits.twice)
    return Marks(fates, found, hits.counts, twice, hits.bitmaps)


def decide(
    snapshot: Snapshot,
    files: FileSet,
    hits: Mapping[int, Bitmap],
    *,
    vectors: bool,
    ratio: float | None = None,
) -> Fates:
    """Unite hits with the vectors that files have, and decide what becomes of each file.

    Args:
        snapshot: The version.
        files: The files that were looked at.
        hits: Rows that are to go, by the number of their file.
        vectors: Whether the table takes vectors; without, files are rewritten.
        ratio: Rewrite a file when this share of its rows is deleted.
    """
    numbers = sorted(hits)
    olds = load_vectors(snapshot.storage, files.data_files(numbers)) if numbers else []
    lives = files.entries(numbers)
    counts = row_counts(snapshot.storage, files, numbers)
    marked: list[Marked] = []
    emptied: list[FileEntry] = []
    rewritten: dict[int, Bitmap] = {}
    copied: list[FileEntry] = []
    for number, old, live, rows in zip(numbers, olds, lives, counts, strict=True):
        vector = hits[number] if old is None else old | hits[number]
        _require_fit(vector, old, hits[number], rows, live.path)
        if vector.cardinality == rows:
            if old is not None:
                require_row_count(snapshot.storage, live.path, live.add, rows)
            emptied.append(live)
        elif vectors and (ratio is None or vector.cardinality < ratio * rows):
            marked.append(Marked(live, rows, vector))
        else:
            rewritten[number] = vector
            copied.append(live)
    return Fates(tuple(marked), tuple(emptied), rewritten, tuple(copied))


def _require_fit(vector: Bitmap, old: Bitmap | None, hits: Bitmap, rows: int, path: str) -> None:
    """Stop where positions cannot be right, before they become deletes of other rows."""
    last = vector.max
    if last is not None and last >= rows:
        raise PlanError(
            f"row {last} of {path} was found, and the log says that it has {rows} rows",
            hint="the statistics of the file are wrong; rewrite it with the engine that made it",
        )
    if old is not None and not old.isdisjoint(hits):
        raise PlanError(f"rows of {path} were found that are deleted already")
