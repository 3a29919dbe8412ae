"""CREATE, REPLACE and CLONE of Delta tables by Spark's catalog, and tables made of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, StructField, StructType

from delvec.delta.alter.columns import without_mapping
from delvec.delta.alter.definition import MANAGED as _MANAGED
from delvec.delta.alter.operations import TableDescription
from delvec.delta.log.segment import Segment
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.traversal import nullable
from delvec.delta.table import DeltaTable
from delvec.door.commands import Rows, command
from delvec.door.known_tables import Known, java_table, known, path_of, shown_schema, table_of
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from delvec.identifiers import quote_if_needed
from delvec.spark import jvm
from delvec.spark.delta.write.create import create_with_rows, with_rows
from delvec.spark.engine import open_storage
from delvec.spark.jvm import Java
from delvec.spark.types import schema_of
from delvec.statements.clauses import Cursor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.schema.types import StructType as DeltaStruct

# What Spark's catalog keeps beside the properties of the user.
_RESERVED: Final = frozenset({"provider", "location", "comment", "owner", "external", "collation"})
_OPTION: Final = "option."


@dataclass(eq=False)
class StagedTable(Known):
    """A table that a CREATE or REPLACE is about to make, with its rows if it gets any."""

    how: str
    identifier: Java
    path: str
    is_external: bool
    registers: bool
    wanted: TableDescription
    of_writer: bool
    rows: DataFrame | None = None
    overwrite: Callable[[DeltaTable], None] | None = None


def stage(  # noqa: PLR0913, PLR0917
    spark: SparkSession,
    how: str,
    identifier: Java,
    title: str,
    path: str | None,
    columns: Java,
    partitions: Java,
    properties: Java,
    of_writer: bool,  # noqa: FBT001
) -> Java:
    """Return a table that is committed with its rows, as `DeltaTable.java`."""
    given = {str(key): str(properties.get(key)) for key in list(properties.keySet())}
    location = path or given.get("location")
    is_external = location is not None and "is_managed_location" not in given
    if location is None:
        location = default_location(spark, identifier)
    place = path_of(location)
    wanted = _description(columns, partitions, given)
    storage = open_storage(spark, place)
    if (
        not wanted.schema.fields
        and how == "create"
        and DeltaTable.is_delta_table(place, spark=spark)
    ):
        own = DeltaTable.for_path(spark, place).snapshot()
        wanted = replace(wanted, schema=own.metadata.schema)
    state = wanted.state()
    segment = Segment(-1, None, (), 0)
    snapshot = Snapshot(storage, segment, state.protocol, state.metadata, {}, {}, [], [])
    staged = StagedTable(
        title, snapshot, how, identifier, place, is_external, path is None, wanted, of_writer
    )
    return java_table(spark, staged, shown_schema(snapshot))


def commit_staged(spark: SparkSession, table: Java) -> None:
    """Commit a staged table, and register it in the catalog."""
    [staged] = [each for each in [known(table)] if isinstance(each, StagedTable)]
    exists = DeltaTable.is_delta_table(staged.path, spark=spark)
    if staged.how == "replace" and not exists:
        raise TableNotFoundError(
            f"there is no table {staged.name} to replace",
            table=staged.name,
            hint="CREATE OR REPLACE TABLE makes it",
        )
    if staged.rows is not None:
        _commit_rows(spark, staged, staged.rows, exists=exists)
    elif not exists or staged.how != "create":
        DeltaTable.create(
            spark,
            staged.path,
            staged.wanted.schema,
            staged.wanted.partition_by,
            staged.wanted.properties,
            mode="replace" if exists else "error",
            description=staged.wanted.description,
        )
    else:
        _require_same(spark, staged)
    if staged.registers:
        register(spark, staged.identifier, staged.path, is_external=staged.is_external)


def abort_staged(spark: SparkSession, table: Java) -> None:
    """Forget a staged table: nothing was written for it."""


def created_like(spark: SparkSession, plan: Java) -> Java | None:
    """Return the command for CREATE TABLE ... LIKE a Delta table."""
    names = plan.sourceTable(), plan.targetTable()
    source, target = ([str(each) for each in jvm.items(name.nameParts())] for name in names)
    provider = str(plan.provider().get()).lower() if plan.provider().isDefined() else "delta"
    found = table_of(spark, source)
    if found is None or provider != "delta":
        return None
    identifier = identifier_of(spark, target)
    location = plan.fileFormat().locationUri()
    given = {str(each._1()): str(each._2()) for each in jvm.items(plan.properties())}  # noqa: SLF001

    def carry_out() -> Rows:
        if is_registered(spark, identifier):
            if plan.ifNotExists():
                return []
            raise InvalidArgumentError(f"there is a table {'.'.join(target)} already")
        place = location.get().toString() if location.isDefined() else None
        path = path_of(place or default_location(spark, identifier))
        metadata = found.snapshot.metadata
        properties = {**metadata.configuration, **given}
        own = {key: value for key, value in properties.items() if key not in _MANAGED}
        schema, columns = without_mapping(metadata.schema), metadata.partition_columns
        DeltaTable.create(spark, path, schema, columns, own, description=metadata.description)
        register(spark, identifier, path, is_external=place is not None)
        return []

    return command(spark, f"CREATE TABLE {'.'.join(target)} LIKE", StructType([]), carry_out)


def definition_of(
    schema: StructType, partitions: Sequence[str], options: Mapping[str, str]
) -> TableDescription:
    """Return the definition of a table that a DataFrame writer makes."""
    properties = {key: value for key, value in options.items() if key.startswith("delta.")}
    columns = nullable(schema_of(schema))  # a writer of rows declares none of them NOT NULL
    return TableDescription(columns, tuple(partitions), properties, None, None)


def _commit_rows(
    spark: SparkSession, staged: StagedTable, rows: DataFrame, *, exists: bool
) -> None:
    if not exists:
        create_with_rows(spark, open_storage(spark, staged.path), staged.wanted, rows)
        return
    if staged.how == "create":
        raise InvalidArgumentError(
            f"there is a table at {staged.path} already", hint="CREATE OR REPLACE TABLE replaces it"
        )
    table = DeltaTable.for_path(spark, staged.path)
    if staged.overwrite is not None:
        staged.overwrite(table)
        return
    operation = "CREATE OR REPLACE TABLE AS SELECT"
    table.run(operation, with_rows(operation, staged.wanted, rows), {})


def _require_same(spark: SparkSession, staged: StagedTable) -> None:
    """Let CREATE TABLE adopt what is at a location, if it says nothing else of it."""
    own, wanted = DeltaTable.for_path(spark, staged.path).snapshot().metadata, staged.wanted
    properties = wanted.properties or {}
    for what, given, found in (
        ("columns", _shown(wanted.schema), _shown(own.schema)),
        ("partition columns", wanted.partition_by, own.partition_columns),
        ("properties", properties, {key: own.configuration.get(key) for key in properties}),
    ):
        if given and given != found:
            raise InvalidArgumentError(
                f"the table at {staged.path} has the {what} {found or 'none'}, not {given}",
                hint=f"omit the {what}, or name another location",
            )


def _shown(schema: DeltaStruct) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in schema.fields)


def _description(columns: Java, partitions: Java, given: Mapping[str, str]) -> TableDescription:
    schema = StructType([_field(column) for column in list(columns)])
    names = []
    for transform in list(partitions):
        if transform.name() != "identity":
            raise UnsupportedFeatureError(
                f"a Delta table is partitioned by columns, not by {transform.describe()}",
                feature=str(transform.name()),
                hint="partition by a generated column",
            )
        names.append(".".join(list(transform.references()[0].fieldNames())))
    properties = {
        key: value
        for key, value in given.items()
        if key not in _RESERVED
        and not key.startswith(_OPTION)
        and key not in ("is_managed_location", "table_type")
        and f"{_OPTION}{key}" not in given
    }
    return TableDescription(schema_of(schema), tuple(names), properties, None, given.get("comment"))


def _field(column: Java) -> StructField:
    """Return a column of Spark's catalog with the metadata that Delta keeps."""
    metadata: dict[str, Any] = {}
    if column.comment() is not None:
        metadata["comment"] = str(column.comment())
    if column.generationExpression() is not None:
        metadata["delta.generationExpression"] = str(column.generationExpression())
    if column.defaultValue() is not None:
        metadata["CURRENT_DEFAULT"] = str(column.defaultValue().getSql())
    identity = column.identityColumnSpec()
    if identity is not None:
        metadata["delta.identity.start"] = int(identity.getStart())
        metadata["delta.identity.step"] = int(identity.getStep())
        metadata["delta.identity.allowExplicitInsert"] = bool(identity.isAllowExplicitInsert())
    kind = DataType.fromDDL(column.dataType().sql())
    return StructField(str(column.name()), kind, bool(column.nullable()), metadata)


