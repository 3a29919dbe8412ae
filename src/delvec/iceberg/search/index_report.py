"""What building an index did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, size
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.iceberg.search.key_index import KeyIndex
    from delvec.report.rendered import Line

__all__ = ["IndexReport"]


@dataclass(frozen=True)
class IndexReport(Rendered):
    """The primary-key index of a table, and what its update did.

    >>> print(IndexReport("lake.db.orders", "lake.db.orders__delvec_index", ("id",), 7, "updated",
    ...                   added_files=2, added_rows=500, rows=10_004, bytes=120_000))
    INDEX of lake.db.orders by id: updated, reflects snapshot 7
      table    lake.db.orders__delvec_index
      indexed  2 files, 500 rows
      rows     10,004, 117.2 KiB

    Attributes:
        table: The name of the table.
        index: The name of the index's own table.
        keys: The key columns.
        snapshot_id: The snapshot whose data files are all indexed; None if others changed the index
            at the same time.
        action: `built`, `updated`, or `kept` as it was.
        reason: Why it was built.
        added_files: Data files that were indexed.
        added_rows: Their rows.
        rows: Rows of the index, those of files that are gone included.
        bytes: The size of its files.
        phases: Seconds by phase.
        notes: What else there is to know, in sentences.
        dry_run: Whether nothing was written: the action is the one that would be taken.
    """

    table: str
    index: str
    keys: tuple[str, ...]
    snapshot_id: int | None
    action: str
    reason: str = ""
    added_files: int = 0
    added_rows: int = 0
    rows: int = 0
    bytes: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @classmethod
    def of(
        cls, table: str, keys: tuple[str, ...], index: KeyIndex, phases: Mapping[str, float]
    ) -> IndexReport:
        """Return the report of an update.

        Args:
            table: The name of the table.
            keys: The names of the key columns.
            index: What `update_index` returned.
            phases: Seconds by phase.
        """
        return cls(
            table,
            str(index.table.name),
            keys,
            index.snapshot_id,
            index.action,
            index.reason,
            index.added_files,
            index.added_rows,
            index.rows,
            index.bytes,
            phases,
        )

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return document(self)

    def _lines(self) -> Iterator[Line]:
        indexed = f"{counted(self.added_files, 'file')}, {counted(self.added_rows, 'row')}"
        facts = {
            "table": self.index,
            "because": self.reason,
            "indexed": indexed if self.added_files else "",
            "rows": f"{self.rows:,}, {size(self.bytes)}" if self.rows else "",
        }
        state = "" if self.snapshot_id is None else f", reflects snapshot {self.snapshot_id}"
        told = f"{self.action}{state}"
        if self.dry_run:
            told = f"dry run: nothing was written, it would be {self.action}"
        headline = f"INDEX of {self.table} by {', '.join(self.keys)}: {told}"
        return Summary(headline, facts, self.phases, notes=self.notes).lines()
