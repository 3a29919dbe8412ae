"""What a table is, changed or made: properties, columns, features, constraints; no rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import functions
from pyspark.sql import types as spark_types

from delvec.delta.alter.definition import add_constraint, new_table
from delvec.delta.alter.replace import replaced
from delvec.delta.alter.table_state import TableState
from delvec.delta.pruning.predicate import Always
from delvec.delta.schema.parse import parse_schema
from delvec.delta.schema.types import CHAR_TYPE, StructType
from delvec.delta.write.change import Change, Reads
from delvec.delta.write.commit import Base, commit
from delvec.delta.write.report import WriteReport
from delvec.delta.write.targets import live_files
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import ConstraintError, InvalidArgumentError
from delvec.spark.delta.scan.scan import scan
from delvec.storage.uncommitted import Leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.transaction import Attempt
    from delvec.storage import Storage

__all__ = ["TableDescription", "alter", "constrain", "create", "replace_table", "schema_of"]

_TRACKING: Final = "delta.enableRowTracking"


def schema_of(schema: Any) -> StructType:  # noqa: ANN401
    """Take a schema as users have it: of Spark, as DDL, or delvec's own.

    Raises:
        InvalidArgumentError: It is none.
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        schema = _from_text(schema)
    if not isinstance(schema, spark_types.StructType):
        raise InvalidArgumentError(
            f"a schema is a StructType or a text such as 'id long, day date', got {schema!r}"
        )
    plain = [_with_plain_texts(each) for each in schema.fields]
    return parse_schema(spark_types.StructType(plain).json())


def _with_plain_texts(field: spark_types.StructField) -> spark_types.StructField:
    """Turn `char(n)` and `varchar(n)` into texts whose length stands beside, as Spark does."""
    plain = _plain(field.dataType)
    if plain == field.dataType:
        return field
    metadata = {**(field.metadata or {}), CHAR_TYPE: field.dataType.simpleString()}
    return spark_types.StructField(field.name, plain, field.nullable, metadata)


def _plain(kind: spark_types.DataType) -> spark_types.DataType:
    if isinstance(kind, spark_types.CharType | spark_types.VarcharType):
        return spark_types.StringType()
    if isinstance(kind, spark_types.ArrayType):
        return spark_types.ArrayType(_plain(kind.elementType), kind.containsNull)
    if isinstance(kind, spark_types.MapType):
        key, value = _plain(kind.keyType), _plain(kind.valueType)
        return spark_types.MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, spark_types.StructType):
        fields = [
            spark_types.StructField(each.name, _plain(each.dataType), each.nullable, each.metadata)
            for each in kind.fields
        ]
        return spark_types.StructType(fields)
    return kind


def _from_text(text: str) -> Any:  # noqa: ANN401
    try:
        return spark_types.StructType.fromDDL(text)
    except PySparkRuntimeError as error:
        raise InvalidArgumentError(
            f"only Spark reads a schema that is a text, and no session is there: {text!r}",
            hint="start one, or pass a StructType",
        ) from error
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise InvalidArgumentError(
            f"{text!r} is no schema: {reason}", hint="write it as in 'id long, day date'"
        ) from error


@dataclass(frozen=True)
class TableDescription:
    """A table that somebody wants."""

    schema: StructType
    partition_by: tuple[str, ...]
    properties: Mapping[str, Any]
    name: str | None
    description: str | None


def create(storage: Storage, wanted: TableDescription) -> WriteReport:
    """Make a table where there is none: one commit.

    Raises:
        ConflictError: Another writer made one at the same time.
    """
    state = new_table(
        wanted.schema,
        wanted.partition_by,
        wanted.properties,
        name=wanted.name,
        description=wanted.description,
    )
    change = _described(Change("CREATE TABLE"), state)
    with Leftovers(storage) as leftovers:
        base = Base(storage, -1, state.protocol, state.metadata)
        committed = commit(base, change, leftovers)
    return WriteReport("CREATE TABLE", storage.root, committed.version)


def replace_table(wanted: TableDescription) -> Callable[[Attempt], Outcome]:
    """Prepare an empty table in place of one that is there, whose versions stay readable."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        require_writable(snapshot, "overwrite")
        state = replaced(
            TableState.of(snapshot),
            wanted.schema,
            wanted.partition_by,
            wanted.properties,
            name=wanted.name,
            description=wanted.description,
        )
        removed = tuple(live_files(snapshot.files, range(len(snapshot.files))))
        change = Change("CREATE OR REPLACE TABLE", reads=Reads(Always()), removed=removed)
        return Outcome(_described(change, state))

    return prepare


def _described(change: Change, state: TableState) -> Change:
    metadata = state.metadata
    parameters = {
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "clusterBy": "[]",
        "description": metadata.description or "",
        "isManaged": "false",
        "properties": json.dumps(dict(metadata.configuration)),
    }
    return replace(change, parameters=parameters, protocol=state.protocol, metadata=metadata)


def alter(
    operation: str,
    parameters: Mapping[str, Any],
    transform: Callable[[Snapshot, TableState], TableState],
) -> Callable[[Attempt], Outcome]:
    """Prepare another state of a table; nothing if it is the same."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "alter")
            was = TableState.of(snapshot)
            now = transform(snapshot, was)
        # Rows can be tracked from the first on only, so that no files may come in between.
        tracks = now.metadata.is_on(_TRACKING) and not was.metadata.is_on(_TRACKING)
        reads = Reads(Always()) if tracks else Reads()
        return _altered(attempt, operation, parameters, was, now, reads)

    return prepare


def constrain(name: str, expression: str) -> Callable[[Attempt], Outcome]:
    """Prepare a constraint; all rows that there are must satisfy it, so that they are read."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "alter")
            was = TableState.of(snapshot)
            now = add_constraint(was, name, expression)
        with attempt.phase("check"):
            holds = functions.coalesce(functions.expr(expression), functions.lit(False))
            rows = scan(attempt.spark, snapshot).where(~holds).limit(1).collect()
        if rows:
            raise ConstraintError(
                f"a row of {snapshot.table} does not satisfy {expression}: {rows[0].asDict()}",
                constraint=name,
                table=snapshot.table,
                hint="mend or delete such rows first",
            )
        parameters = {"name": name, "expr": expression}
        return _altered(attempt, "ADD CONSTRAINT", parameters, was, now, Reads(Always()))

    return prepare


def _altered(
    attempt: Attempt,
    operation: str,
    parameters: Mapping[str, Any],
    was: TableState,
    now: TableState,
    reads: Reads,
) -> Outcome:
    if now == was:
        return Outcome(None, notes=("the table is like that already",))
    change = Change(
        operation,
        parameters=parameters,
        reads=reads,
        protocol=now.protocol if now.protocol != was.protocol else None,
        metadata=now.metadata if now.metadata != was.metadata else None,
        transaction=attempt.options.transaction,
        user_metadata=attempt.options.commit_metadata,
    )
    return Outcome(change)
