"""Changing what a Delta table is: columns, properties, features, constraints. No row is written.

Nothing here but constraints needs a Spark session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delvec.delta.alter import definition, operations
from delvec.delta.schema.properties import ENABLE_DELETION_VECTORS
from delvec.delta.schema.types import StructType
from delvec.delta.table.handle import TableHandle
from delvec.errors import ConflictError, InvalidArgumentError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal

    from pyspark.sql import SparkSession
    from typing_extensions import Self, Unpack

    from delvec.delta.alter.table_state import TableState
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.options import WriteOptions
    from delvec.delta.write.report import WriteReport

__all__ = ["TableAlterations"]


@dataclass(frozen=True)
class TableAlterations(TableHandle):
    """What changes the table itself. All calls take the keywords of `WriteOptions`."""

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
        storage_options: Mapping[str, object] | None = None,
    ) -> Self:
        """Make a table, with deletion vectors switched on unless a property says otherwise.

            DeltaTable.create(spark, "/lake/orders", "id long, day date", partition_by=["day"])

        Args:
            spark: The session; None for what needs none.
            path: Where; a folder that is not there yet, or empty.
            schema: A `StructType` of Spark, or a text such as `id long, day date`.
            partition_by: The columns that the files are divided by.
            properties: Such as `{"delta.enableChangeDataFeed": "true"}`; vectors are switched off
                by `{"delta.enableDeletionVectors": "false"}`.
            mode: If there is a table: refuse, leave it as it is, or put an empty one in its place,
                whose older versions stay readable.
            name: The table's name, for people.
            description: A text about it.
            storage_options: See `for_path`.

        Raises:
            InvalidArgumentError: There is a table, or the schema or a property is wrong.
        """
        if mode not in ("error", "ignore", "replace"):
            raise InvalidArgumentError(f"mode is error, ignore or replace, not {mode!r}")
        table = cls._at(spark, path, storage_options)
        columns = _columns(schema)
        wanted = operations.TableDescription(
            columns, tuple(partition_by), dict(properties or {}), name, description
        )
        if not table.exists():
            try:
                operations.create(table.storage, wanted)
            except ConflictError:
                if mode == "error":
                    raise
            else:
                return table
        if mode == "error":
            raise InvalidArgumentError(
                f"there is a table at {table.storage.root} already",
                hint="open it by for_path, or pass mode='ignore' or mode='replace'",
            )
        if mode == "replace":
            table.run("CREATE OR REPLACE TABLE", operations.replace_table(wanted), {})
        return table

    def set_properties(
        self, properties: Mapping[str, Any], **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Set properties; features that shut out writers only are added where they need them.

        Raises:
            InvalidArgumentError: Delta knows no such property or value, or it would shut out
                readers: these features are added by `add_feature` or `enable_deletion_vectors`.
        """

        def change(snapshot: Snapshot, state: TableState) -> TableState:
            return definition.set_properties(state, properties, is_empty=not len(snapshot.files))

        shown = {"properties": json.dumps({key: str(value) for key, value in properties.items()})}
        return self._alter("SET TBLPROPERTIES", shown, change, options)

    def unset_properties(
        self, names: Iterable[str], *, if_exists: bool = False, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Take properties away; one that is not set is an error unless `if_exists`."""
        listed = [names] if isinstance(names, str) else list(names)
        shown = {"properties": json.dumps(listed), "ifExists": str(if_exists).lower()}
        return self._alter(
            "UNSET TBLPROPERTIES",
            shown,
            lambda _, state: definition.unset_properties(state, listed, if_exists=if_exists),
            options,
        )

    def add_columns(self, columns: Any, **options: Unpack[WriteOptions]) -> WriteReport:  # noqa: ANN401
        """Add columns at the end, NULL in all rows that there are.

            t.add_columns("tax decimal(10,2), note string")

        Args:
            columns: A `StructType` of Spark, or a text; `` `a.b` `` adds a field to the struct `a`.
            options: See the class.
        """
        schema = _columns(columns)
        shown = {"columns": json.dumps([{"column": each} for each in schema.to_json()["fields"]])}
        return self._alter(
            "ADD COLUMNS",
            shown,
            lambda _, state: definition.add_columns(state, schema.fields),
            options,
        )

    def rename_column(self, old: str, new: str, **options: Unpack[WriteOptions]) -> WriteReport:
        """Give a column another name; needs column mapping. No file changes."""
        shown = {"oldColumnPath": old, "newColumnPath": new}
        return self._alter(
            "RENAME COLUMN",
            shown,
            lambda _, state: definition.rename_column(state, old, new),
            options,
        )

    def drop_column(self, name: str, **options: Unpack[WriteOptions]) -> WriteReport:
        """Drop a column; needs column mapping. Its values stay in the files until these go."""

        def change(snapshot: Snapshot, state: TableState) -> TableState:
            clustering = json.loads(snapshot.domains.get("delta.clustering", "{}"))
            keys = clustering.get("clusteringColumns", ())
            return definition.drop_column(state, name, clustered_by=keys)

        return self._alter("DROP COLUMNS", {"columns": json.dumps([name])}, change, options)

    def add_constraint(
        self, name: str, expression: str, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Demand a condition of all rows, those that are there and those that come.

        Raises:
            ConstraintError: A row that is there does not satisfy it.
        """
        from delvec.spark.delta.write.constraints import constrain  # noqa: PLC0415

        return self.run("ADD CONSTRAINT", constrain(name, expression), options)

    def drop_constraint(
        self, name: str, *, if_exists: bool = False, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Demand a condition no longer; one that is not there is an error unless `if_exists`."""
        return self._alter(
            "DROP CONSTRAINT",
            {"name": name},
            lambda _, state: definition.drop_constraint(state, name, if_exists=if_exists),
            options,
        )

    def enable_deletion_vectors(self, **options: Unpack[WriteOptions]) -> WriteReport:
        """Let deletes go into vectors from now on.

        The protocol goes up to reader version 3 and writer version 7: engines that do not know
        deletion vectors can neither read nor write the table then.
        """
        return self._alter(
            "SET TBLPROPERTIES",
            {"properties": json.dumps({ENABLE_DELETION_VECTORS: "true"})},
            lambda _, state: definition.enable_deletion_vectors(state),
            options,
        )

    def add_feature(self, name: str, **options: Unpack[WriteOptions]) -> WriteReport:
        """Add a table feature to the protocol; engines that do not know it are shut out."""
        return self._alter(
            "UPGRADE PROTOCOL",
            {"newFeature": name},
            lambda _, state: definition.add_feature(state, name),
            options,
        )

    def _alter(
        self,
        operation: str,
        shown: Mapping[str, Any],
        change: Callable[[Snapshot, TableState], TableState],
        options: WriteOptions,
    ) -> WriteReport:
        return self.run(operation, operations.alter(operation, shown, change), options)


def _columns(schema: Any) -> StructType:  # noqa: ANN401
    """Return the columns that a user wrote; only Spark reads DDL and types of PySpark."""
    if isinstance(schema, StructType):
        return schema
    from delvec.spark.types import schema_of  # noqa: PLC0415

    return schema_of(schema)
