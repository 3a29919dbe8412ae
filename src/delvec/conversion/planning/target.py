"""The Iceberg table that is converted into, as it was when the plan was made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from delvec.conversion.copies.placing import copy_paths, copy_pattern, planned_paths
from delvec.conversion.planning.target_files import NO_FILES, list_target_files, target_paths
from delvec.conversion.vectors.known_ids import stored_ids
from delvec.errors import PlanError
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, SparkSession

    from delvec.conversion.planning.target_files import TargetFiles
    from delvec.iceberg.client.catalog import LoadedTable, TableName
    from delvec.storage import Storage

__all__ = ["Target", "target_format_version"]

_NEWEST_FORMAT: Final = 3


@dataclass(frozen=True)
class Target:
    """A target, whether it exists or not.

    Attributes:
        table: The table; None if it does not exist yet.
        format_version: Of Iceberg's format: that of the table, or that of the one to be created.
    """

    spark: SparkSession
    name: TableName
    table: LoadedTable | None
    format_version: int

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties; none of a table that does not exist."""
        return {} if self.table is None else self.table.metadata.properties

    @cached_property
    def storage(self) -> Storage:
        """The location of a table that exists."""
        if self.table is None:
            raise AssertionError("the target does not exist")
        return open_storage(self.spark, local_path(self.table.metadata.location))

    @property
    def location(self) -> str | None:
        """Where the table is; None if it does not exist."""
        return None if self.table is None else self.storage.root

    def possible_paths(self, root: str, paths: pa.Array) -> pa.Array:
        """Return the planned paths that data files may have: shared ones, then copies.

        Args:
            root: The path or URI of the Delta table.
            paths: Decoded paths of its files.
        """
        shared = target_paths(root, paths)
        return pa.concat_arrays([shared, copy_paths(shared)])

    def planned_paths(self, paths: pa.Array) -> pa.Array:
        """Return the planned paths of the target's data files, by which they are compared."""
        return planned_paths(paths, self.location)

    def files(self, paths: pa.Array | None) -> TargetFiles:
        """Return the files of `main`: those of some planned paths, or all of them for None."""
        head = None if self.table is None else self.table.metadata.head()
        if self.table is None or head is None or (paths is not None and not len(paths)):
            return NO_FILES
        pattern, planned = copy_pattern(self.storage.root)

        def planned_path(path: Column) -> Column:
            return F.regexp_replace(path, pattern, planned % "$1")

        return list_target_files(self.table, head.id, paths, self._vector_ids, planned_path)

    def _vector_ids(self, deletes: pa.Table) -> pa.Array:
        columns = ("file_path", "content_offset", "file_format")
        paths, offsets, formats = (deletes.column(name).combine_chunks() for name in columns)
        return stored_ids(paths, offsets, formats, self.storage)


def target_format_version(name: TableName, table: LoadedTable | None, wanted: int | None) -> int:
    """Return the format version of a target.

    Args:
        name: The target.
        table: The table; None if it does not exist.
        wanted: The format version that was asked for, if any.

    Raises:
        PlanError: The table has another format version than the one asked for.
    """
    if table is None:
        return wanted or _NEWEST_FORMAT
    found = table.metadata.format_version
    if wanted not in (None, found):
        raise PlanError(
            f"{name} has format {found}, not {wanted}",
            hint="omit format_version, or convert into another table",
        )
    return found
