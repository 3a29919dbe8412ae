"""What a check of a snapshot found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.report.figures import counted
from delvec.report.findings import CheckedReport
from delvec.report.rendered import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.report.rendered import Line

__all__ = ["CheckReport"]


@dataclass(frozen=True)
class CheckReport(CheckedReport):
    """What a check of a snapshot found.

    >>> from delvec.report.findings import Finding
    >>> gone = Finding("error", "missing-file", "/lake/t/data/1.parquet", "the file is gone")
    >>> print(CheckReport("lake.db.orders", "main", 7, data_files=2, errors=1, findings=(gone,)))
    CHECK of lake.db.orders, main, snapshot 7: 1 error
      looked at  2 data files
      error: the file is gone (/lake/t/data/1.parquet)

    Attributes, beside those of all checks (`CheckedReport`):
        table: The name of the table.
        branch: The branch; None if a snapshot was named.
        snapshot_id: The snapshot; None for a table without any.
        data_files: Data files that were looked for.
        delete_files: Delete files that were looked for.
        equality_deletes: Ordinary equality-delete files that were read.
        vectors: Equality delete vectors that were read.
        deletion_vectors: Deletion vectors that were read.
        companions: Vectors of ordinary equality-delete files, in statistics files, that were read.
    """

    table: str
    branch: str | None
    snapshot_id: int | None = None
    data_files: int = 0
    delete_files: int = 0
    equality_deletes: int = 0
    vectors: int = 0
    deletion_vectors: int = 0
    companions: int = 0

    def _lines(self) -> Iterator[Line]:
        where = f"{self.branch}, " if self.branch is not None else ""
        counts = {
            "data file": self.data_files,
            "delete file": self.delete_files,
            "deletion vector": self.deletion_vectors,
            "equality-delete file": self.equality_deletes,
            "equality delete vector": self.vectors,
        }
        looked_at = (counted(count, noun) for noun, count in counts.items() if count)
        yield from Summary(
            f"CHECK of {self.table}, {where}snapshot {self.snapshot_id}: {self._verdict()}",
            {"looked at": ", ".join(looked_at), "outside": self._outside},
            self.phases,
        ).lines()
        yield from self._finding_lines()