def identifier_of(spark: SparkSession, parts: Sequence[str]) -> Java:
    """Return the name of a table in the session's catalog, with its database."""
    manager = jvm.session_of(spark).sessionState().catalogManager()
    database = parts[-2] if len(parts) > 1 else next(iter(manager.currentNamespace()))
    identifiers = jvm.java_class(spark, "org.apache.spark.sql.connector.catalog.Identifier")
    strings = jvm.java_class(spark, "java.lang.String")
    return identifiers.of(jvm.array_of(spark, strings, [database]), parts[-1])


def is_registered(spark: SparkSession, identifier: Java) -> bool:
    """Tell whether the session's catalog has a table of this name."""
    catalog = jvm.session_of(spark).sessionState().catalog()
    return bool(catalog.tableExists(_table_identifier(spark, identifier)))


def default_location(spark: SparkSession, identifier: Java) -> str:
    """Return where a managed table of this name lies."""
    catalog = jvm.session_of(spark).sessionState().catalog()
    location = catalog.defaultTablePath(_table_identifier(spark, identifier))
    utils = jvm.java_class(spark, "org.apache.spark.sql.catalyst.catalog.CatalogUtils")
    return str(utils.URIToString(location))


def _table_identifier(spark: SparkSession, identifier: Java) -> Java:
    option = jvm.java_class(spark, "scala.Option")
    [database] = list(identifier.namespace())
    names = jvm.java_class(spark, "org.apache.spark.sql.catalyst.TableIdentifier")
    return names(str(identifier.name()), option.apply(database))


