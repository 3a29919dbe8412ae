"""The parts of a change feed: files whose rows are changes, and how each is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from delvec.delta.log.file_set import FileSet
from delvec.delta.log.json_actions import adds_schema
from delvec.delta.read.change_feed_schema import CHANGE_TYPE, FEED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delvec.delta.log.action_columns import Kind
    from delvec.delta.log.snapshot import Snapshot
    from delvec.vector import Bitmap

__all__ = ["FeedPart", "PartBuilder"]


@dataclass(frozen=True)
class FeedPart:
    """Files whose rows are changes.

    Attributes:
        files: One entry for each version and change; a file may be in here several times.
        constants: What holds for all rows of an entry: type of the change, version, timestamp.
        marks: Vectors by the number of the entry; they are loaded at the first use.
    """

    files: FileSet
    constants: pa.Table
    marks: Mapping[int, Bitmap]


class PartBuilder:
    """Collects the entries of one part, piece by piece."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        stats = pa.field("stats", pa.string())
        self._schema = pa.schema([*adds_schema(snapshot.partition_names), stats, *FEED_COLUMNS])
        self._pieces: list[pa.Table] = [self._schema.empty_table()]

    def __len__(self) -> int:
        return sum(piece.num_rows for piece in self._pieces)

    def add(self, entries: pa.Table, change: str | None) -> None:
        """Add files with one type of change; None where each row has its own."""
        types = pa.repeat(pa.scalar(change, pa.string()), entries.num_rows)
        entries = entries.append_column(CHANGE_TYPE, types)
        self._pieces.append(entries.select(self._schema.names))

    def extend(self, other: PartBuilder, mask: pa.Array | None = None) -> None:
        """Add the entries of another builder, or those of a mask."""
        table = other.table
        self._pieces.append(table if mask is None else table.filter(mask))

    @property
    def table(self) -> pa.Table:
        """All entries so far."""
        return pa.concat_tables(self._pieces).combine_chunks()

    def part(self) -> FeedPart:
        """Return the part, without vectors."""
        table, snapshot = self.table, self._snapshot
        paths, stats = (table[name].combine_chunks() for name in ("path", "stats"))
        files = FileSet(
            snapshot.metadata,
            snapshot.table,
            paths,
            table.drop_columns(["path", "stats", *FEED_COLUMNS.names]),
            (_Statistics(stats),),
            np.zeros(table.num_rows, dtype=np.int32),
            np.arange(table.num_rows, dtype=np.int64),
        )
        return FeedPart(files, table.select(FEED_COLUMNS.names), {})


@dataclass
class _Statistics:
    """The statistics of entries, as a source for their bounds."""

    stats: pa.Array

    def json_statistics(self) -> pa.Array | None:
        return self.stats

    def parsed_statistics(self, *path: str) -> pa.Array | None:  # noqa: ARG002
        return None

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        raise AssertionError(f"the entries {rows} are of several versions")

    def pieces(
        self, kind: Kind, partition_names: Sequence[str], more: Sequence[str] = ()
    ) -> Iterator[pa.StructArray]:
        raise AssertionError(f"no {kind} of {partition_names} {more} is written from changes")
