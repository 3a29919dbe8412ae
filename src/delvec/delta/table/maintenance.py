"""Maintenance of a Delta table: commands that keep it fast and change none of its rows.

Those that rewrite files need a Spark session; restoring, cloning, statistics and deleting do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from delvec.calls import require_condition
from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.history import find_version_at
from delvec.delta.maintain.clone import clone, replace_by_clone
from delvec.delta.maintain.compaction import CompactionRule
from delvec.delta.maintain.convert_parquet import convert_to_delta
from delvec.delta.maintain.recompute_statistics import recompute_statistics
from delvec.delta.maintain.restore import restore
from delvec.delta.read.vectors import admit_files
from delvec.delta.table.arguments import by_name
from delvec.delta.table.handle import TableHandle
from delvec.delta.vacuum.log_cleanup import LogReport, clean_log
from delvec.delta.vacuum.vacuum import VacuumOptions, VacuumReport, vacuum
from delvec.delta.write.after_commit import write_manifests
from delvec.delta.write.change import Change
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import CheckedOptions, Outcome, WriteOptions
from delvec.errors import InvalidArgumentError
from delvec.storage.backend import locate
from delvec.storage.fence import require_own_host

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from typing_extensions import Unpack


@dataclass(frozen=True)
class TableMaintenance(TableHandle):
    """The commands that rewrite files, commit files which exist already, and delete what is dead.

    While files are rewritten, other writers need not wait: rows that they append stay, and rows
    that they delete meanwhile are deleted in the new files as well. Files that others rewrite
    meanwhile are left to them. The old files stay for readers of older versions until `vacuum()`.
    """

    def optimize(
        self,
        where: str | Column | None = None,
        *,
        target_file_size: int | None = None,
        max_deleted_ratio: float = 0.05,
        min_file_size: int | None = None,
        zorder_by: Sequence[str] = (),
        full: bool = False,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Put small files together, and rewrite files with many deleted rows without these.

            t.optimize(where="day = '2026-01-31'")

        Args:
            where: Only files that may have rows that satisfy it.
            target_file_size: Live bytes of files that become one, at most; by default what
                `delta.targetFileSize` says, else 256 MiB.
            max_deleted_ratio: A file with a larger share of deleted rows is rewritten, even alone.
            min_file_size: Files with fewer live bytes are put together; half of the target by
                default.
            zorder_by: Sort the rows by several columns at once, so that filters on any of them
                rule out most files. All files are rewritten, with one shuffle. A table that is
                clustered orders its new files by itself, by the columns of `cluster_by()`.
            full: Of a clustered table, order the files of earlier clustering columns as well.
            options: See `WriteOptions`.
        """
        require_condition("optimize({})", where)
        rule = partial(
            CompactionRule.of,
            target_size=target_file_size,
            min_size=min_file_size,
            max_deleted_ratio=max_deleted_ratio,
        )
        rule(self.snapshot().metadata)  # wrong numbers are refused even if there is nothing to do
        self._session("optimize()")
        chosen = by_name(self, where)
        from delvec.spark.delta.maintain.zorder import optimize  # noqa: PLC0415

        return self.run("OPTIMIZE", optimize(rule, chosen, tuple(zorder_by), full=full), options)

    def purge(
        self, where: str | Column | None = None, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Rewrite exactly the files that have a deletion vector, without the deleted rows.

        And files that still have columns that were dropped, without these; their footers are read
        if a column ever was.

        Afterwards no live file holds rows that were deleted before; those that others delete
        meanwhile may be in a new one, and the report says so. Old files hold them until `vacuum()`
        removes these, which `traces()` shows.

        Args:
            where: Only files that may have rows that satisfy it, live or deleted.
            options: See `WriteOptions`.
        """
        from delvec.spark.delta.maintain.optimize import purge  # noqa: PLC0415

        require_condition("purge({})", where)
        self._session("purge()")
        return self.run("REORG", purge(by_name(self, where)), options)

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
            version = find_version_at(self.storage, timestamp, self.time_zone)
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
        replace: bool = False,
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
            replace: If there is a table already, and it has no rows, become its next version.
            storage_options: See `for_path`; those of this table by default.
            options: See `WriteOptions`.
        """
        place = self._at(self.spark, target, storage_options or self._options_at(target))
        newest = self.snapshot()
        source = newest
        if version is not None or timestamp is not None:
            source = self.snapshot(version, timestamp)
        if replace and place.exists():
            return place.run("CLONE", replace_by_clone(source, newest.version), options)
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
        """Make a folder of Parquet files a Delta table; no file is written again.

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

    def vacuum(
        self,
        retention_hours: float | None = None,
        *,
        dry_run: bool = False,
        lite: bool = False,
        force: bool = False,
        commit_metadata: str | None = None,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> VacuumReport:
        """Delete the files below the table that no version within the retention needs.

            t.vacuum(dry_run=True)
            t.vacuum()
            t.vacuum(retention_hours=0, force=True)     # if nobody else uses the table now

        Kept are the data and vector files of live rows, those that were removed within the
        retention, change files of that time, files modified since, and files whose names begin
        with `_` or `.`. Everything else below the table's folder is deleted, whoever put it there;
        other tables inside it are left alone. Nothing outside the folder is ever deleted.

        The log is read again before each 16,000 deletes: files that a concurrent commit refers to
        again, such as a RESTORE of a version older than the retention, are kept. A commit that
        lands within the seconds of such a wave may refer to files that are deleted then.

        Commits VACUUM START and VACUUM END, but nothing in a dry run. Needs no Spark session.

        Args:
            retention_hours: Keep what was removed or modified within so many hours; by default
                what the table says in `delta.deletedFileRetentionDuration`, or else 168.
            dry_run: Delete nothing: the report lists the files.
            lite: Do not list the folder: take the files from the commits since the last vacuum.
                Files of writers that died stay.
            force: Allow a retention that is shorter than the table's.
            commit_metadata: A string for the table's history.
            on_progress: Is called with what is done, how many files of it are done, and of how
                many, 0 if that is not known; from several threads.

        Raises:
            InvalidArgumentError: The retention is shorter than the table's and not forced; or a
                lite vacuum, of a table whose commits since the last vacuum were cleaned up.
            UnsupportedFeatureError: The table has a feature that delvec does not write.
        """
        options = VacuumOptions(retention_hours, dry_run, lite, force, on_progress)
        shown: WriteOptions = {"commit_metadata": commit_metadata}

        def put(change: Change) -> int:
            version = self.run(change.operation.name, lambda _: Outcome(change), shown).version
            if version is None:
                raise AssertionError("a change was committed")
            return version

        return vacuum(self.snapshot, put, options)

    def clean_log(self, *, dry_run: bool = False) -> LogReport:
        """Delete commits and checkpoints older than `delta.logRetentionDuration`, 30 days.

        Versions since then stay readable, with the checkpoint that they need: the newest at or
        before the version that was current at that time, cut to midnight UTC. Without such a
        checkpoint nothing is deleted. Versions before it can not be read any more. Data files are
        deleted by `vacuum`. Nothing is committed. Needs no Spark session.

        Args:
            dry_run: Delete nothing: the report tells what would be.

        Raises:
            UnsupportedFeatureError: The table has a feature that delvec does not write.
            FormatError: The checkpoint that would be needed is damaged; nothing was deleted.
        """
        return clean_log(self.snapshot(), dry_run=dry_run)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version and return its number.

        A snapshot is opened from the newest checkpoint and the commits after it, so opening this
        version takes less time. Every commit writes a checkpoint by itself where
        `delta.checkpointInterval` says that one is due.
        """
        snapshot = self.snapshot()
        write_checkpoint(snapshot)
        return snapshot.version
