"""Names of Iceberg tables, and loading them from their catalog.

Any catalog that Spark knows by name will do, whatever its type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from delvec import errors
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.metadata import TableMetadata
from delvec.identifiers import quote_if_needed
from delvec.report.hints import Wording
from delvec.spark import jvm
from delvec.spark.engine import open_storage
from delvec.spark.session.iceberg_runtime import iceberg_coordinate
from delvec.storage import Storage
from delvec.storage.listed_files import local_path

_LIBRARY: Final = "org.apache.iceberg.spark.Spark3Util"


@dataclass(frozen=True)
class TableName:
    """The full name of a table.

    >>> str(TableName("lake", ("db",), "orders-2026"))
    'lake.db.`orders-2026`'
    """

    catalog: str
    namespace: tuple[str, ...]
    table: str

    def __str__(self) -> str:
        return ".".join(map(quote_if_needed, (self.catalog, *self.namespace, self.table)))


@dataclass(frozen=True)
class LoadedTable:
    """A table as it was when it was loaded.

    Attributes:
        handle: Iceberg's own object, for `delvec.iceberg` alone.
        metadata: Its metadata, which later commits do not change.
        current: The same metadata as Iceberg's own object, for `delvec.iceberg` alone.
    """

    spark: SparkSession
    name: TableName
    handle: Any
    metadata: TableMetadata
    current: Any

    def storage(self) -> Storage:
        """Open its location, by the settings of the session."""
        return open_storage(self.spark, local_path(self.metadata.location))


def table_name(spark: SparkSession, identifier: str) -> TableName:
    """Parse an identifier as Spark does; catalog and database default to the session's current."""
    view = iceberg_view(spark)
    jvm.activate(spark)
    with translate_errors(identifier):
        found = view.spark.Spark3Util.catalogAndIdentifier(jvm.session_of(spark), identifier)
        parsed = found.identifier()
        name = TableName(found.catalog().name(), tuple(parsed.namespace()), str(parsed.name()))
    plugin = jvm.session_of(spark).sessionState().catalogManager().catalog(name.catalog)
    if not is_instance(spark, plugin, "org.apache.iceberg.spark.source.HasIcebergCatalog"):
        raise errors.InvalidArgumentError(
            f"{identifier} does not name a table of an Iceberg catalog: {name.catalog} is not one",
            hint="name it as catalog.database.table; is that catalog configured, by"
            " spark.sql.catalog.<name>?",
        )
    if "${" in str(name):
        raise errors.InvalidArgumentError(
            f"the name of the table {name} has ${{ in it, by which Spark's parser finds variables",
            hint="rename the table, by a catalog's own means",
        )
    if not name.namespace:
        raise errors.InvalidArgumentError(
            f"{identifier} names a table without a database",
            hint="name it as catalog.database.table",
        )
    return name


def find_table(spark: SparkSession, name: TableName) -> LoadedTable | None:
    with translate_errors(str(name)):
        try:
            catalog, identifier = catalog_of(spark, name)
            handle = catalog.loadTable(identifier)
            handle.refresh()  # catalogs cache tables
            current = handle.operations().current()
            metadata = parse_metadata(spark, current)
        except errors.FormatError as error:
            error.message = f"the metadata of {name} are wrong: {error.message}"
            raise
        except Exception as error:
            if "NoSuchTableException" in str(error):
                return None
            raise
    return LoadedTable(spark, name, handle, metadata, current)


def load_table(spark: SparkSession, name: TableName) -> LoadedTable:
    """Return a table as its catalog has it now."""
    table = find_table(spark, name)
    if table is None:
        raise errors.TableNotFoundError(f"there is no table {name}", table=str(name))
    return table


def reload_table(table: LoadedTable) -> LoadedTable:
    newest = load_table(table.spark, table.name)
    require_same_table(newest, table.metadata.uuid)
    return newest


def require_same_table(newest: LoadedTable, uuid: str) -> None:
    """Refuse another table that has the same name now."""
    found = newest.metadata.uuid
    if found != uuid:
        raise errors.ConflictError(
            f"{newest.name} was dropped and made again by somebody else: expected UUID {uuid},"
            f" found {found}",
            retryable=False,
            hint="if the new table is the one to change, open it and run this again",
        )


def is_metadata_table(spark: SparkSession, name: TableName) -> bool:
    """Whether a name is that of a metadata table, such as `db.orders.files`, and of no other."""
    catalog, identifier = catalog_of(spark, name)
    with translate_errors(str(name)):
        try:
            handle = catalog.loadTable(identifier)
        except Exception as error:
            if "NoSuchTableException" in str(error) or "NoSuchNamespaceException" in str(error):
                return False
            raise
        return is_instance(spark, handle, "org.apache.iceberg.BaseMetadataTable")


def pin_metadata(table: LoadedTable, metadata: Any) -> LoadedTable:  # noqa: ANN401
    """Return a table with other metadata of Iceberg's, which need not be committed."""
    view = iceberg_view(table.spark)
    io, places = table.handle.io(), table.handle.locationProvider()
    operations = view.StaticTableOperations(metadata, io, places)
    handle = view.BaseTable(operations, str(table.name))
    return LoadedTable(
        table.spark, table.name, handle, parse_metadata(table.spark, metadata), metadata
    )


def parse_metadata(spark: SparkSession, metadata: Any) -> TableMetadata:  # noqa: ANN401
    """Return Iceberg's own metadata object as plain data."""
    found = iceberg_view(spark).TableMetadataParser.toJson(metadata)
    return TableMetadata.from_json(found, metadata.metadataFileLocation())


def iceberg_view(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return the Java package `org.apache.iceberg`."""
    view, cache = jvm.view_of(spark), jvm.cache(spark)
    if "iceberg" not in cache:
        if not jvm.class_exists(_LIBRARY):
            coordinate = iceberg_coordinate()
            raise errors.MissingDependencyError(
                "this session runs without Iceberg's library",
                dependency=coordinate,
                hint=Wording(
                    f"begin with delvec.session(), or add --packages {coordinate}",
                    f"add --package {coordinate}",
                ),
            )
        cache["iceberg"] = view.org.apache.iceberg
    return cache["iceberg"]


def catalog_of(spark: SparkSession, name: TableName) -> tuple[Any, Any]:
    """Return Iceberg's catalog and identifier of a table, as Java objects."""
    view = iceberg_view(spark)
    catalog = view.spark.Spark3Util.loadIcebergCatalog(jvm.session_of(spark), name.catalog)
    levels = jvm.array_of(spark, jvm.view_of(spark).java.lang.String, name.namespace)
    namespace = view.catalog.Namespace.of(levels)
    return catalog, view.catalog.TableIdentifier.of(namespace, name.table)


def is_instance(spark: SparkSession, value: Any, kind: str) -> bool:  # noqa: ANN401
    """Tell whether a Java object is of a class, or has an interface, by its full name."""
    loader = jvm.view_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    return bool(loader.loadClass(kind).isInstance(value))
