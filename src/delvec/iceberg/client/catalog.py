"""The door to Iceberg's library in the session's JVM: tables are named and opened here.

Nothing is assumed of the catalog: whatever Spark knows under a name serves, of any type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import InvalidArgumentError, MissingDependencyError, TableNotFoundError
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.metadata import TableMetadata
from delvec.identifiers import quote_if_needed
from delvec.spark import jvm
from delvec.spark.session.session import iceberg_coordinate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["IcebergTable", "TableName", "find_table", "iceberg_view", "load_table", "table_name"]

_LIBRARY: Final = "org.apache.iceberg.spark.Spark3Util"


@dataclass(frozen=True)
class TableName:
    """The name of a table, in full.

    >>> str(TableName("lake", ("db",), "orders-2026"))
    'lake.db.`orders-2026`'
    """

    catalog: str
    namespace: tuple[str, ...]
    table: str

    def __str__(self) -> str:
        return ".".join(map(quote_if_needed, (self.catalog, *self.namespace, self.table)))


@dataclass(frozen=True)
class IcebergTable:
    """A table as it was when it was loaded.

    Attributes:
        handle: Iceberg's own object, for `delvec.iceberg` alone.
    """

    spark: SparkSession
    name: TableName
    handle: Any
    metadata: TableMetadata


def table_name(spark: SparkSession, text: str) -> TableName:
    """Read a name as Spark does: what it leaves away is the session's current catalog and database.

    Raises:
        InvalidArgumentError: It is no name of a table, or its catalog is none of Iceberg's.
        MissingDependencyError: The session runs without Iceberg.
        UnsupportedFeatureError: The session is a Spark Connect client.
    """
    view = iceberg_view(spark)
    with explained(text):
        found = view.spark.Spark3Util.catalogAndIdentifier(jvm.session_of(spark), text)
        identifier = found.identifier()
        name = TableName(
            found.catalog().name(), tuple(identifier.namespace()), str(identifier.name())
        )
    if not _is_icebergs(spark, name.catalog):
        raise InvalidArgumentError(
            f"{text} names no table of an Iceberg catalog: {name.catalog} is none",
            hint="name it as catalog.database.table; is that catalog configured, by"
            " spark.sql.catalog.<name>?",
        )
    if not name.namespace:
        raise InvalidArgumentError(
            f"{text} names a table of no database", hint="name it as catalog.database.table"
        )
    return name


def find_table(spark: SparkSession, name: TableName) -> IcebergTable | None:
    """Load a table, as its catalog has it now; None if there is none."""
    with explained(str(name)):
        try:
            return _loaded(spark, name)
        except Exception as error:
            if "NoSuchTableException" in str(error):
                return None
            raise


def load_table(spark: SparkSession, name: TableName) -> IcebergTable:
    """Load a table, as its catalog has it now.

    Raises:
        TableNotFoundError: There is none.
    """
    table = find_table(spark, name)
    if table is None:
        raise TableNotFoundError(f"there is no table {name}", table=str(name))
    return table


def iceberg_view(spark: SparkSession) -> Any:  # noqa: ANN401
    """Give the package `org.apache.iceberg`.

    Raises:
        MissingDependencyError: The session runs without Iceberg.
        UnsupportedFeatureError: The session is a Spark Connect client.
    """
    view, things = jvm.view_of(spark), jvm.cache(spark)
    if "iceberg" not in things:
        if not jvm.class_exists(_LIBRARY):
            coordinate = iceberg_coordinate()
            raise MissingDependencyError(
                "this session runs without Iceberg's library",
                dependency=coordinate,
                hint=f"begin with delvec.session(), or add --packages {coordinate}",
            )
        things["iceberg"] = view.org.apache.iceberg
    return things["iceberg"]


def catalog_of(spark: SparkSession, name: TableName) -> tuple[Any, Any]:
    """Give Iceberg's catalog and identifier of a table, as Java's objects."""
    view = iceberg_view(spark)
    catalog = view.spark.Spark3Util.loadIcebergCatalog(jvm.session_of(spark), name.catalog)
    levels = jvm.array_of(spark, jvm.view_of(spark).java.lang.String, name.namespace)
    namespace = view.catalog.Namespace.of(levels)
    return catalog, view.catalog.TableIdentifier.of(namespace, name.table)


def _is_icebergs(spark: SparkSession, catalog: str) -> bool:
    plugin = jvm.session_of(spark).sessionState().catalogManager().catalog(catalog)
    loader = jvm.view_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    kind = loader.loadClass("org.apache.iceberg.spark.source.HasIcebergCatalog")
    return bool(kind.isInstance(plugin))


def _loaded(spark: SparkSession, name: TableName) -> IcebergTable:
    catalog, identifier = catalog_of(spark, name)
    handle = catalog.loadTable(identifier)
    handle.refresh()  # catalogs keep tables for a while
    current = handle.operations().current()
    text = iceberg_view(spark).TableMetadataParser.toJson(current)
    return IcebergTable(spark, name, handle, TableMetadata.from_json(text))
