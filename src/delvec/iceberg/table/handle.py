"""A handle on an Iceberg table: its name, and the properties of its newest metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from delvec.calls import Explained, describe_value
from delvec.errors import DelvecError, InvalidArgumentError, TableNotFoundError
from delvec.iceberg.client.catalog import (
    LoadedTable,
    TableName,
    catalog_of,
    find_table,
    iceberg_view,
    is_metadata_table,
    load_table,
    table_name,
)
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.metadata import IcebergSnapshot, find_snapshot, suggest_name
from delvec.iceberg.client.own_location import require_allowed
from delvec.identifiers import quote_if_needed
from delvec.spark import jvm
from delvec.spark.engine import allowed_paths, time_zone

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession
    from typing_extensions import Self


@dataclass(frozen=True)
class TableHandle(metaclass=Explained):
    """The base of all commands: a session, and the name of a table in one of its catalogs."""

    spark: SparkSession
    identifier: TableName
    allow_paths: tuple[str, ...] | None = None
    _allowed: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse anything but a parsed name."""
        given: object = self.identifier
        if not isinstance(given, TableName):
            kind = type(self).__name__
            raise InvalidArgumentError(
                f"{kind}(...) does not open a table",
                hint=f'call {kind}.for_name(spark, "catalog.database.table")',
            )

    @classmethod
    def for_name(
        cls, spark: SparkSession, identifier: str, *, allow_paths: Sequence[str] | None = None
    ) -> Self:
        """Open a table by its name.

        Args:
            spark: The session, with the catalog of the table.
            identifier: The name, `catalog.database.table`; catalog and database default to the
                session's current.
            allow_paths: Prefixes of paths outside of the table's location that it may lead to;
                everything else outside is refused then. The session's `spark.delvec.allowedPaths`
                holds as well.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidArgumentError: It does not name a table of an Iceberg catalog.
            MissingDependencyError: The session runs without Iceberg.
            UnsupportedFeatureError: The session is a Spark Connect client.
        """
        _require_arguments(spark, identifier)
        if jvm.is_classic(spark):
            jvm.require_running(spark, f"opening {identifier}")
        name = table_name(spark, identifier)
        if is_metadata_table(spark, name):
            whole = TableName(name.catalog, name.namespace[:-1], name.namespace[-1])
            raise InvalidArgumentError(
                f"{identifier} names a metadata table", hint=f"open {whole} instead"
            )
        if find_table(spark, name) is None:
            raise TableNotFoundError(
                f"there is no table {name}", table=str(name), hint=_hint(spark, name)
            )
        if isinstance(allow_paths, str):
            allow_paths = [allow_paths]
        return cls(spark, name, None if allow_paths is None else tuple(allow_paths))

    @property
    def name(self) -> str:
        """The full name of the table, as SQL takes it."""
        return str(self.identifier)

    @property
    def location(self) -> str:
        """Where the table is."""
        return self._load().metadata.location

    @property
    def schema(self) -> StructType:
        """The columns, as Spark has them."""
        table = self._load()
        convert = iceberg_view(table.spark).spark.SparkSchemaUtil.convert
        return StructType.fromJson(json.loads(convert(table.current.schema()).json()))

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties, such as `write.delete.equality-vector.enabled`."""
        return dict(self._load().metadata.properties)

    @property
    def format_version(self) -> int:
        """The version of Iceberg's format: 1, 2 or 3."""
        return self._load().metadata.format_version

    @property
    def uuid(self) -> str:
        """The UUID of the table; one that is made again under the same name has another."""
        return self._load().metadata.uuid

    @property
    def spec(self) -> Mapping[str, Any]:
        """The default partition spec, in Iceberg's JSON form."""
        return self._load().metadata.spec

    def _load(self) -> LoadedTable:
        """Return the table as its catalog has it now: Iceberg's own objects go stale."""
        jvm.require_running(self.spark, f"reading {self.identifier}")
        table = load_table(self.spark, self.identifier)
        version = f"{table.current.metadataFileLocation()} {allowed_paths(self.spark)}"
        if version not in self._allowed:
            require_allowed(table, self.allow_paths)
            self._allowed.add(version)
        return table

    def _snapshot(
        self,
        table: LoadedTable,
        branch: str | None = None,
        snapshot_id: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> IcebergSnapshot | None:
        """Return the snapshot that the arguments of a read name; None for an empty `main`."""
        return find_snapshot(
            table.metadata,
            self.name,
            branch=branch,
            tag=tag,
            snapshot_id=snapshot_id,
            timestamp=timestamp,
            time_zone=time_zone(self.spark),
        )


def _require_arguments(spark: object, identifier: str) -> None:
    if spark is None or not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(
            f"{identifier} is looked up in the catalog of a Spark session, and"
            f" {describe_value(spark)} is"
            " none",
            hint="start one by delvec.session(), which has the Iceberg catalog lake",
        )
    if "/" in identifier:
        raise InvalidArgumentError(
            f"{identifier} is a path, and an Iceberg table is opened by its name",
            hint='call for_name(spark, "catalog.database.table"); a Delta table is opened by'
            f" DeltaTable.for_path(spark, {identifier!r})",
        )
    if not identifier.strip():
        raise InvalidArgumentError(
            "the name of a table must not be empty",
            hint='call for_name(spark, "catalog.database.table")',
        )


def _hint(spark: SparkSession, name: TableName) -> str | None:
    """Return what to do about a missing table: the one that was meant, or those that there are."""
    catalog, identifier = catalog_of(spark, name)
    try:
        with translate_errors(str(name)):
            tables = catalog.listTables(identifier.namespace())
            names = [str(each.name()) for each in jvm.items(tables)]
    except TableNotFoundError:
        database = ".".join(map(quote_if_needed, (name.catalog, *name.namespace)))
        return f"there is no database {database}"
    except DelvecError:  # a catalog that does not list its tables
        return None
    return suggest_name(name.table, names, "table in that database")
