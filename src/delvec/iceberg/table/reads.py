"""Reading an Iceberg table: its snapshots, refs and files, and rows for Spark, Arrow or pandas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.documents import TIMES_MS
from delvec.errors import FormatError
from delvec.frames import to_pandas
from delvec.iceberg.client.metadata import MAIN, IcebergSnapshot, TableMetadata, branch_head
from delvec.iceberg.commit.marks import staging_branches
from delvec.iceberg.deletes.read_plan import ReadPlan, plan_read
from delvec.iceberg.table.detail import IcebergDetail, detail_of, list_files
from delvec.iceberg.table.handle import TableHandle
from delvec.spark.engine import SparkEngine
from delvec.spark.failures import translate_errors

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd
    from pyspark.sql import Column, DataFrame

_SNAPSHOTS: Final = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("parent_id", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("refs", pa.list_(pa.string())),
        ("summary", pa.map_(pa.string(), pa.string())),
    ]
)
_REFS: Final = pa.schema(
    [
        ("name", pa.string()),
        ("type", pa.string()),
        ("snapshot_id", pa.int64()),
        ("is_staging", pa.bool_()),
        ("min_snapshots_to_keep", pa.int32()),
        ("max_snapshot_age_ms", pa.int64()),
    ]
)
# Figures of the summary that every engine writes, by the column that shows each.
_FIGURES: Final = {
    "added_data_files": "added-data-files",
    "removed_data_files": "deleted-data-files",
    "added_rows": "added-records",
    "removed_rows": "deleted-records",
    "added_delete_files": "added-delete-files",
    "removed_delete_files": "removed-delete-files",
    "added_position_deletes": "added-position-deletes",
    "added_equality_deletes": "added-equality-deletes",
}
_HISTORY: Final = pa.schema(
    [
        *(_SNAPSHOTS.field(name) for name in ("snapshot_id", "parent_id", "timestamp")),
        _SNAPSHOTS.field("operation"),
        *(pa.field(name, pa.int64()) for name in _FIGURES),
        *(_SNAPSHOTS.field(name) for name in ("refs", "summary")),
    ]
)


@dataclass(frozen=True)
class TableReads(TableHandle):
    """The commands that read a table."""

    def to_df(
        self,
        branch: str | None = None,
        snapshot_id: int | None = None,
        *,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> DataFrame:
        """Return the rows of a snapshot, through deletes of any kind; lazy.

        It reads what stock Iceberg reads, and equality delete vectors as well. A `where` of the
        result prunes data files like this one; only this one prunes equality deletes, too.

        Args:
            branch: The branch; `main` by default. It is read with the table's newest columns.
            snapshot_id: Instead: a snapshot by its id, with its own columns.
            where: The rows to return, as SQL or Column.
            columns: The columns to return, all by default.
            timestamp: A time; the snapshot that was the branch's newest then, with its own columns.
            tag: Instead: a tag, with the columns of its snapshot.

        Raises:
            InvalidArgumentError: There is no such snapshot, branch, tag or column.
        """
        with translate_errors(self.name):
            plan = self.plan_read(
                branch, snapshot_id, where=where, columns=columns, timestamp=timestamp, tag=tag
            )
            return plan.to_df()

    def plan_read(
        self,
        branch: str | None = None,
        snapshot_id: int | None = None,
        *,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> ReadPlan:
        """Return how a snapshot is read: files, deletes that apply and deletes that are skipped.

        Only metadata and equality delete vectors are read. The arguments are those of `to_df`,
        which returns `plan_read(...).to_df()`.
        """
        table = self._load()
        found = self._snapshot(table, branch, snapshot_id, timestamp, tag)
        metadata = table.metadata
        is_head = snapshot_id is None and timestamp is None and tag is None
        schema = metadata.schema
        if not is_head and found is not None and found.schema_id is not None:
            schema = metadata.schemas.get(found.schema_id, {})
            if not schema:
                raise FormatError(
                    f"snapshot {found.id} of {self.name} has no columns: there is no schema"
                    f" {found.schema_id}",
                    path=metadata.file,
                    hint="the metadata file is damaged or forged; read another snapshot",
                )
        return plan_read(table, None if found is None else found.id, schema, where, columns)

    def snapshots(self) -> DataFrame:
        """Return all retained snapshots, newest first: id, parent, time, refs, summary."""
        metadata = self._load().metadata
        newest = sorted(metadata.snapshots.values(), key=lambda each: -each.timestamp_ms)
        return self._frame(_rows(metadata, newest), _SNAPSHOTS)

    def refs(self) -> DataFrame:
        """Return branches and tags, by name; `is_staging` is true for delvec's own branches."""
        metadata = self._load().metadata
        staging = staging_branches(metadata)
        rows = [
            {
                "name": name,
                "type": "branch" if ref.is_branch else "tag",
                "snapshot_id": ref.snapshot_id,
                "is_staging": name in staging,
                "min_snapshots_to_keep": ref.min_snapshots,
                "max_snapshot_age_ms": ref.max_age_ms,
            }
            for name, ref in sorted(metadata.refs.items())
        ]
        return self._frame(rows, _REFS)

    def history(self, limit: int | None = None, *, branch: str = MAIN) -> DataFrame:
        """Return the snapshots of a branch that are still retained, newest first.

        Columns that begin with `added` and `removed` are figures of the snapshot's summary, null
        where it has none.

        Raises:
            InvalidArgumentError: There is no such branch.
        """
        metadata = self._load().metadata
        branch_head(metadata, self.name, branch)
        found = list(metadata.ancestors(branch))[:limit]
        return self._frame(_rows(metadata, found), _HISTORY)

    def files(
        self,
        snapshot_id: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        branch: str | None = None,
        tag: str | None = None,
    ) -> DataFrame:
        """Return data files and delete files of a snapshot; lazy, Spark reads the manifests.

        `content` is `data`, `deletion-vector`, `position-deletes`, `equality-deletes` or
        `equality-delete-vector`. Further: path, format, spec_id, partition (values by name, as
        strings), rows (records, or positions or keys that are deleted), bytes (of a deletion
        vector: those of its blob), sequence_number, equality_columns, referenced_data_file.

        Args:
            snapshot_id: The snapshot; the newest of the branch by default.
            timestamp: Instead: a time; the snapshot that was the branch's newest then.
            branch: The branch; `main` by default.
            tag: Instead of all these: a tag.

        Raises:
            InvalidArgumentError: There is no such snapshot, branch or tag.
        """
        table = self._load()
        found = self._snapshot(table, branch, snapshot_id, timestamp, tag)
        return list_files(table, None if found is None else found.id)

    def detail(
        self,
        snapshot_id: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        branch: str | None = None,
        tag: str | None = None,
    ) -> IcebergDetail:
        """Return size, kinds of deletes, refs and properties; one job reads the manifests.

        Args:
            snapshot_id: See `files`.
            timestamp: See `files`.
            branch: See `files`.
            tag: See `files`.
        """
        table = self._load()
        return detail_of(table, self._snapshot(table, branch, snapshot_id, timestamp, tag))

    def _frame(self, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
        return self.spark.createDataFrame(pa.Table.from_pylist(rows, schema))


@dataclass(frozen=True)
class TableArrowReads(TableReads):
    """The commands that read rows into this process; Spark reads them, through all deletes."""

    def to_arrow(
        self,
        branch: str | None = None,
        snapshot_id: int | None = None,
        *,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Read a snapshot into an Arrow table, all rows in memory at once; see `to_df`."""
        df = self.to_df(
            branch, snapshot_id, where=where, columns=columns, timestamp=timestamp, tag=tag
        )
        with SparkEngine(self.spark).translate_errors(self.name):
            return df.toArrow()

    def to_pandas(
        self,
        branch: str | None = None,
        snapshot_id: int | None = None,
        *,
        where: str | Column | None = None,
        columns: Sequence[str] | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pd.DataFrame:
        """Read a snapshot into a pandas DataFrame; see `to_df`."""
        rows = self.to_arrow(
            branch, snapshot_id, where=where, columns=columns, timestamp=timestamp, tag=tag
        )
        return to_pandas(rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows of `main` to other libraries: DuckDB, polars, pandas and pyarrow.

        Spark reads them as a whole into memory first, unlike those of a Delta table.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def _rows(metadata: TableMetadata, snapshots: Iterable[IcebergSnapshot]) -> list[dict[str, Any]]:
    names: dict[int, list[str]] = {}
    for name, ref in sorted(metadata.refs.items()):
        names.setdefault(ref.snapshot_id, []).append(name)
    return [
        {
            "snapshot_id": each.id,
            "parent_id": each.parent_id,
            "timestamp": each.timestamp_ms if each.timestamp_ms in TIMES_MS else None,
            "operation": each.operation,
            **{column: each.count(key) for column, key in _FIGURES.items()},
            "refs": names.get(each.id, []),
            "summary": list(each.summary.items()),
        }
        for each in snapshots
    ]
