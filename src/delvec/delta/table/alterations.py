"""Creating and altering a Delta table: columns, properties, table features, constraints.

These commands commit metadata and write no rows; only `add_constraint` needs a Spark session.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from delvec.delta.alter import definition, operations
from delvec.delta.alter.columns import add_columns, drop_column, rename_column
from delvec.delta.alter.table_state import TableState
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.expressions import require_plain
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.types import StructType
from delvec.delta.skipping.clustering import clustered_by, column_names
from delvec.delta.table.handle import TableHandle
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import WriteOptions
from delvec.errors import ConflictError, InvalidArgumentError
from delvec.report.hints import argument, format_hint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self, Unpack


@dataclass(frozen=True)
class TableAlterations(TableHandle):
    """The commands that create and alter a table; all take the keywords of `WriteOptions`."""

    @classmethod
    def create(  # noqa: PLR0913
        cls,
        spark: SparkSession | None,
        path: str | os.PathLike[str],
        schema: Any,  # noqa: ANN401
        partition_by: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        *,
        mode: Literal["error", "ignore", "replace"] = "error",
        name: str | None = None,
        description: str | None = None,
        cluster_by: Sequence[str] = (),
        storage_options: Mapping[str, object] | None = None,
    ) -> Self:
        """Create a table, with deletion vectors switched on unless a property says otherwise.

            DeltaTable.create(spark, "/lake/orders", "id long, day date", partition_by=["day"])

        Args:
            spark: The session that reads and writes rows; None for calls that need none.
            path: The folder of the table; it is empty or does not exist yet.
            schema: A `StructType` of Spark, a schema of Arrow, or a DDL string such as
                `id long, day date`.
            partition_by: The partition columns.
            properties: Table properties, such as `{"delta.enableChangeDataFeed": "true"}`;
                `{"delta.enableDeletionVectors": "false"}` switches deletion vectors off.
            mode: What to do if there is a table already: `error` raises, `ignore` keeps it as it
                is, `replace` commits an empty table in its place; old versions stay readable.
            name: A name, for the metadata.
            description: A description, for the metadata.
            cluster_by: The columns by which `optimize()` orders the rows, instead of partitions;
                four at most.
            storage_options: See `for_path`.

        Raises:
            InvalidArgumentError: There is a table already, or the schema or a property is invalid,
                or the folder has other files, which a VACUUM of the table would delete.
        """
        if mode not in ("error", "ignore", "replace"):
            raise InvalidArgumentError(f"mode is error, ignore or replace, not {mode!r}")
        table = cls._at(spark, path, storage_options)
        table._engine()  # noqa: SLF001 - a session that could not write rows is refused first
        columns = _columns(schema)
        wanted = operations.TableDescription(
            columns,
            tuple(partition_by),
            dict(properties or {}),
            name,
            description,
            tuple(cluster_by),
        )
        if not table.exists():
            table._require_allowed(wanted)  # noqa: SLF001
            try:
                operations.create_defined(table.storage, wanted.state())
            except ConflictError:
                if mode == "error":
                    raise
            else:
                return table
        if mode == "error":
            raise InvalidArgumentError(
                f"there is a table at {table.storage.root} already",
                hint=format_hint(
                    "open it by for_path, or pass {} or {}",
                    argument(mode="ignore"),
                    argument(mode="replace"),
                ),
            )
        if mode == "replace":
            table._require_allowed(wanted)  # noqa: SLF001
            table.run("CREATE OR REPLACE TABLE", operations.replace_table(wanted), {})
        return table

    @classmethod
    def create_if_not_exists(  # noqa: PLR0913
        cls,
        spark: SparkSession | None,
        path: str | os.PathLike[str],
        schema: Any,  # noqa: ANN401
        partition_by: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        cluster_by: Sequence[str] = (),
        storage_options: Mapping[str, object] | None = None,
    ) -> Self:
        """Open a table, or create it if there is none: `create` with the mode `ignore`.

        A table that exists stays as it is, whatever the other arguments say.
        """
        return cls.create(
            spark,
            path,
            schema,
            partition_by,
            properties,
            mode="ignore",
            name=name,
            description=description,
            cluster_by=cluster_by,
            storage_options=storage_options,
        )

    def set_properties(
        self, properties: Mapping[str, Any], **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Set table properties, and add the writer features that they need to the protocol.

        Raises:
            InvalidArgumentError: Delta has no such property or value, or the property needs a
                reader feature, which only `add_feature` and `enable_deletion_vectors` add.
        """

        def change(snapshot: Snapshot, state: TableState) -> TableState:
            return definition.set_properties(
                state, properties, is_empty=lambda: not len(snapshot.files)
            )

        shown = {"properties": json.dumps({key: str(value) for key, value in properties.items()})}
        return self._alter("SET TBLPROPERTIES", shown, change, options)

    def unset_properties(
        self, names: Iterable[str], *, if_exists: bool = False, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Unset table properties; one that is not set is an error unless `if_exists`."""
        listed = [names] if isinstance(names, str) else list(names)
        shown = {"properties": json.dumps(listed), "ifExists": str(if_exists).lower()}
        return self._alter(
            "UNSET TBLPROPERTIES",
            shown,
            lambda _, state: definition.unset_properties(state, listed, if_exists=if_exists),
            options,
        )

    def add_columns(self, columns: Any, **options: Unpack[WriteOptions]) -> WriteReport:  # noqa: ANN401
        """Add columns at the end; they are NULL in existing rows.

            t.add_columns("tax decimal(10,2), note string")

        Args:
            columns: A `StructType` of Spark, or a DDL string; the name `` `a.b` `` adds a field to
                the struct `a`.
            options: See the class.
        """
        schema = _columns(columns)
        shown = {"columns": json.dumps([{"column": each} for each in schema.to_json()["fields"]])}
        return self._alter(
            "ADD COLUMNS", shown, lambda _, state: add_columns(state, schema.fields), options
        )

    def rename_column(self, old: str, new: str, **options: Unpack[WriteOptions]) -> WriteReport:
        """Rename a column; needs column mapping. No file is rewritten."""
        shown = {"oldColumnPath": old, "newColumnPath": new}
        return self._alter(
            "RENAME COLUMN", shown, lambda _, state: rename_column(state, old, new), options
        )

    def drop_column(self, name: str, **options: Unpack[WriteOptions]) -> WriteReport:
        """Drop a column; needs column mapping. No file is rewritten: values stay in old files."""
        shown = {"columns": json.dumps([name])}
        return self._alter(
            "DROP COLUMNS", shown, lambda _, state: drop_column(state, name), options
        )

    def cluster_by(self, columns: Sequence[str], **options: Unpack[WriteOptions]) -> WriteReport:
        """Cluster the table by columns from now on; by none if the list is empty.

            t.cluster_by(["customer", "address.city"])

        Commits metadata only: `optimize()` orders the rows that come, `optimize(full=True)` all.

        Raises:
            InvalidArgumentError: A column has no order or no statistics, or the table has
                partitions.
        """
        snapshot = self.snapshot()
        old = column_names(snapshot.metadata, clustered_by(snapshot.domains))
        shown = {"oldClusteringColumns": ",".join(old), "newClusteringColumns": ",".join(columns)}
        return self._alter("CLUSTER BY", shown, lambda _, state: state.clustered(columns), options)

    def add_constraint(
        self, name: str, expression: str, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Add a CHECK constraint, after checking it on all rows of the table.

            t.add_constraint("positive", "amount > 0")

        Raises:
            ConstraintError: A row of the table violates it.
        """
        from delvec.spark.delta.write.constraints import constrain  # noqa: PLC0415

        self._session("add_constraint()")
        return self.run("ADD CONSTRAINT", constrain(name, expression), options)

    def drop_constraint(
        self, name: str, *, if_exists: bool = False, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Drop a CHECK constraint; one that does not exist is an error unless `if_exists`."""
        return self._alter(
            "DROP CONSTRAINT",
            {"name": name},
            lambda _, state: definition.drop_constraint(state, name, if_exists=if_exists),
            options,
        )

    def enable_deletion_vectors(self, **options: Unpack[WriteOptions]) -> WriteReport:
        """Switch deletion vectors on for the writes from now on.

        This upgrades the protocol to reader version 3 and writer version 7: engines that do not
        support deletion vectors can neither read nor write the table any more.
        """
        return self._alter(
            "SET TBLPROPERTIES",
            {"properties": json.dumps({Property.ENABLE_DELETION_VECTORS: "true"})},
            lambda _, state: definition.enable_deletion_vectors(state),
            options,
        )

    def add_feature(self, name: str, **options: Unpack[WriteOptions]) -> WriteReport:
        """Add a table feature to the protocol; engines must support it to use the table."""
        return self._alter(
            "UPGRADE PROTOCOL",
            {"newFeature": name},
            lambda _, state: definition.add_feature(state, name),
            options,
        )

    def _require_allowed(self, wanted: operations.TableDescription) -> None:
        """Refuse to define expressions that would not be evaluated."""
        metadata = wanted.state().metadata
        if self.spark is None:
            require_plain(self.storage.root, metadata)
        else:
            from delvec.spark.delta.write.stored_expressions import require_allowed  # noqa: PLC0415

            require_allowed(self.spark, self.storage.root, metadata)

    def _alter(
        self,
        operation: str,
        shown: Mapping[str, Any],
        change: Callable[[Snapshot, TableState], TableState],
        options: WriteOptions,
    ) -> WriteReport:
        return self.run(operation, operations.alter(operation, shown, change), options)


def _columns(schema: Any) -> StructType:  # noqa: ANN401
    """Return the columns of a schema argument; only Spark parses DDL and PySpark's types."""
    if isinstance(schema, StructType):
        return schema
    from delvec.spark.types import schema_of  # noqa: PLC0415

    if hasattr(schema, "__arrow_c_schema__"):
        from delvec.spark.input.rows import schema_of_arrow  # noqa: PLC0415

        schema = schema_of_arrow(pa.schema(schema))
    return schema_of(schema)
