"""Reading a snapshot through any mix of deletes.

Iceberg's planner tells to which data files equality deletes apply. All other data files are read by
Iceberg's reader as it is. The rows of these are read by Iceberg's reader as well, which applies
positions and vectors; their keys are compared by `key_bits` or `key_filter`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from delvec.iceberg.client.chosen_files import plan_snapshot, read_data_files
from delvec.iceberg.client.delete_files import equality_deletes, from_content_file
from delvec.iceberg.deletes.conditions import iceberg_condition
from delvec.iceberg.deletes.key_bits import plan_bits
from delvec.iceberg.deletes.key_filter import ScopedDelete, without_keys
from delvec.iceberg.deletes.read_schema import with_dropped_keys
from delvec.identifiers import quote
from delvec.report.figures import counted
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.chosen_files import DataFilesWithKeys
    from delvec.report.rendered import Line

__all__ = ["PLACES", "ReadPlan", "plan_read", "rows_with_places"]

PLACES: Final = ("_file", "_pos")
"""The columns that tell a row's data file, as the manifest spells it, and its position there."""


@dataclass(frozen=True)
class ReadPlan(Rendered):
    """How a snapshot is read; `to_df()` returns its rows.

    Attributes:
        table: The table.
        snapshot_id: The snapshot; None for a table without any.
        data_files: Data files that may match the condition; all of the snapshot where it has no
            equality deletes.
        files_with_keys: Those of them that equality deletes apply to.
        equality_deletes: Ordinary equality-delete files that are read.
        vectors: Equality delete vectors that are read.
        skipped: Equality deletes, of either form, that apply to none of these data files: the
            sequence number, the partition or bounds tell.
        keys: Deleted keys in the files that are read.
        reader: `iceberg` where no equality deletes apply, else `keys`.
        reason: Why that reader.
    """

    table: str
    snapshot_id: int | None
    data_files: int = 0
    files_with_keys: int = 0
    equality_deletes: int = 0
    vectors: int = 0
    skipped: int = 0
    keys: int = 0
    reader: str = "iceberg"
    reason: str = "no equality deletes apply"
    _rows: DataFrame | None = field(default=None, repr=False, compare=False)

    def to_df(self) -> DataFrame:
        """Return the rows; lazy."""
        if self._rows is None:
            raise ValueError("a plan that was not made by plan_read has no rows")
        return self._rows

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        found = document(self)
        return {name: value for name, value in found.items() if not name.startswith("_")}

    def _lines(self) -> Iterator[Line]:
        deletes = []
        if self.equality_deletes:
            deletes.append(counted(self.equality_deletes, "equality-delete file"))
        if self.vectors:
            deletes.append(counted(self.vectors, "equality delete vector"))
        facts = {
            "data files": f"{self.data_files:,}, {self.files_with_keys:,} with deletes by key",
            "deletes": " and ".join(deletes),
            "keys": f"{self.keys:,}" if self.keys else "",
            "skipped": counted(self.skipped, "equality delete") if self.skipped else "",
        }
        headline = f"{self.table}, snapshot {self.snapshot_id}: read by {self.reader}"
        return Summary(f"{headline}, {self.reason}", facts, {}).lines()


def plan_read(
    table: LoadedTable,
    snapshot_id: int | None,
    schema: Mapping[str, Any],
    where: str | Column | None = None,
    columns: Sequence[str] | None = None,
) -> ReadPlan:
    """Plan to read a snapshot; only metadata is read, and keys that are compared as bits.

    Args:
        table: The table.
        snapshot_id: A snapshot of any branch; None for a table without any.
        schema: The columns of the result, in Iceberg's JSON form.
        where: The rows to return.
        columns: The columns to return, all by default.
    """
    found = _planned(table, snapshot_id, schema, where)
    rows = found.rows
    if where is not None:
        rows = rows.where(where)
    rows = rows.select(*([quote(name) for name in _names(schema)] if columns is None else columns))
    vectors = sum(each.file.is_vector for each in found.deletes)
    has_keys = bool(found.deletes)
    return ReadPlan(
        str(table.name),
        snapshot_id,
        found.files.file_count if found.files else _file_count(table, snapshot_id),
        found.files.files.num_rows if found.files else 0,
        len(found.deletes) - vectors,
        vectors,
        found.live - len(found.deletes),
        sum(each.file.record_count for each in found.deletes),
        "keys" if has_keys else "iceberg",
        found.reason,
        rows,
    )


def rows_with_places(
    table: LoadedTable,
    snapshot_id: int,
    where: str | Column | None = None,
    schema: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the live rows of a snapshot with the columns of `PLACES`; lazy.

    Args:
        table: The table.
        snapshot_id: A snapshot of any branch.
        where: The rows to return.
        schema: The columns, in Iceberg's JSON form; the table's current ones by default.
    """
    rows = _planned(table, snapshot_id, schema or table.metadata.schema, where, PLACES).rows
    return rows if where is None else rows.where(where)


@dataclass(frozen=True, eq=False)
class _Planned:
    rows: DataFrame
    files: DataFilesWithKeys | None
    deletes: tuple[ScopedDelete, ...]
    live: int
    reason: str = "no equality deletes apply"


def _planned(
    table: LoadedTable,
    snapshot_id: int | None,
    schema: Mapping[str, Any],
    where: str | Column | None,
    places: Sequence[str] = (),
) -> _Planned:
    if snapshot_id is None:
        return _Planned(read_data_files(table, None, schema, (), chosen=False), None, (), 0)
    names = [*(quote(name) for name in _names(schema)), *places]
    rows = read_data_files(table, snapshot_id, schema, (), chosen=False).select(*names)
    live = len(equality_deletes(table, snapshot_id))
    if not live:
        return _Planned(rows, None, (), 0)
    condition = None if where is None else iceberg_condition(rows, where)
    files = plan_snapshot(table, snapshot_id, schema, condition)
    deletes = tuple(
        ScopedDelete(from_content_file(text, sequence), scope)
        for sequence, scope, text in files.deletes
    )
    if not deletes:
        return _Planned(rows, files, (), live)
    ids = {each for delete in deletes for each in delete.file.equality_ids}
    wide = with_dropped_keys(table.metadata, schema, ids, str(table.name))
    read = partial(read_data_files, table, snapshot_id, condition=condition)
    bits = plan_bits(table, wide, files, deletes)
    paths = files.files.column("path").to_pylist()
    if isinstance(bits, str):
        rows = read(wide, paths, chosen=True)
        parts = [without_keys(table, snapshot_id, wide, rows, files, deletes)]
        reason = f"keys are joined: {bits}"
    else:
        parts = [read(wide, each.paths, chosen=True).where(each.condition) for each in bits]
        reason = "keys are compared as bits"
    if files.file_count > len(paths):
        parts.append(read(schema, paths, chosen=False))
    live_rows = reduce(DataFrame.unionAll, [part.select(*names) for part in parts])
    return _Planned(live_rows, files, deletes, live, reason)


def _file_count(table: LoadedTable, snapshot_id: int | None) -> int:
    """Return the data files of a snapshot that is read as it is; its summary tells."""
    return 0 if snapshot_id is None else table.metadata.snapshots[snapshot_id].data_file_count or 0


def _names(schema: Mapping[str, Any]) -> list[str]:
    return [field["name"] for field in schema["fields"]]
