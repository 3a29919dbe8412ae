"""A handle on a Delta table: where it is, its versions, and the properties of the newest."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from delvec.calls import explained_calls
from delvec.delta.log.commit_times import version_at
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.table.arguments import require_session
from delvec.delta.table.missing import explain_missing
from delvec.delta.table.opening import open_storage
from delvec.delta.write.engine import NoEngine
from delvec.delta.write.options import CheckedOptions, WriteOptions
from delvec.errors import InvalidArgumentError, TableNotFoundError
from delvec.spellings import Explained, explain_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.protocol import Protocol
    from delvec.delta.schema.types import StructType
    from delvec.delta.write.engine import Engine
    from delvec.delta.write.report import WriteReport
    from delvec.delta.write.transaction import Attempt, Outcome
    from delvec.storage import Storage

__all__ = ["TableHandle"]

# DataFrames whose columns are known: a service may ask for one each second, for years.
_KEPT: Final = 1000


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class TableHandle(metaclass=Explained):
    """The base of all commands: the storage of a table, and the session if there is one."""

    storage: Storage
    spark: SparkSession | None = None
    _latest: list[Snapshot] = field(default_factory=list, repr=False, compare=False)
    _lock: Any = field(default_factory=Lock, repr=False, compare=False)
    # The columns of the last DataFrames that `to_df` returned, for conditions made of them.
    _given: deque[Any] = field(
        default_factory=lambda: deque(maxlen=_KEPT), repr=False, compare=False
    )

    if not TYPE_CHECKING:  # to a type checker these names do not exist

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            raise explain_name(type(self), name)

    @classmethod
    def for_path(
        cls,
        spark: SparkSession | None,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, object] | None = None,
        *,
        allow_paths: Sequence[str] | None = None,
    ) -> Self:
        """Open the table in a folder.

        Args:
            spark: The session that reads and writes rows; None for calls that need none.
            path: A path or URI, see `Storage.open`.
            storage_options: Keys and endpoints, in obstore's spellings or deltalake's; the
                session's Hadoop configuration supplies what they omit. They are for the table's own
                bucket or container; `{"s3://other": {...}}` are those of another.
            allow_paths: Prefixes of paths outside of the table's folder that it may lead to, as a
                clone does; everything else outside is refused then. The session's
                `spark.delvec.allowedPaths` holds as well.

        Raises:
            TableNotFoundError: There is no Delta table.
            UnsupportedFeatureError: The table needs a reader feature that delvec does not support.
        """
        table = cls._at(spark, path, storage_options, allow_paths)
        table._require_table(path)  # noqa: SLF001
        return table

    @classmethod
    def _at(
        cls,
        spark: SparkSession | None,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, object] | None,
        allow_paths: Sequence[str] | None = None,
    ) -> Self:
        """Return a handle without checking that there is a table."""
        require_session(spark, path)
        return cls(open_storage(spark, path, storage_options, allow_paths), spark)

    def _require_table(self, path: str | os.PathLike[str]) -> None:
        """Refuse a path without a table, and say what is there instead."""
        try:
            self.snapshot()
        except TableNotFoundError as error:
            raise explain_missing(self.storage, path, error) from None

    @classmethod
    def for_name(
        cls, spark: SparkSession, identifier: str, *, allow_paths: Sequence[str] | None = None
    ) -> Self:
        """Open a table by its name in the session's catalog, or `` delta.`/path` ``.

        Args:
            spark: The session.
            identifier: The name.
            allow_paths: See `for_path`.

        Raises:
            TableNotFoundError: The catalog has no such table, or it is not a Delta table.
        """
        from delvec.spark.catalogs import location_of  # noqa: PLC0415

        require_session(spark, identifier)
        if spark is None:
            raise InvalidArgumentError(
                f"{identifier} is looked up in the catalog of a Spark session, and there is none",
                hint="open the table by its path: for_path(None, path)",
            )
        return cls.for_path(spark, location_of(spark, identifier), allow_paths=allow_paths)

    @staticmethod
    def is_delta_table(
        path: str | os.PathLike[str],
        storage_options: Mapping[str, object] | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> bool:
        """Return whether a folder holds a Delta table, readable by delvec or not."""
        return TableHandle._at(spark, path, storage_options).exists()

    def exists(self) -> bool:
        """Return whether the table exists at this moment."""
        try:
            find_segment(self.storage)
        except TableNotFoundError:
            return False
        return True

    def snapshot(
        self, version: int | None = None, timestamp: datetime | str | None = None
    ) -> Snapshot:
        """Open the newest version, a version by number, or the one that was current at a time.

        Raises:
            InvalidArgumentError: There is no such version, or both are given.
        """
        if version is not None and timestamp is not None:
            raise InvalidArgumentError("a version and a timestamp: name one of them")
        if timestamp is not None:
            version = version_at(self.storage, timestamp, time_zone=self.time_zone)
        if version is not None:
            return open_snapshot(self.storage, version)
        with self._lock:
            segment = find_segment(self.storage)
            if not self._latest or self._latest[0].segment != segment:
                self._latest[:] = [open_snapshot(self.storage, segment=segment)]
            return self._latest[0]

    @property
    def time_zone(self) -> str:
        """The zone of timestamps that name none: the session's, or UTC without a session."""
        if self.spark is None:
            return "UTC"
        from delvec.spark.conf import time_zone  # noqa: PLC0415

        return time_zone(self.spark)

    @property
    def version(self) -> int:
        """The newest version."""
        return self.snapshot().version

    @property
    def schema(self) -> StructType:
        """The columns of the newest version."""
        return self.snapshot().metadata.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns of the newest version, in order."""
        return self.snapshot().metadata.partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties, such as `delta.enableDeletionVectors`."""
        return self.snapshot().metadata.configuration

    @property
    def protocol(self) -> Protocol:
        """The protocol that readers and writers must support."""
        return self.snapshot().protocol

    def _session(self, what: str, instead: str | None = None) -> SparkSession:
        if self.spark is None:
            raise InvalidArgumentError(
                f"{what} needs a Spark session, and this table was opened without one",
                hint="pass a session to for_path" + (f", or use {instead}" if instead else ""),
            )
        return self.spark

    def run(
        self, operation: str, prepare: Callable[[Attempt], Outcome], options: WriteOptions
    ) -> WriteReport:
        """Run an operation on the newest version; all methods that change a table call it."""
        from delvec.delta.write.transaction import run  # noqa: PLC0415

        checked = CheckedOptions.of(**options)
        return run(self._engine(), self.snapshot, operation, prepare, checked)

    def _engine(self) -> Engine:
        if self.spark is None:
            return NoEngine()
        from delvec.spark.engine import SparkEngine  # noqa: PLC0415
        from delvec.spark.jvm import require_running  # noqa: PLC0415

        require_running(self.spark, f"writing to {self.storage.root}")
        return SparkEngine(self.spark)
