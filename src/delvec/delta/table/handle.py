"""A handle on a Delta table: how it is opened, where it is, and its versions.

If there is no table at a path, a few more requests tell why, and what to do.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from delvec.calls import Explained, called_property
from delvec.delta.alter.operations import is_table
from delvec.delta.check.report import LOG_DAMAGE
from delvec.delta.log.history import find_version_at
from delvec.delta.log.paths import SIDECARS, parse_name
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.protocol import Protocol
from delvec.delta.schema.types import StructType
from delvec.delta.table.arguments import require_session
from delvec.delta.write import transaction
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import (
    Attempt,
    CheckedOptions,
    Engine,
    NoEngine,
    Outcome,
    WriteOptions,
)
from delvec.documents import LONG_MAX
from delvec.errors import InvalidArgumentError, StorageError, TableNotFoundError
from delvec.report.hints import Wording, format_hint, shell_word
from delvec.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

Opened = tuple[Storage, "SparkSession | None"]
_LOG: Final = "_delta_log"
_LOOKED_AT: Final = 1000  # files: one page of a listing
_ICEBERG: Final = re.compile(r"metadata/(?:version-hint\.text|[^/]+\.metadata\.json)$")
_NAME: Final = re.compile(r"\w+(?:\.\w+){1,2}")
# DataFrames whose columns are known: a service may ask for one each second, for years.
_KEPT: Final = 1000


class _Version(int):
    """A version; `t.version()`, as deltalake has it, is explained."""

    if not TYPE_CHECKING:

        def __call__(self) -> None:
            raise called_property("version")


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

        One with a damaged checkpoint can be opened, so that `check()` can be asked; calls that read
        the log raise the damage.

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
        """Refuse a path without a table, and say what is there instead.

        With a damaged checkpoint it is one: `check()` has to be reached, which may go on by the
        commits. Every other call that reads the log raises the damage.
        """
        try:
            self.snapshot()
        except TableNotFoundError as error:
            raise explain_missing(self.storage, path, error) from None
        except LOG_DAMAGE as error:
            if not _is_of_checkpoint(error):
                raise

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
        from delvec.spark.engine import location_of  # noqa: PLC0415

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
        return is_table(self.storage)

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
            version = find_version_at(self.storage, timestamp, time_zone=self.time_zone)
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
        from delvec.spark.engine import time_zone  # noqa: PLC0415

        return time_zone(self.spark)

    @property
    def version(self) -> int:
        """The newest version."""
        return _Version(self.snapshot().version)

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
        checked = CheckedOptions.of(**options)
        run = partial(transaction.run, self._engine(), self.snapshot, operation, prepare, checked)
        if self.spark is None:
            return run()
        from delvec.spark.jobs import restart_if_lost  # noqa: PLC0415

        return restart_if_lost(run)

    def _engine(self) -> Engine:
        if self.spark is None:
            return NoEngine()
        from delvec.spark.engine import SparkEngine  # noqa: PLC0415
        from delvec.spark.jvm import require_running  # noqa: PLC0415

        require_running(self.spark, f"writing to {self.storage.root}")
        return SparkEngine(self.spark)


def run_with(
    table: TableHandle,
    rows: DataFrame,
    operation: str,
    prepare: Callable[[DataFrame], Callable[[Attempt], Outcome]],
    options: WriteOptions,
) -> WriteReport:
    """Run an operation with rows of the caller, which are staged once for all its attempts."""
    from delvec.spark.jobs import restart_if_lost, stage_rows  # noqa: PLC0415

    checked, engine = CheckedOptions.of(**options), table._engine()  # noqa: SLF001

    def run() -> WriteReport:
        with engine.translate_errors(table.storage.root), stage_rows(rows) as staged:
            change = prepare(staged)
            return transaction.run(engine, table.snapshot, operation, change, checked)

    return restart_if_lost(run)


def open_storage(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None,
    allow_paths: Sequence[str] | None = None,
) -> Storage:
    """Open a path or URI, with the credentials and the fence of the session if there is one."""
    if spark is None:
        return Storage.open(path, storage_options, allow_paths=[allow_paths])
    from delvec.spark import engine  # noqa: PLC0415

    return engine.open_storage(spark, path, storage_options, allow_paths)


def opened(
    first: object,
    second: object,
    storage_options: Mapping[str, object] | None,
    allow_paths: Sequence[str] | None,
) -> Opened:
    """Return what the arguments of `DeltaTable(...)` name: a path, or a session and a path."""
    if isinstance(first, Storage):
        return first.narrowed(allow_paths), second  # type: ignore[return-value]
    if isinstance(first, str | os.PathLike):
        if second is not None:
            raise InvalidArgumentError(
                f"DeltaTable({os.fspath(first)!r}, ...) takes a path, or a session and a path",
                hint="call DeltaTable(spark, path), or DeltaTable(path, storage_options={...})",
            )
        first, second = active_session(), first
    require_session(first, second)
    storage = open_storage(first, second, storage_options, allow_paths)  # type: ignore[arg-type]
    return storage, first  # type: ignore[return-value]


def active_session() -> SparkSession | None:
    """Return the session of this process, if it has one; starts nothing."""
    if "pyspark.sql" not in sys.modules:
        return None
    from delvec.spark.jvm import active_session as found  # noqa: PLC0415

    return found()


def explain_missing(
    storage: Storage, path: str | os.PathLike[str], error: TableNotFoundError
) -> TableNotFoundError:
    """Return the error for a path without a table, with what is there instead and the next step."""
    root, given = storage.root, os.fspath(path)
    try:
        keys = [each.key for each in islice(storage.list(recursive=True), _LOOKED_AT)]
    except StorageError:  # of a store that may be read, but not listed
        return error
    if any(_ICEBERG.search(key) for key in keys):
        return _error(
            root,
            "it is the folder of an Iceberg table",
            Wording(
                'open it by its name: IcebergTable.for_name(spark, "catalog.database.table")',
                "give its name in a catalog, such as lake.db.orders",
            ),
        )
    if any(key.endswith(".parquet") and not key.startswith(_LOG) for key in keys):
        return _error(
            root,
            f"it holds Parquet files and no {_LOG}",
            format_hint(
                "make it one, without a copy: {}; or is a folder above it the table's?",
                _made(f"convert_to_delta(None, {given!r})", f"convert-to-delta {_word(given)}"),
            ),
        )
    if keys:
        return error
    return _nothing(storage, given)


def _nothing(storage: Storage, given: str) -> TableNotFoundError:
    """Return the error for a path that is no folder, or an empty one."""
    root = storage.root
    if _is_file(storage):
        return _error(root, "it is a file", f"name the folder of the table, which holds {_LOG}")
    if _NAME.fullmatch(given):
        return _error(
            root,
            "there is no such folder, and it looks like the name of a table",
            f"open it by DeltaTable.for_name(spark, {given!r}), an Iceberg table by"
            f" IcebergTable.for_name(spark, {given!r})",
        )
    made = _made(f"create(spark, {given!r}, schema)", f"create {_word(given)} --schema ...")
    return _error(
        root,
        "there is no such folder, or it is empty",
        format_hint("check the path, or make a table by {}", made),
    )


def _is_of_checkpoint(error: Exception) -> bool:
    """Return whether damage is that of a checkpoint or its sidecar, by the file that it names."""
    file = getattr(error, "path", None) or getattr(error, "uri", None)
    if file is None:  # raised by Arrow, which reads checkpoints only
        return True
    folder, _, name = file.rpartition("/")
    parsed = parse_name(name)
    is_checkpoint = parsed is not None and parsed.kind == "checkpoint" and parsed.last <= LONG_MAX
    return is_checkpoint or folder.endswith(SIDECARS)


def _made(python: str, command: str) -> Wording:
    return Wording(f"DeltaTable.{python}", f"delvec {command}")


def _word(path: str) -> str:
    return shell_word(path, is_path=True)


def _is_file(storage: Storage) -> bool:
    """Return whether a path is that of a file; of folders without any, only this tells."""
    try:
        parent, key = Storage.open_file(storage.root, storage.options)
        return parent.exists(key)
    except (InvalidArgumentError, StorageError):  # it names a bucket, or may not be asked for
        return False


def _error(root: str, why: str, hint: str) -> TableNotFoundError:
    return TableNotFoundError(f"{root} is not a Delta table: {why}", table=root, hint=hint)