def register(spark: SparkSession, identifier: Java, path: str, *, is_external: bool) -> None:
    """Register a table as delta-spark does: without columns and properties, which the log has."""
    catalog = jvm.session_of(spark).sessionState().catalog()
    name = _table_identifier(spark, identifier)
    if catalog.tableExists(name):
        return
    tables = "org.apache.spark.sql.catalyst.catalog"
    option = jvm.java_class(spark, "scala.Option")
    kinds = jvm.java_class(spark, f"{tables}.CatalogTableType")
    location = option.apply(jvm.java_class(spark, "org.apache.hadoop.fs.Path")(path).toUri())
    none = jvm.java_class(spark, f"{tables}.CatalogStorageFormat").empty()
    rest = [none.productElement(number) for number in range(1, none.productArity())]
    storage = jvm.java_class(spark, f"{tables}.CatalogStorageFormat")(location, *rest)
    kind = kinds.EXTERNAL() if is_external else kinds.MANAGED()
    empty = jvm.java_type(spark, StructType([]))
    module = getattr(jvm.java_class(spark, f"{tables}.CatalogTable$"), "MODULE$")
    arguments = [name, kind, storage, empty, option.apply("delta")]
    # Versions of Spark add arguments, all with a default.
    methods = {method.getName() for method in list(module.getClass().getMethods())}
    while f"apply$default${len(arguments) + 1}" in methods:
        arguments.append(getattr(module, f"apply$default${len(arguments) + 1}")())
    catalog.createTable(jvm.java_class(spark, f"{tables}.CatalogTable")(*arguments), False, False)


def clone(
    spark: SparkSession, source: DeltaTable, target: Sequence[str], given: Mapping[str, Any]
) -> Rows:
    """Clone a version of a table, register the clone, and tell its files as delta-spark does."""
    name = ".".join(map(quote_if_needed, target))
    is_path = len(target) == 2 and target[0].lower() in ("delta", "delvec")
    identifier = None if is_path else identifier_of(spark, target)
    location = target[1] if identifier is None else given.get("location")
    path = path_of(location or default_location(spark, identifier))
    exists = DeltaTable.is_delta_table(path, spark=spark) or (
        identifier is not None and is_registered(spark, identifier)
    )
    if exists and given["if_not_exists"]:
        return []
    if exists and given["how"] == "replace":
        raise UnsupportedFeatureError(
            f"a clone does not replace {name}, which is there",
            feature="CREATE OR REPLACE TABLE ... CLONE",
            hint="DROP TABLE it, or clone to another name",
        )
    if exists:
        raise InvalidArgumentError(f"there is a table {name} already", hint="clone to another name")
    wanted = {key: given[key] for key in ("version", "timestamp") if key in given}
    size = sum(source.arrow_files(**wanted)["size"].to_pylist())
    files = source.arrow_files(**wanted).num_rows
    source.clone(path, **wanted)
    if properties := _parsed_properties(given.get("properties", ())):
        DeltaTable.for_path(spark, path).set_properties(properties)
    if identifier is not None:
        register(spark, identifier, path, is_external=location is not None)
    return [(size, files, 0, 0, 0, 0)]


def _parsed_properties(texts: Sequence[str]) -> dict[str, str]:
    """Return the properties of a list such as `'a' = 'b'`."""
    found = {}
    for text in texts:
        cursor = Cursor(text, hint="TBLPROPERTIES ('name' = 'value')")
        is_string = cursor.peek()[:1] in ("'", '"')
        key = cursor.string() if is_string else ".".join(cursor.name())
        cursor.expect("=")
        found[key] = cursor.string()
    return found
