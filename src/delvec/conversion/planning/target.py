"""The Iceberg table that is converted into, and whether it can be continued.

That is: whose it is, who else has changed it, what it was reset to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from delvec.conversion.files.copies import copy_paths, copy_pattern, planned_paths
from delvec.conversion.files.vector_places import stored_ids
from delvec.conversion.planning import target_files, target_layout
from delvec.conversion.planning.options import Foreign
from delvec.conversion.planning.source_changes import commit_facts
from delvec.delta.log.snapshot import Snapshot
from delvec.documents import whole_number
from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable, TableName
from delvec.report.hints import Wording, argument, format_hint
from delvec.spark.engine import open_storage
from delvec.storage import Storage
from delvec.storage.listed_files import local_path

_NEWEST_FORMAT: Final = 3


@dataclass(frozen=True)
class Target:
    """A target, whether it exists or not."""

    spark: SparkSession
    name: TableName
    table: LoadedTable | None  # None if it does not exist yet
    format_version: int  # of the table, or of the one to be created

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties; none of a table that does not exist."""
        return {} if self.table is None else self.table.metadata.properties

    @cached_property
    def storage(self) -> Storage:
        if self.table is None:
            raise AssertionError("the target does not exist")
        return open_storage(self.spark, local_path(self.table.metadata.location))

    @property
    def location(self) -> str | None:
        return None if self.table is None else self.storage.root

    def possible_paths(self, root: str, paths: pa.Array) -> pa.Array:
        """Return the planned paths that data files may have: shared ones, then copies."""
        shared = target_files.target_paths(root, paths)
        return pa.concat_arrays([shared, copy_paths(shared)])

    def planned_paths(self, paths: pa.Array) -> pa.Array:
        """Return the planned paths of the target's data files, by which they are compared."""
        return planned_paths(paths, self.location)

    def files(self, paths: pa.Array | None) -> target_files.TargetFiles:
        """Return the files of `main`: those of some planned paths, or all of them for None."""
        head = None if self.table is None else self.table.metadata.head()
        if self.table is None or head is None or (paths is not None and not len(paths)):
            return target_files.NO_FILES
        pattern, planned = copy_pattern(self.storage.root)

        def planned_path(path: Column) -> Column:
            return F.regexp_replace(path, pattern, planned % "$1")

        return target_files.list_target_files(
            self.table, head.id, paths, self._vector_ids, planned_path
        )

    def _vector_ids(self, deletes: pa.Table) -> pa.Array:
        columns = ("file_path", "content_offset", "file_format")
        paths, offsets, formats = (deletes.column(name).combine_chunks() for name in columns)
        return stored_ids(paths, offsets, formats, self.storage)


@dataclass(frozen=True)
class ForeignChanges:
    """What others have changed of a target since the last conversion."""

    files: bool  # added or removed, or deletes
    layout: target_layout.LayoutChanges

    @property
    def what(self) -> str:
        """What they changed, as an error names it; empty if they changed nothing."""
        parts = {
            "files": self.files,
            "columns": bool(self.layout.columns),
            "the partition spec": bool(self.layout.partitions),
        }
        return " and ".join(name for name, changed in parts.items() if changed)


def target_format_version(name: TableName, table: LoadedTable | None, wanted: int | None) -> int:
    if table is None:
        return wanted or _NEWEST_FORMAT
    found = table.metadata.format_version
    if wanted not in (None, found):
        raise PlanError(
            f"{name} has format {found}, not {wanted}",
            hint=format_hint(
                "omit {}, or convert into another table", argument(format_version=None)
            ),
        )
    return found


def require_same_source(target: Target, source: Snapshot) -> None:
    expected = target_layout.source_id(source.metadata, source.table)
    found = target.properties.get(target_layout.SOURCE_ID)
    if found != expected:
        origin = f"was made from table {found}" if found else "was not made by a conversion"
        raise PlanError(
            f"{target.name} {origin}, not from {source.table} ({expected})",
            hint="convert into another table, or drop that one first",
        )


def foreign_changes(table: LoadedTable, progress: target_layout.Progress | None) -> ForeignChanges:
    """Return what others have changed since the last conversion.

    Lists the files of two snapshots if the newest one is not a conversion's.
    """
    layout, head = target_layout.layout_changes(table.metadata), table.metadata.head()
    if head is None or (progress is not None and progress.is_head):
        return ForeignChanges(files=False, layout=layout)
    if progress is None:
        return ForeignChanges(files=True, layout=layout)
    now, then = (
        target_files.list_target_files(table, snapshot_id, None, target_files.without_ids)
        for snapshot_id in (head.id, progress.snapshot.id)
    )
    return ForeignChanges(files=not now.same_files(then), layout=layout)


def foreign_note(
    table: LoadedTable,
    progress: target_layout.Progress | None,
    changes: ForeignChanges,
    foreign: Foreign,
) -> str:
    since = "" if progress is None else f" since version {progress.version} was converted"
    message = f"others have changed {changes.what} of {table.name}{since}"
    details = "; ".join((*changes.layout.columns, *changes.layout.partitions))
    if foreign == "refuse":
        raise PlanError(
            f"{message}: {details}" if details else message,
            hint=format_hint(
                "their changes are lost if you pass {}: the target then gets what the source says",
                Wording("foreign='overwrite'", "--overwrite-foreign"),
            ),
        )
    if changes.layout.lasting:
        raise PlanError(
            f"{message}, which cannot be taken back: {'; '.join(changes.layout.lasting)}",
            hint=f"drop {table.name} without PURGE and convert again",
        )
    note = f"{message}: taken back" + (f" ({details})" if details else "")
    if changes.layout.added:
        note += f"; dropped with all values: {', '.join(map(repr, changes.layout.added))}"
    return note


def documentation_note(table: LoadedTable) -> tuple[str, ...]:
    """Return a note if others changed comments or the order of columns, which are set again."""
    if not target_layout.layout_changes(table.metadata).is_documented:
        return ()
    return (f"comments or the order of columns of {table.name} were changed: taken back",)


def rollback_note(target: Target, progress: target_layout.Progress | None) -> tuple[str, ...]:
    newest = whole_number(target.properties.get(target_layout.SOURCE_VERSION))
    if progress is None or newest is None or newest <= progress.version:
        return ()
    return (f"{target.name} was rolled back from version {newest} to {progress.version}",)


def is_another_history(source: Snapshot, progress: target_layout.Progress) -> bool:
    """Tell whether the converted version of the source was replaced by another commit since.

    A source that was restored from a copy counts on from an older version.
    """
    if progress.transaction_id is None or progress.version > source.version:
        return False
    now = commit_facts(source, progress.version).transaction_id
    return now is not None and now != progress.transaction_id
