"""Going back in time, statistics, clones and conversions: what changes the log and no data file.

No call here needs a Spark session.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delvec.calls import explained_calls
from delvec.delta.log.commit_times import version_at
from delvec.delta.log.symlink_manifest import write_manifests
from delvec.delta.maintain.clone import clone
from delvec.delta.maintain.convert_parquet import convert_to_delta
from delvec.delta.maintain.recompute_statistics import recompute_statistics
from delvec.delta.maintain.restore import restore
from delvec.delta.read.load_vectors import admit_files
from delvec.delta.table.handle import TableHandle
from delvec.delta.write.options import CheckedOptions, WriteOptions
from delvec.delta.write.report import WriteReport
from delvec.errors import InvalidArgumentError
from delvec.storage.location import locate
from delvec.storage.places import require_own_host

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

__all__ = ["TableRestore"]


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class TableRestore(TableHandle):
    """The commands that commit files which exist already."""

    def restore(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Make the newest version again what an earlier one was; what came since stays readable.

            t.restore(3)
            t.restore(timestamp="2026-01-31 10:00:00")

        Rows, schema and properties are those of the wanted version; the protocol never goes down.
        Every data file and every file of deletion vectors that comes back has to exist.

        Args:
            version: The version.
            timestamp: Instead of `version`: a time; the version that was current then.
            options: See `WriteOptions`.

        Raises:
            ObjectNotFoundError: A file of that version is gone; nothing was changed.
            InvalidArgumentError: There is no such version, or a VACUUM may delete files of it at
                any moment.
        """
        if (version is None) == (timestamp is None):
            raise InvalidArgumentError(
                "restore() takes a version or a timestamp",
                hint="call restore(version=3), or restore(timestamp='2026-01-31 10:00:00')",
            )
        asked: dict[str, Any] = {"version": version}
        if timestamp is not None:
            asked = {"timestamp": str(timestamp)}
            version = version_at(self.storage, timestamp, self.time_zone)
        return self.run("RESTORE", restore(int(version or 0), asked), options)

    def recompute_statistics(
        self, where: Sequence[object] | None = None, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Compute statistics of files that have none, or wide bounds, from their live rows.

        Deletion vectors leave the bounds of their files as wide as before. With tight ones, queries
        skip files in which all rows of interest are deleted. No data file is written.

            t.recompute_statistics([("day", ">=", "2026-01-01")])

        Args:
            where: Tuples about partition columns, which choose the files; all by default.
            options: See `WriteOptions`.
        """
        return self.run("COMPUTE STATS", recompute_statistics(where, self.time_zone), options)

    def clone(
        self,
        target: str | os.PathLike[str],
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Create a table that shares the data files of this one; a shallow clone.

        Both can be changed independently of each other, but a VACUUM of this table deletes files
        that only the clone still needs.

        Args:
            target: The folder of the new table, on the same kind of store; it is empty or does not
                exist yet.
            version: The version that is cloned; the newest by default.
            timestamp: Instead of `version`: a time; the version that was current then.
            storage_options: See `for_path`; those of this table by default.
            options: See `WriteOptions`.
        """
        place = self._at(self.spark, target, storage_options or self._options_at(target))
        newest = self.snapshot()
        source = newest
        if version is not None or timestamp is not None:
            source = self.snapshot(version, timestamp)
        return clone(source, newest.version, place.storage, CheckedOptions.of(**options))

    def _options_at(self, target: str | os.PathLike[str]) -> dict[str, str]:
        """Return this table's options for another folder, as far as they can be meant for it."""
        place, options = locate(os.fspath(target)), self.storage.given_options
        if place.home != locate(self.storage.root).home:
            require_own_host(place, options)
        return options

    def generate_manifest(self) -> int:
        """Write symlink manifests of the newest version and return its number.

        Presto, Athena and others read the Parquet files that these list.

        Raises:
            UnsupportedFeatureError: A file has a deletion vector, which such readers ignore.
        """
        snapshot = self.snapshot()
        admit_files(self.storage, snapshot.files)
        write_manifests(snapshot)
        return snapshot.version

    @classmethod
    def convert_to_delta(
        cls,
        spark: SparkSession | None,
        path: str | os.PathLike[str],
        partition_by: Any = None,  # noqa: ANN401
        properties: Mapping[str, Any] | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Make a folder of Parquet files a Delta table; no file is written anew.

            DeltaTable.convert_to_delta(None, "/lake/orders", {"day": "date"})

        Deletion vectors are switched on unless a property says otherwise, as by `create`. A folder
        that is a Delta table already is left as it is.

        Args:
            spark: The session whose configuration opens the folder; None without one.
            path: The folder.
            partition_by: The partition columns, whose values are in the names of folders
                (`day=2026-01-31/`): a mapping from names to types. Names alone, or nothing at all,
                if integers, dates and words tell their types by themselves.
            properties: Table properties.
            storage_options: See `for_path`.
            options: See `WriteOptions`.

        Raises:
            TableNotFoundError: The folder does not exist, or is empty.
            InvalidArgumentError: Its files do not make one table.
            UnsupportedFeatureError: It is a table of another format, or a column has a type that
                Delta does not have.
        """
        checked = CheckedOptions.of(**options)
        table = cls._at(spark, path, storage_options)
        if table.exists():
            root, note = table.storage.root, "the folder is a Delta table already"
            return WriteReport("CONVERT", root, dry_run=checked.dry_run, notes=(note,))
        return convert_to_delta(table.storage, partition_by, properties, checked)
